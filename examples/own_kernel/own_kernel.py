"""A kernel of your own from one spec and one template: compiled when it is first called, and tuned, from Python.

    python examples/own_kernel/own_kernel.py        # needs a C++ compiler, as kernels for the CPU do that no wheel brings

This folder is a store: specs/gated_silu.json says what the kernel takes and how it may be computed, templates/gated_silu/ is the code.
Vocabulary headers and archs come from the package.
"""

import os

import numpy as np

import ejk

ejk.add_store(os.path.dirname(os.path.abspath(__file__)))
gated_silu = ejk.kernel("gated_silu")


def reference(gate, up):
    gate, up = gate.astype(np.float64), up.astype(np.float64)
    return gate / (1 + np.exp(-gate)) * up


def main():
    rng = np.random.default_rng(0)
    gate, up = (rng.standard_normal((512, 14336)).astype(np.float32) for _ in range(2))
    out = gated_silu(gate, up)
    print("largest error", abs(out - reference(gate, up)).max())
    print("compiled here:", ejk.explain(gated_silu, gate, up)["image"]["id"])

    record = ejk.tune(gated_silu, gate, up, budget=15)
    print(f"tuned: {record['config']['block']} elements a work item, {record['median_us']:.0f} us; heuristic {record['baseline_us']:.0f} us")
    assert abs(gated_silu(gate, up) - reference(gate, up)).max() < 1e-5


if __name__ == "__main__":
    main()
