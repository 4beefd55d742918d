"""The loop of the supervisor: one thread waits for descriptors, timers and signals.

Must stay true: nothing called by the loop waits, and no error in a call ends the loop. There are no further threads, so that a
container without a free process number still has its supervisor, and so that forking is safe.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds enums (4 ms)
import heapq
import os
import select
import time

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
#: Reported whether asked for or not.
GONE = select.EPOLLHUP | select.EPOLLERR


class Timer:
    """A call at a time; `cancel` forgets it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def cancel(self) -> None:
        self.call = nothing


class Loop:
    """Calls functions when their descriptor, time or signal has come."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._calls: Dict[int, Callable[[int], object]] = {}
        self._timers: List[Tuple[float, int, Timer]] = []
        self._count = 0
        self._signals: Dict[int, Callable[[], object]] = {}
        self._wake, self._wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self.watch(self._wake, READ, self._on_signals)

    # ---- descriptors -------------------------------------------------------------------------------------------------
    def watch(self, fd: int, mask: int, call: Callable[[int], object]) -> None:
        """Calls with the events of a descriptor. Raises PermissionError for files that are always ready."""
        self._poll.register(fd, mask)
        self._calls[fd] = call

    def change(self, fd: int, mask: int) -> None:
        self._poll.modify(fd, mask)

    def forget(self, fd: int) -> None:
        """Before a descriptor is closed."""
        if self._calls.pop(fd, None) is not None:
            self._poll.unregister(fd)

    # ---- time --------------------------------------------------------------------------------------------------------
    def later(self, seconds: float, call: Callable[[], object]) -> Timer:
        timer = Timer(call)
        self._count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, timer))
        return timer

    # ---- signals -----------------------------------------------------------------------------------------------------
    def on_signal(self, number: int, call: Callable[[], object]) -> None:
        self._signals[number] = call
        signal.signal(number, _noted)

    def _on_signals(self, _events: int) -> None:
        try:
            numbers = os.read(self._wake, 4096)
        except BlockingIOError:
            return
        for number in set(numbers):
            call = self._signals.get(number)
            if call is not None:
                self._guarded(call)

    # ---- running -----------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Runs until the process ends."""
        while True:
            self.turn()

    def turn(self) -> None:
        """Waits for the next events, and makes their calls."""
        timers = self._timers
        wait = -1.0 if not timers else max(0.0, timers[0][0] - time.monotonic())
        for fd, events in self._poll.poll(wait):
            call = self._calls.get(fd)
            if call is not None:
                self._guarded(call, events)
        now = time.monotonic()
        while timers and timers[0][0] <= now:
            self._guarded(heapq.heappop(timers)[2].call)

    def _guarded(self, call: Callable[..., object], *values: Any) -> None:
        try:
            call(*values)
        except Exception as error:
            note('%s: %s' % (type(error).__name__, error))
            owner = getattr(getattr(call, '__self__', None), 'failed', None)
            if owner is not None:
                try:
                    owner()
                except Exception:
                    pass


def note(text: str) -> None:
    """Writes a line of the supervisor's own to the container's log, unless that would wait."""
    try:
        os.write(2, ('longshore: %s\n' % text[:2000]).encode('utf-8', 'backslashreplace'))
    except OSError:
        pass


def default_signals() -> None:
    """In a forked process: every signal as a new program expects it."""
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # KILL and STOP, and those of the C library
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def fork() -> int:
    """Forks with all signals held back; the child takes them after `default_signals`. Raises OSError."""
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, kept)
    return pid


def nothing() -> None:
    pass


def _noted(_number: int, _frame: object) -> None:
    pass
