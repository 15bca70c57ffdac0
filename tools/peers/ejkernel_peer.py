"""ejkernel's side (its Triton kernels, called from JAX) of `ejk bench --against ejkernel`: part of peer.py, whose names it uses.

JAX has no events: a time is the wall clock's over a queue of calls that takes QUEUE_SECONDS or more, so that what the host adds at its ends, some tens of
microseconds, counts less than 1%. A queue's first call alone finds the caches cold."""
QUEUE_SECONDS = 0.01


class EjkernelBench(Bench):
    refusals = (RuntimeError, ValueError, TypeError, NotImplementedError)

    def __init__(self, version, jax, device):
        super().__init__()
        self.version, self.jax, self.device = version, jax, device
        self.types = {"f32": jax.numpy.float32, "f16": jax.numpy.float16, "bf16": jax.numpy.bfloat16}
        self.repeats = {}  # calls of a queue, by run
        self.made = 0
        self.other_data = jax.numpy.zeros(FLUSH_BYTES // 4, jax.numpy.int32)
        self.flush = jax.jit(lambda x: x + 1)

    def versions(self):
        return f"ejkernel {self.version}, JAX {self.jax.__version__}, {self.device.device_kind}, by the wall clock"

    def make_tensor(self, kind, told):
        self.made += 1
        return self.jax.random.normal(self.jax.random.key(self.made), told["shape"], kind)

    def queue(self, run, count):
        begin = time.perf_counter()
        for _ in range(count):
            last = run()
        self.jax.block_until_ready(last)
        return time.perf_counter() - begin

    def first_run(self, peer):
        run, _ = peer
        self.queue(run, 1)
        self.repeats[run] = max(1, round(QUEUE_SECONDS / self.queue(run, 1)))

    def seconds(self, peer, count, cold):
        run, _ = peer
        if cold:
            self.jax.block_until_ready(self.flush(self.other_data))
        repeats = self.repeats[run]
        return self.queue(run, count * repeats) / repeats

    def free(self):
        self.repeats = {}


def open_bench(device):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the device is shared with ejk
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import jax
    import ejkernel
    platform, _, number = device.partition(":")
    found = jax.devices(platform)[int(number or 0)]
    jax.config.update("jax_default_device", found)
    return EjkernelBench(ejkernel.__version__, jax, found)
