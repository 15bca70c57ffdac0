"""flash_attention between a program's own operations on the CPU: beside the same calls alone, and PyTorch's and JAX's own attention in the same rounds.

usage: cpu_bench.py [torch] [jax] [--threads 2,4,8,16] [--shapes 1x16x4x64,...] [--types f32,bf16] [--seconds S] [--quick] [--json FILE] [--table FILE]
       cpu_bench.py --table FILE --from FILE       the page of what was saved

A program alternates attention with a matrix product of its tokens, [B S, H D] x [H D, H D]. In PyTorch ejk's call is also timed after ejk's own product of
the same tensors: it leaves the caches as full, and no other library's threads. Each number of threads is a process of its own that may run on so many CPUs only. Shapes are B x S x H x D. Rounds are interleaved; ratios are medians over rounds. It takes about --seconds in all (190), which
libraries, threads and rows share evenly; --quick is 60 s, three shapes and two numbers of threads.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time

SHAPES = "1x16x4x64,1x64x4x64,1x128x8x64,1x512x8x64,4x512x12x64,1x1024x16x64"
FEW_SHAPES = "1x16x4x64,1x512x8x64,1x1024x16x64"
ROUNDS = (3, 30)  # of a row, at least and at most
START = 3  # seconds of a process before it measures, about
STEPS = 8  # calls in a JAX program


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", help="torch, jax; those that are installed, if none is named")
    parser.add_argument("--threads", default="")
    parser.add_argument("--shapes")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--seconds", type=float, help="in all, about")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", help="where to save what was found")
    parser.add_argument("--table", help="where to write it as a page")
    parser.add_argument("--from", dest="saved", help="what was saved, in place of a run")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if strange := set(options.libraries) - {"torch", "jax"}:
        parser.error(f"no library {' or '.join(sorted(strange))}; expected torch or jax")
    options.libraries = options.libraries or [each for each in ("torch", "jax") if importlib.util.find_spec(each)]
    options.seconds = options.seconds or (60 if options.quick else 190)
    options.shapes = [tuple(map(int, shape.split("x"))) for shape in (options.shapes or (FEW_SHAPES if options.quick else SHAPES)).split(",")]
    options.types = options.types.split(",")
    options.threads = [int(count) for count in options.threads.split(",") if count]
    return options


# ---- measuring ----


def call_times(call, between, seconds):
    """The median time of a call, in seconds; each call comes after `between`, which is not counted."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        if between:
            between()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def rounds_of(subjects, measure, end):
    """{name: [{after what: seconds} a round]} of measure(subject, after, seconds), which come in turn, until `end`. subjects: {name: (subject, [after])}"""
    found, started = {name: [] for name in subjects}, time.perf_counter()
    share = max(end - started, 0) / ROUNDS[1] / sum(len(places) for _, places in subjects.values())
    for done in range(ROUNDS[1]):
        if done >= ROUNDS[0] and time.perf_counter() >= end:
            break
        for name, (subject, places) in subjects.items():
            found[name].append({after: measure(subject, after, share) for after in places})
    return found


def cases(options):
    """(type, shape, when this row should end) of each row: what is left of the time is shared by the rows that are left."""
    rows = [(name, shape) for name in options.types for shape in options.shapes]
    end = time.perf_counter() + options.seconds
    for done, row in enumerate(rows):
        now = time.perf_counter()
        yield *row, now + max(end - now, 0) / (len(rows) - done)


def summary(rounds):
    found = {after: statistics.median(each[after] for each in rounds) for after in rounds[0]}
    found["ratio"] = statistics.median(each["alternating"] / each["alone"] for each in rounds)
    if "after_own" in found:
        found["ratio_of_own"] = statistics.median(each["alternating"] / each["after_own"] for each in rounds)
    return found | {"rounds": len(rounds)}


# ---- PyTorch ----


