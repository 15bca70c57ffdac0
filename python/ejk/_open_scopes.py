"""Which of Python's scopes hold now: those that the running context has open (contextvars: an asyncio task has its own), and of those that
a generator opened only while it runs. libejk knows scopes by thread: `follow` puts there what holds, before a call."""

import contextvars
import ctypes
import inspect
import sys
import threading

from ._library import check, library

used = False  # whether a scope was ever opened: until then there is nothing to follow
traced = bool  # says whether a compiler reads this call rather than runs it (torch.compile: PyTorch's arrays set it); scopes then hold when it runs
_open = contextvars.ContextVar("the open scopes of ejk", default=())  # outermost first
_here = threading.local()  # .scopes: what libejk has on this thread
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class _Kept:
    """Open scopes as libejk keeps them: the same ids whenever they are used again."""

    def __init__(self, scopes):
        loaded, self.address, pops = library(), ctypes.c_void_p(), []
        check(loaded.ejk_use_scopes(None))
        _here.scopes = ()
        try:
            for scope in scopes:
                check(getattr(loaded, scope.push)(*scope.arguments))
                pops.append(getattr(loaded, scope.push.replace("push", "pop")))
            check(loaded.ejk_keep_scopes(ctypes.byref(self.address)))
        finally:
            for pop in reversed(pops):
                pop()

    def __del__(self):
        if self.address:
            library().ejk_release_scopes(self.address)


def _generator_around(frame):
    """The number of the generator's frame that opens a scope, None if no generator does. One that contextlib drives is a scope of its
    caller's."""
    while frame is not None and frame.f_code.co_flags & _GENERATOR:
        caller = frame.f_back
        if caller is None or caller.f_globals.get("__name__") != "contextlib":
            return id(frame)  # which is another's only after it has ended, and closed the scope
        while caller is not None and caller.f_globals.get("__name__") == "contextlib":
            caller = caller.f_back
        frame = caller
    return None


class Scope:
    """`with` around calls. push: the function of libejk that opens it; what it refuses is raised on entering."""

    def __init__(self, push, *arguments):
        self.push, self.arguments, self.generator, self.kept = push, arguments, None, {}

    def __enter__(self):
        global used
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") == "contextlib":  # an ExitStack
            frame = frame.f_back
        if self in _open.get():
            raise RuntimeError("this scope is open already: make one for each `with`")
        self.generator, used = _generator_around(frame), True
        _open.set((*_open.get(), self))
        try:
            follow()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        _open.set(tuple(scope for scope in _open.get() if scope is not self))
        follow()
        self.kept.clear()


def _holding():
    scopes = _open.get()
    if not any(scope.generator for scope in scopes):
        return scopes
    frame, running = sys._getframe(1), set()
    while frame is not None:
        running.add(id(frame))
        frame = frame.f_back
    return tuple(scope for scope in scopes if scope.generator is None or scope.generator in running)


def follow():
    """Makes libejk's scopes of this thread those that hold."""
    scopes = _holding()
    if getattr(_here, "scopes", ()) == scopes:
        return
    kept = None
    if scopes:
        kept = scopes[-1].kept.get(scopes)
        if kept is None:
            kept = scopes[-1].kept[scopes] = _Kept(scopes)
    check(library().ejk_use_scopes(kept and kept.address))
    _here.scopes = scopes
