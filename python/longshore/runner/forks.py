"""Processes that an app forks. They are none of the runner's: they answer nothing, serve nothing, and hold nothing of it.

Must stay true: however a forked process leaves the app's code, it ends there. The runner's connections end with the runner,
although children of it live on. Children see to SIGTERM as any program does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional

#: Signals for which the runner has handlers, beside that of cancellations.
_SIGNALS = (signal.SIGTERM, signal.SIGCHLD)
_OURS = (__name__.rpartition('.')[0], 'asyncio.unix_events')


class _State:
    def __init__(self) -> None:
        #: The process of the runner that this is; another one was forked by the app.
        self.pid = os.getpid()
        #: Whether the fork that goes on is the runner's own.
        self.own = False
        self.is_foreign = False
        self.holders: List[Callable[[], Iterable[int]]] = []
        self.followers: List[Callable[[], object]] = []
        #: Blocked signals of threads that fork.
        self.masks: Dict[int, Any] = {}


_state = _State()


def install() -> None:
    """Begins to look after children, before the app is imported."""
    _state.pid = os.getpid()
    os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_in_child)


def hold(descriptors: Callable[[], Iterable[int]]) -> None:
    """Names descriptors that no child of the app may hold, -1: none. A process that the runner forks begins without any."""
    _state.holders.append(descriptors)


def follow(call: Callable[[], object]) -> None:
    """Calls this in each process that the app forks, before it returns from the fork."""
    _state.followers.append(call)


def fork() -> int:
    """Forks a process of the runner's own."""
    _state.own = True
    try:
        return os.fork()
    finally:
        _state.own = False


def end_if_foreign(error: Optional[BaseException] = None, why: str = '') -> None:
    """Ends this process if the app forked it: called wherever code of the app returns, raises or waits."""
    if os.getpid() != _state.pid:
        _end(error, why)


def end_from_thread(_call: Any, *inputs: Any, **_options: Any) -> None:
    """Stands for the `call_soon_threadsafe` of a parent's event loop: code in a thread has ended, and tells the loop."""
    error = None
    for one in inputs:
        if isinstance(one, BaseException):
            error = one
        elif hasattr(one, 'exception') and one.done() and not one.cancelled():
            error = one.exception() or error
    end_if_foreign(error)


def _hold_back() -> None:
    """A SIGTERM waits until a child has its own way with it: our handler would take it, and Python drops what comes so early."""
    _state.masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_through() -> None:
    mask = _state.masks.pop(threading.get_ident(), None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_child() -> None:
    if _state.own:
        _state.pid = os.getpid()
        _state.holders.clear()
    elif not _state.is_foreign:
        _state.is_foreign = True
        _become_foreign()
    _let_through()


def _become_foreign() -> None:
    _let_go()
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        # The app's own handlers stay.
        if getattr(signal.getsignal(number), '__module__', '').startswith(_OURS):
            signal.signal(number, signal.SIG_DFL)
    for call in _state.followers:
        call()
    _watch_pool()


def _watch_pool() -> None:
    """A thread of a pool would wait for more work in the child. It has no more than what it does, whose outcome ends it."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == 'run' and frame.f_globals.get('__name__') == 'concurrent.futures.thread':
            future = frame.f_locals['self'].future
            future.set_result = lambda _value: end_if_foreign()
            future.set_exception = end_if_foreign
        frame = frame.f_back  # type: ignore[assignment]


def _let_go() -> None:
    """Puts /dev/null in the place of what the runner holds: a number that is merely closed would come to belong to a file of
    the app, which an object of the runner's could close."""
    null = os.open('/dev/null', os.O_RDWR | os.O_CLOEXEC)
    for descriptors in _state.holders:
        for descriptor in descriptors():
            if descriptor >= 0:
                os.dup2(null, descriptor, False)
    os.close(null)


def _end(error: Optional[BaseException], why: str) -> None:
    code = 1 if error is not None or why else 0
    try:
        from . import logs
        from .server import exit_code

        if not _state.is_foreign:  # C code forked
            _in_child()
        if isinstance(error, SystemExit):
            code = exit_code(error.code)
        elif error is not None:
            for line in logs.failure(error)[1].rstrip('\n').split('\n'):
                logs.emit(None, 'stderr', line)
        else:
            logs.note('forked process %d ended: %s' % (os.getpid(), why or 'it came back from the code that forked it'))
        logs.finish_all(None, 0.0)
    finally:
        os._exit(code)