def torch_rows(options, threads):
    import torch
    import torch.nn.functional as F

    import ejk

    torch.set_num_threads(threads)
    for name, (b, s, h, d), end in cases(options):
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[name]
        q, k, v = (torch.randn(b, s, h, d).to(dtype) for _ in range(3))
        tokens, weights = torch.randn(b * s, h * d).to(dtype), torch.randn(h * d, h * d).to(dtype)
        turned = [x.transpose(1, 2) for x in (q, k, v)]
        rows = torch.tensor([b * s], dtype=torch.int32)
        subjects = {
            "ejk": (lambda: ejk.flash_attention(q, k, v), ("alone", "alternating", "after_own")),  # noqa: B023
            "torch": (lambda: F.scaled_dot_product_attention(*turned), ("alone", "alternating")),  # noqa: B023
            "an addition": (lambda: torch.add(q, k), ("alone", "alternating")),  # noqa: B023
        }
        before = {
            "alone": None,
            "alternating": lambda: torch.mm(tokens, weights),  # noqa: B023
            "after_own": lambda: ejk.grouped_matmul(tokens, weights[None], group_sizes=rows),  # noqa: B023
        }
        measure = lambda call, after, seconds: call_times(call, before[after], seconds)  # noqa: B023, E731
        with torch.no_grad():
            for subject, places in subjects.values():
                for after in places:
                    call_times(subject, before[after], 0.02)
            found = rounds_of(subjects, measure, end)
        yield {"library": "torch", "threads": threads, "type": name, "shape": [b, s, h, d], **{each: summary(found[each]) for each in found}}


# ---- JAX ----


def jax_programs(jax, attend, h, d):
    """Programs of STEPS attentions alone, of as many products alone, and of both in turn, each step on the result of the one before."""

    def product(x, w):
        return (x.reshape(-1, h * d) @ w).reshape(x.shape)

    def chain(*steps):
        def program(q, k, v, w):
            for _ in range(STEPS):
                for step in steps:
                    q = product(q, w) if step == "product" else attend(q, k, v)
            return q

        return jax.jit(program)

    return chain("attention"), chain("product"), chain("product", "attention")


def program_time(jax, program, arrays, seconds):
    return call_times(lambda: jax.block_until_ready(program(*arrays)), None, seconds) / STEPS


def jax_rows(options, threads):
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp

    import ejk
    import ejk.jax  # noqa: F401

    for name, (b, s, h, d), end in cases(options):
        dtype = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}[name]
        keys = jax.random.split(jax.random.key(0), 4)
        arrays = [jax.random.normal(key, (b, s, h, d), dtype) for key in keys[:3]]
        arrays.append((jax.random.normal(keys[3], (h * d, h * d)) / (h * d) ** 0.5).astype(dtype))
        programs_of = {
            "ejk": jax_programs(jax, lambda q, k, v: ejk.flash_attention(q, k, v), h, d),
            "jax": jax_programs(jax, jax.nn.dot_product_attention, h, d),
        }
        for programs in programs_of.values():
            for program in programs:
                program_time(jax, program, arrays, 0)

        def measure(programs, after, seconds):
            alone, products, both = programs
            if after == "alone":
                return program_time(jax, alone, arrays, seconds)  # noqa: B023
            return program_time(jax, both, arrays, seconds / 2) - program_time(jax, products, arrays, seconds / 2)  # noqa: B023

        found = rounds_of({each: (programs, ("alone", "alternating")) for each, programs in programs_of.items()}, measure, end)
        yield {"library": "jax", "threads": threads, "type": name, "shape": [b, s, h, d], **{each: summary(found[each]) for each in found}}


# ---- processes and pages ----


def child(options):
    """One library and number of threads: a JSON line a row."""
    threads, library = options.threads[0], options.libraries[0]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    for row in {"torch": torch_rows, "jax": jax_rows}[library](options, threads):
        print(json.dumps(row), flush=True)


def told(row):
    parts = [f"{name} {x['alone'] * 1e6:.1f} -> {x['alternating'] * 1e6:.1f} us ({x['ratio']:.3f})" for name, x in row.items() if isinstance(x, dict)]
    return f"{row['library']:5} {row['threads']:2} threads {row['type']:4} {str(tuple(row['shape'])):20} {'; '.join(parts)}"


def rows_of_child(options, library, threads, seconds):
    command = [sys.executable, __file__, library, "--child", "--threads", str(threads), "--types", ",".join(options.types)]
    command += ["--shapes", ",".join("x".join(map(str, shape)) for shape in options.shapes), "--seconds", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            row = json.loads(line)
            print(told(row), flush=True)
            yield row
    if process.returncode:
        sys.exit(f"cpu_bench.py: {' '.join(command)} ended with {process.returncode}")


def machine():
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} CPUs"


def versions(libraries):
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in libraries)


