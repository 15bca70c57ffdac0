"""FlashAttention-3's side of `ejk bench --against fa3`: part of peer.py, after torch_peer.py, whose names it uses.

Its extension `_C` is looked for where FLASH_ATTENTION_3 says (a path), in the package flash_attn_3 (its own build), and in xformers, whose wheels for CUDA
12.8 and later have it."""
import importlib.util
import pathlib


def fa3_extension():
    """The path of FlashAttention-3's library of PyTorch operations."""
    told = os.environ.get("FLASH_ATTENTION_3")
    if told:
        return told
    for package, folder in (("flash_attn_3", "."), ("xformers", "flash_attn_3")):
        found = importlib.util.find_spec(package)
        for place in found.submodule_search_locations or () if found else ():
            for path in sorted((pathlib.Path(place) / folder).glob("_C*.so")):
                return str(path)
    raise ImportError("no FlashAttention-3: neither the package flash_attn_3 nor xformers has its _C.so; name it by FLASH_ATTENTION_3=PATH")


class Fa3Bench(TorchBench):
    def __init__(self, torch, device):
        super().__init__(torch, device)
        torch.ops.load_library(fa3_extension())
        self.operations = torch.ops.flash_attn_3

    def versions(self):
        return "FlashAttention-3, " + super().versions()


def open_bench(device):
    import torch
    warnings.simplefilter("ignore")
    if not device.startswith("cuda") or not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} finds no CUDA device")
    return Fa3Bench(torch, device)
