"""Scopes that choose configs, on the thread that opened them, as overlay_cache and policy_override in C++."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ._call import config_text, kernel_name
from ._library import c_text, check, json_text, library


@contextlib.contextmanager
def overlay(config: dict | str, kernel: Callable | str | None = None) -> Iterator[None]:
    """Inside, `config` (a dict such as {"variant": "tiled", "block_m": 64}) holds for calls of `kernel` (a function of ejk, or a name), or
    of every kernel, where it is valid. Inner scopes win. This thread only; a config for one call alone is its cfg=."""
    check(library().ejk_push_overlay(c_text(kernel_name(kernel), "a kernel's name") if kernel else None, config_text(config)))
    try:
        yield
    finally:
        check(library().ejk_pop_overlay())


@contextlib.contextmanager
def policy(
    *, cache_miss_fallback: str = "heuristics", allow_autotune: bool = True, allow_heuristics: bool = True, validate_backward: bool = False
) -> Iterator[None]:
    """Inside, this policy answers calls that nothing was measured for: cache_miss_fallback is "autotune" (measure, which takes seconds to
    minutes), "heuristics" or "error". validate_backward: after a call was tuned, its gradient's calls are, too. This thread only."""
    wanted = {
        "cache_miss_fallback": cache_miss_fallback,
        "allow_autotune": allow_autotune,
        "allow_heuristics": allow_heuristics,
        "validate_backward": validate_backward,
    }
    check(library().ejk_push_policy(json_text(wanted)))
    try:
        yield
    finally:
        check(library().ejk_pop_policy())