def measure_all(options):
    cpus = len(os.sched_getaffinity(0))
    counts = options.threads or [count for count in (2, 4, 8, 16) if count <= cpus] or [cpus]
    if options.quick and not options.threads:
        counts = sorted({counts[0], counts[-1]})
    processes, end = len(options.libraries) * len(counts), time.perf_counter() + options.seconds
    found = {"machine": machine(), "versions": versions(options.libraries), "rows": []}
    for library in options.libraries:
        for threads in counts:
            share = max(end - time.perf_counter(), 0) / processes - START
            processes -= 1
            for row in rows_of_child(options, library, threads, max(share, 0.1)):
                found["rows"].append(row)
                if options.json:  # after each row: a run that is cut off has left what it found
                    with open(options.json, "w") as file:
                        json.dump(found, file, indent=1)
    return found


def table(found, library):
    peer = {"torch": "F.sdpa", "jax": "jax.nn"}[library]
    extra = ["an addition"] if library == "torch" else []
    names = ["ejk", library, *extra]
    own = [name for name in names if any("after_own" in row[name] for row in found["rows"] if row["library"] == library)]
    titles = [f"{title} alone, us | between products | ratio" + (" | after ejk's own product, us | ratio to it" if name in own else "")
              for name, title in zip(names, ("ejk", peer, *extra), strict=True)]
    yield "| threads | type | B, S, H, D | " + " | ".join(titles) + " |"
    yield "|---:|---|---|" + "---:|" * (3 * len(names) + 2 * len(own))
    for row in found["rows"]:
        if row["library"] != library:
            continue
        cells = []
        for name in names:
            cells += [f"{row[name]['alone'] * 1e6:.1f}", f"{row[name]['alternating'] * 1e6:.1f}", f"{row[name]['ratio']:.2f}"]
            cells += [f"{row[name]['after_own'] * 1e6:.1f}", f"{row[name]['ratio_of_own']:.2f}"] if name in own else []
        yield f"| {row['threads']} | {row['type']} | {', '.join(map(str, row['shape']))} | {' | '.join(cells)} |"


HEAD = """# flash_attention between a program's own operations, CPU

`python tests/python/cpu_bench.py --json FILE --table docs/bench/alternation_cpu.md`. Whose threads work matters where a program computes beside us: PyTorch's spin for a while after each of its operations. A call is timed
alone, one after the other, and after a product of the same tokens, [B S, H D] x [H D, H D], that is not counted; PyTorch's and JAX's own attention in the same rounds, and an addition of two tensors, which shows what caches
cost that the product has filled; ejk's also after ejk's own product of the same tensors, grouped_matmul's, which fills the caches too and runs no other
library's threads: the ratio to it is what PyTorch's threads cost. In JAX programs of 8 steps are timed: attention alone, products alone, both in turn; the second is taken from the third. Each number of threads is a process that may use so many CPUs.
Medians; ratios are medians over rounds.
"""


def page(found):
    rounds = [row["ejk"]["rounds"] for row in found["rows"]]
    lines = [HEAD, f"{found['machine']}; {found['versions']}. {min(rounds)} to {max(rounds)} rounds a row."]
    for library in ("torch", "jax"):
        rows = [row for row in found["rows"] if row["library"] == library]
        if not rows:
            continue
        ratios = [row["ejk"]["ratio"] for row in rows]
        within = sum(ratio <= 1.05 for ratio in ratios)
        title = {"torch": "PyTorch: a call after torch.mm", "jax": "JAX: a call after a dot, in one jax.jit"}[library]
        lines += ["", f"## {title}", "", *table(found, library), ""]
        lines.append(f"ejk between products is within 5% of alone in {within} of {len(rows)} rows; median {statistics.median(ratios):.3f}, largest {max(ratios):.2f}.")
        if to_own := [row["ejk"]["ratio_of_own"] for row in rows if "ratio_of_own" in row["ejk"]]:
            lines.append(f"It is within 5% of the call after ejk's own product in {sum(ratio <= 1.05 for ratio in to_own)}; median {statistics.median(to_own):.3f}, "
                         f"largest {max(to_own):.2f}.")
    return "\n".join(lines) + "\n"


def main():
    options = arguments()
    if options.child:
        return child(options)
    if options.saved:
        with open(options.saved) as file:
            found = json.load(file)
    else:
        found = measure_all(options)
    if options.table:
        with open(options.table, "w") as file:
            file.write(page(found))
    return print(page(found))


if __name__ == "__main__":
    main()
