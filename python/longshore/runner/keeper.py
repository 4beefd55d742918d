"""The first process of a container, below its init: it keeps the output of the runner, which is its only child, and ends as that does.

It reads what the runner does not (`outputs`), and writes it to the engine's log, behind the id of the task. It passes signals
on. It imports nothing of the app, and little of the runner.
"""

from __future__ import annotations

import os
import select
import signal
import time

from . import outputs

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, NoReturn

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
#: Bytes of a line behind a task's id: the agent cuts longer ones, whose later pieces would have none.
_PIECE_BYTES = 15 * 1024


def keep_output() -> None:
    """In a container's first process, or the only one of its init: returns in the runner, which is forked here."""
    if 1 not in (os.getpid(), os.getppid()):
        return
    pipes = outputs.Pipes()
    pid = os.fork()
    if pid:
        Keeper(pid, outputs.Kept(pipes, _write)).run()
    pipes.use()


class Keeper:
    def __init__(self, pid: int, kept: outputs.Kept) -> None:
        self._pid = pid
        self._kept = kept
        self._wake, wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)

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
            for descriptor in (self._wake, *self._kept.waits_for()):
                poller.register(descriptor, select.POLLIN)
            look_at = self._kept.look_at
            readable = [one for one, _ in poller.poll(max(0.0, look_at - now) * 1000 + 1 if look_at else None)]
            if self._wake in readable:
                os.read(self._wake, 4096)
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
