"""Scopes that choose configs, as overlay_cache and policy_override in C++, but of a context: a thread, or an asyncio task."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ._call import config_text, kernel_name
from ._library import c_text, json_text
from ._open_scopes import Scope


def overlay(config: dict | str, kernel: Callable | str | None = None) -> contextlib.AbstractContextManager[None]:
    """Inside, `config` (a dict such as {"variant": "tiled", "block_m": 64}) holds for calls of `kernel` (a function of ejk, or a name), or
    of every kernel, where it is valid. Inner scopes win. This thread or asyncio task only (contextvars: tasks made inside have it, too),
    and in a generator only while that runs; a config for one call alone is its cfg=."""
    return Scope("ejk_push_overlay", c_text(kernel_name(kernel), "a kernel's name") if kernel else None, config_text(config))


def policy(
    *, cache_miss_fallback: str = "heuristics", allow_autotune: bool = True, allow_heuristics: bool = True, validate_backward: bool = False
) -> contextlib.AbstractContextManager[None]:
    """Inside, this policy answers calls that nothing was measured for: cache_miss_fallback is "autotune" (measure, which takes seconds to
    minutes), "heuristics" or "error". validate_backward: after a call was tuned, its gradient's calls are, too. Holds where an overlay would."""
    wanted = {
        "cache_miss_fallback": cache_miss_fallback,
        "allow_autotune": allow_autotune,
        "allow_heuristics": allow_heuristics,
        "validate_backward": validate_backward,
    }
    return Scope("ejk_push_policy", json_text(wanted))
