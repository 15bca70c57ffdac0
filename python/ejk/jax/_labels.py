"""Labels of ejk's calls in programs that JAX has lowered or compiled."""

from . import _trace


def find_labels_in_lowered(program):
    """The labels ("ejk:flash_attention:0123456789abcdef") of ejk's calls in a program, each once, in order of first appearance.

    program: jax.jit(f).lower(...), what .compile() makes of it, or the text of either. `ejk warm --hlo` builds what they ask for."""
    return _trace.labels_in(program if isinstance(program, str) else program.as_text())
