"""Labels of ejk's calls in programs that JAX has lowered or compiled."""

from __future__ import annotations

from . import _trace


def find_labels_in_lowered(program: object) -> list[str]:
    """The labels ("ejk:flash_attention:0123456789abcdef") of ejk's calls in a program, each once, in order of first appearance.

    program: jax.jit(f).lower(...), what .compile() makes of it, or the text of either. `ejk warm --hlo` builds what they ask for."""
    if not isinstance(program, str):
        if not hasattr(program, "as_text"):
            raise TypeError(f"expected a lowered or compiled program, or the text of one; found {program!r:.80}")
        program = program.as_text()
    return _trace.labels_in(program)
