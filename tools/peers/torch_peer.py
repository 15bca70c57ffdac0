"""PyTorch's side of `ejk bench --against torch`: part of peer.py, whose names it uses. Times are device events'."""
import warnings


class TorchCall(Call):
    def __init__(self, bench, call):
        super().__init__(bench, call)
        self.torch = bench.torch


class TorchBench(Bench):
    call_type = TorchCall

    def __init__(self, torch, device):
        super().__init__()
        self.torch = torch
        self.device = torch.device(device)
        self.types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64,
                      "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool, "f8_e4m3": getattr(torch, "float8_e4m3fn", None)}
        self.flush = None
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            self.flush = torch.zeros(2, FLUSH_BYTES, dtype=torch.uint8, device=self.device)

    def versions(self):
        text = f"torch {self.torch.__version__}"
        if self.device.type == "cuda":
            text += f", cuDNN {self.torch.backends.cudnn.version()}, CUDA {self.torch.version.cuda}, "
            text += self.torch.cuda.get_device_name(self.device)
        return text

    def make_tensor(self, kind, told):
        torch, device = self.torch, self.device
        if "values" in told:
            return torch.tensor(told["values"], dtype=kind, device=device).reshape(told["shape"])
        if kind == torch.bool:
            return torch.rand(told["shape"], device=device) < 0.8
        return torch.randn(told["shape"], device=device).to(kind)

    def first_run(self, peer):
        run, choose = peer
        with self.torch.no_grad(), choose():
            run()
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def seconds(self, peer, count, cold):
        run, choose = peer
        with self.torch.no_grad(), choose():
            if self.device.type != "cuda":
                begin = time.perf_counter()
                for _ in range(count):
                    run()
                return time.perf_counter() - begin
            start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            if cold:
                self.flush[0].copy_(self.flush[1])
            start.record()
            for _ in range(count):
                run()
            stop.record()
            stop.synchronize()
            return start.elapsed_time(stop) * 1e-3

    def free(self):
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()


def open_bench(device):
    import torch
    warnings.simplefilter("ignore")  # why a backend was not taken: the answer says it cannot, that is enough
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} finds no CUDA device")
    return TorchBench(torch, device)
