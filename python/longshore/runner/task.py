"""A task in a runner process, and the way of a cancellation into its handler.

A cancellation is raised in the handler's thread. In the main thread a signal does it, because only a signal also ends a
blocking call (`time.sleep`, a read). In other threads the interpreter's asynchronous exception does, which waits for
the next bytecode. Must stay true: the exception never arrives outside the handler, where it would tear a frame or lose
a lock.
"""

from __future__ import annotations

import signal
import threading
import time

from . import forks

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

#: A signal that user code hardly ever uses: real-time if available, else SIGUSR2.
CANCEL_SIGNAL = int(getattr(signal, 'SIGRTMAX', signal.SIGUSR2 + 2)) - 2


class TaskCancelled(BaseException):
    """Raised in a handler whose task was cancelled or ran out of time. Not an Exception, so that `except Exception` lets it pass."""


class Cancellation:
    """The way of a cancellation into code that runs in a thread, between `open` and `close`."""

    def __init__(self) -> None:
        #: Reason of the cancellation, `timeout` or any other; '' until it comes.
        self.cancel_reason = ''
        self.raised = False
        self._open = False
        self._thread = 0
        self._right: List[bool] = []

    def open(self) -> None:
        """Notes that the handler begins in this thread: from here a cancellation may be raised."""
        self._thread = threading.get_ident()
        self._right = [True]
        if self._thread == threading.main_thread().ident:
            _main.task = self
        self._open = True
        if self.cancel_reason:
            raise TaskCancelled(self.cancel_reason)

    def close(self) -> None:
        """
        Ends the handler: nothing is raised after this has returned. The call may itself end in TaskCancelled, when a
        cancellation of another thread was already in progress; it must then be called again.
        """
        if not self._open:
            return
        if _main.task is self:
            # Signal handlers run between bytecodes of this very thread, so one assignment suffices.
            self._open = False
            _main.task = None
            return
        try:
            self._right.pop()
        except IndexError:
            # A canceller took the right to raise first. Wait until it did, let the interpreter deliver, then take back
            # a cancellation that the handler may have swallowed.
            while not self.raised:
                time.sleep(0.0005)
            for _ in range(100):
                time.sleep(0)
            _set_async_exception(self._thread, False)
        self._open = False

    def cancel(self, reason: str) -> None:
        """Cancels the handler, from the thread that reads the connection."""
        self.cancel_reason = self.cancel_reason or reason or 'cancelled'
        self.press()

    def press(self) -> None:
        """Raises the cancellation if the handler runs and it was not raised yet. A signal can miss a blocking call that
        is about to begin, so the watcher of the task calls this again until the task is over."""
        if not self._open or self.raised:
            return
        if _main.task is self:
            signal.pthread_kill(self._thread, CANCEL_SIGNAL)
            return
        try:
            self._right.pop()
        except IndexError:
            return
        _set_async_exception(self._thread, True)
        self.raised = True

    def end(self) -> None:
        """Closes, also when the cancellation arrives in `close` itself."""
        try:
            self.close()
        except TaskCancelled:
            self.close()


class Task(Cancellation):
    """An attempt that the agent handed over."""

    def __init__(self, task_id: str, token: str, query: Optional[Dict[str, Any]], timeout_ms: int) -> None:
        super().__init__()
        self.task_id = task_id
        self.token = token
        self.query = query
        self.timeout_ms = timeout_ms
        self.body = b''
        self.parts: List[bytes] = []
        self.size = 0
        self.began = 0.0
        self.chunks = 0
        #: Printed output without a line end yet, by stream and thread.
        self.partial: Dict[Any, str] = {}
        self.sink: Any = None
        #: Set once its output is complete: a thread that goes on prints for no task.
        self.is_over = False
        #: Whether a frame of its own reports the start.
        self.announce = True
        self.coroutine: Any = None
        #: Whether bytes travel on a connection of the task's own (`streams`).
        self.streamed = False
        #: The running call of an ASGI application.
        self.call: Any = None

    @property
    def key(self) -> Any:
        return (self.task_id, self.token)

    @property
    def cancel_outcome(self) -> str:
        return 'timeout' if self.cancel_reason == 'timeout' else 'cancelled'


class _Main:
    """State for the cancel signal's handler: the main thread's task, and whether that thread runs our own code."""

    def __init__(self) -> None:
        self.task: Optional[Cancellation] = None
        self.ident: Optional[int] = None
        self.shielded = 0
        self.deferred = False


_main = _Main()


def shield() -> bool:
    """Keeps a cancellation out of the main thread while our own code runs inside a handler (a print); True: call
    `unshield`."""
    if threading.get_ident() != _main.ident:
        return False
    _main.shielded += 1
    return True


def unshield() -> None:
    """Ends `shield`; raises the cancellation that came meanwhile."""
    _main.shielded -= 1
    if _main.deferred and not _main.shielded:
        _main.deferred = False
        _on_signal(0, None)


def install() -> None:
    """Takes the cancel signal, in the main thread of a process that runs handlers there."""
    _main.ident = threading.main_thread().ident
    _main.task = None
    _main.shielded = 0
    _main.deferred = False
    signal.signal(CANCEL_SIGNAL, _on_signal)
    forks.follow(_forget)
    # Some parents start this process with all signals blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {CANCEL_SIGNAL})


def _forget() -> None:
    """In a process that the app forked: nobody cancels it."""
    _main.task = None
    signal.signal(CANCEL_SIGNAL, signal.SIG_DFL)


def _on_signal(_number: int, _frame: Any) -> None:
    task = _main.task
    if task is None or not task._open or not task.cancel_reason or task.raised:
        return
    if _main.shielded:
        _main.deferred = True
        return
    task.raised = True
    raise TaskCancelled(task.cancel_reason)


def _set_async_exception(thread: int, wanted: bool) -> None:
    import ctypes  # only a cancelled task in a thread pays for it

    value = ctypes.py_object(TaskCancelled) if wanted else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)
