"""The first process of a container, below its init: it keeps the output of the runner, which is its only child, and ends as that does.

It reads what the runner does not (`outputs`), and writes it to the engine's log, behind the id of the task. It passes signals
on. It imports nothing of the app, and little of the runner.
"""

from __future__ import annotations

import _signal as signal  # `signal` itself loads `enum`, and this is before the first connection
import os
import select
import time

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, List, NoReturn, Optional, Tuple

    from . import outputs

    Ends = Tuple[int, int, int, int, int]

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: Bytes of a line behind a task's id: the agent cuts longer ones, whose later pieces would have none.
_PIECE_BYTES = 15 * 1024
#: The modules that read output are loaded when there is some, or so long after the start, which they do not hold up.
_IDLE_MS = 1000

_passed: List[int] = []


def made() -> Ends:
    """The pipes of a process that is about to be forked or spawned: what is read of its output and its errors, what is written,
    and a file for `outputs.Page`."""
    out, out_write = os.pipe()
    err, err_write = os.pipe()
    for descriptor in (out, err):
        os.set_blocking(descriptor, False)
    return out, err, out_write, err_write, os.memfd_create('longshore-output')


def keep_output() -> None:
    """In a container's first process, or the only one of its init: returns in the runner, which is forked here. Called before
    anything else is loaded: the two processes share the container's processor."""
    if 1 not in (os.getpid(), os.getppid()):
        return
    ends = made()
    pid = os.fork()
    if pid:
        Keeper(pid, ends).run()
    out, err, out_write, err_write, page = ends
    os.dup2(out_write, 1)
    os.dup2(err_write, 2)
    os.close(out_write)
    os.close(err_write)
    _passed.extend((out, err, page))


def passed() -> List[int]:
    """What the runner hands to `outputs.received`; empty: nobody keeps its output."""
    return _passed


class Keeper:
    def __init__(self, pid: int, ends: Ends) -> None:
        self._pid = pid
        self._ends = ends
        self._made: Optional[outputs.Kept] = None
        self._wake, wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)

    @property
    def _kept(self) -> outputs.Kept:
        if self._made is None:
            from . import outputs

            self._made = outputs.Kept(outputs.Pipes(self._ends), _write)
        return self._made

    def _pass_on(self, number: int, _frame: Any) -> None:
        try:
            os.kill(self._pid, number)
        except ProcessLookupError:
            pass

    def run(self) -> NoReturn:
        while True:
            self._reap()
            now = time.monotonic()
            poller = select.poll()
            for descriptor in (self._wake, *(self._ends[:2] if self._made is None else self._made.waits_for())):
                poller.register(descriptor, select.POLLIN)
            look_at = 0.0 if self._made is None else self._made.look_at
            idle_ms = _IDLE_MS if self._made is None else None
            readable = [one for one, _ in poller.poll(max(0.0, look_at - now) * 1000 + 1 if look_at else idle_ms)]
            if self._wake in readable:
                os.read(self._wake, 4096)
            if self._made is not None or readable != [self._wake]:
                self._kept.look(readable, time.monotonic())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                os._exit(1)
            if pid == 0:
                return
            if pid == self._pid:
                self._kept.left()
                os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _write(task_id: str, stream: str, line: bytes) -> None:
    mark = b'\0task %s\0' % task_id.encode() if task_id else b''
    for at in range(0, max(len(line), 1), _PIECE_BYTES):
        data = mark + line[at : at + _PIECE_BYTES] + b'\n'
        try:
            while data:
                data = data[os.write(1 if stream == 'stdout' else 2, data) :]
        except OSError:
            return
