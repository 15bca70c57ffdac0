"""FLA's side of `ejk bench --against fla`: part of peer.py, after torch_peer.py, whose names it uses (the package fla).

Its operations are Triton's: the first call of each tunes it, for a minute where nothing is in Triton's cache yet."""


class FlaCall(TorchCall):
    def given_only(self, allowed):
        """Refuses a call that gives tensors besides."""
        for name in self.tensors:
            if name not in allowed:
                raise CannotDo(f"not measured with {name}")

    def values(self, name):
        """Data as the library's tests have it: logarithms of decays below 0, betas between 0 and 1."""
        if name in ("g", "gk", "g_gamma"):
            return self.torch.nn.functional.logsigmoid(self.tensor(name).float()).to(self.type(name))
        return self.tensor(name).sigmoid() if name == "beta" else self.tensor(name)


class FlaBench(TorchBench):
    call_type = FlaCall
    refusals = (Exception,)  # assertions, and what Triton's compiler throws

    def versions(self):
        import fla
        import triton
        return f"FLA {fla.__version__}, Triton {triton.__version__}, " + super().versions()


def fla_gradients(run, tensors, outputs_and_gradients):
    """A run of the gradient alone: `run` of tensors is recorded once, then differentiated as often as it is called."""
    import torch
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        outputs, gradients = outputs_and_gradients(run(*leaves))
    # A decay a head has no gradient there.
    return lambda: torch.autograd.grad(outputs, leaves, gradients, retain_graph=True, allow_unused=True)


def fla_recorded():
    import torch
    return torch.enable_grad()


def open_bench(device):
    import torch
    warnings.simplefilter("ignore")
    if not device.startswith("cuda") or not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} finds no CUDA device")
    bench = FlaBench(torch, device)
    bench.versions()
    return bench
