# Times blocksparse_attention_bwd of stores beside flash_attention_bwd: calls in turn, on one thread, a process a store, least CPU times.
"""Example: blocksparse_gradient_cpu.py build/release/lib/libejk.so before=STORE after=STORE --tokens 8192 --heads 4 --type bf16 --rounds 6"""
import argparse, array, ctypes, json, multiprocessing, random, time

TYPES = {"bf16": (4, 16), "f32": (2, 32), "bool": (6, 8)}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


class Argument(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("tensor", ctypes.POINTER(Tensor))]


def tensor(kind, shape, content=None):
    code, bits = TYPES[kind]
    size = bits // 8
    for extent in shape:
        size *= extent
    memory = ctypes.create_string_buffer(size + 64)
    start = (ctypes.addressof(memory) + 63) // 64 * 64
    if content:
        repeated = content * (size // len(content) + 1)
        ctypes.memmove(start, repeated, size)
    result = Tensor(start, (ctypes.c_int32 * 2)(1, 0), len(shape), code, bits, 1, (ctypes.c_int64 * len(shape))(*shape), None, 0)
    result.memory = memory
    return result


def random_content(kind, seed):
    """A million normal numbers, which repeat: rows of 128 features differ for 8192 tokens."""
    source = random.Random(seed)
    numbers = array.array("f", (source.gauss(0, 1) for _ in range(1000003)))
    return numbers.tobytes() if kind == "f32" else array.array("H", numbers.tobytes())[1::2].tobytes()  # the upper halves


class Library:
    """libejk with one store."""

    def __init__(self, path, store):
        self.c = ctypes.CDLL(path)
        self.c.ejk_last_error.restype = ctypes.c_char_p
        self.check(self.c.ejk_set_threads(1))
        self.check(self.c.ejk_add_store(store.encode()))

    def check(self, status):
        if status:
            raise RuntimeError(self.c.ejk_last_error().decode())

    def prepare(self, kernel, tensors, attributes, config=None):
        arguments = (Argument * len(tensors))(*(Argument(name.encode(), ctypes.pointer(t)) for name, t in tensors.items()))
        data = (ctypes.c_void_p * len(tensors))(*(t.data for t in tensors.values()))
        prepared = ctypes.c_void_p()
        self.check(self.c.ejk_prepare(kernel.encode(), arguments, len(tensors), json.dumps(attributes).encode(), config and config.encode(), ctypes.byref(prepared)))
        return lambda: self.check(self.c.ejk_run(prepared, data, None, None))


def block_mask(tokens, block, density, seed):
    """The diagonal, and of the blocks below it each with the density; also how many pairs a causal query sees there."""
    source, count = random.Random(seed), tokens // block
    rows = [[i == j or (j < i and source.random() < density) for j in range(count)] for i in range(count)]
    on = sum(map(sum, rows))
    return bytes(cell for row in rows for cell in row), count * block * (block + 1) // 2 + (on - count) * block * block


def masks(chosen):
    for seed, text in enumerate(chosen.masks.split(",")):
        block, density = int(text.split(":")[0]), float(text.split(":")[1])
        yield (text, block, *block_mask(chosen.tokens, block, density, seed))


def calls_of(library, chosen):
    """Gradients by label; each has run once."""
    shape = [1, chosen.tokens, chosen.heads, chosen.dim]
    inputs = {name: tensor(chosen.type, shape, random_content(chosen.type, seed)) for seed, name in enumerate(["q", "k", "v", "dout"])}
    gradients = {name: tensor(chosen.type, shape) for name in ["dq", "dk", "dv"]}

    def gradient(kernel, mask, attributes):
        out = {"out": tensor(chosen.type, shape), "lse": tensor("f32", [1, chosen.heads, chosen.tokens])}
        library.prepare(kernel, {name: inputs[name] for name in "qkv"} | mask | out, attributes)()
        tensors = inputs | mask | out | gradients
        run = library.prepare(kernel + "_bwd", tensors, attributes, chosen.config if mask else None)
        run()
        return run, tensors

    calls = {"dense": gradient("flash_attention", {}, {"causal": True})}
    for text, block, content, _ in masks(chosen):
        count = chosen.tokens // block
        mask = {"block_mask": tensor("bool", [1, 1, count, count], content)}
        calls[text] = gradient("blocksparse_attention", mask, {"causal": True, "block_q": block, "block_k": block})
    return calls


def serve(pipe, chosen, store):
    """Runs the call whose label comes, and answers with its CPU time."""
    calls = calls_of(Library(chosen.library, store), chosen)
    while label := pipe.recv():
        start = time.process_time()
        calls[label][0]()
        pipe.send(time.process_time() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", help="libejk.so")
    parser.add_argument("stores", nargs="+", metavar="NAME=STORE")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--type", default="bf16")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--masks", default="128:1,128:0.5,128:0.25,128:0.125,64:0.5,64:0.125", help="BLOCK:DENSITY, ...")
    parser.add_argument("--config", help="JSON: of blocksparse_attention_bwd")
    chosen = parser.parse_args()
    workers = {}
    for name, store in (item.split("=", 1) for item in chosen.stores):
        workers[name], end = multiprocessing.Pipe()
        multiprocessing.Process(target=serve, args=(end, chosen, store), daemon=True).start()
        end.close()  # a worker that has failed then ends the reading
    pairs = {"dense": chosen.tokens * (chosen.tokens + 1) // 2} | {text: useful for text, _, _, useful in masks(chosen)}
    times = {(label, name): [] for label in pairs for name in workers}
    for _ in range(chosen.rounds):
        for (label, name), taken in times.items():
            workers[name].send(label)
            taken.append(workers[name].recv())
    for worker in workers.values():
        worker.send(None)
    print("| mask | share | " + " | ".join(f"{name} | ratio" for name in workers) + " |")
    for label, useful in pairs.items():
        share, dense = useful / pairs["dense"], min(min(times["dense", name]) for name in workers)
        least = [min(times[label, name]) for name in workers]
        print(f"| {label} | {share:.3f} | " + " | ".join(f"{1000 * taken:.1f} ms | {share * dense / taken:.2f}" for taken in least) + " |")


if __name__ == "__main__":
    main()
