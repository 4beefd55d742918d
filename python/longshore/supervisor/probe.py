"""Tries whether the entrypoint serves, for ever, until it does."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds enums (4 ms)
import os
import time

from .loop import READ, note
from .ports import Dial
from .spawning import Start, failure_of

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .loop import Loop, Timer
    from .programs import Programs
    from .settings import Probe

_MOST_HEAD_BYTES = 4096


class Probing:
    """One try after another, `interval` apart. `on_ready` is called once."""

    def __init__(self, loop: Loop, programs: Programs, probe: Probe, cwd: str, on_ready: Callable[[], object]) -> None:
        self._loop = loop
        self._programs = programs
        self._probe = probe
        self._cwd = cwd
        self._on_ready = on_ready
        self._over = False
        self._began = 0.0
        self._timer: Optional[Timer] = None
        self._dial: Optional[Dial] = None
        self._socket: Any = None
        self._head = b''
        #: The path that is asked now, and how many of this try are left behind it.
        self._at = 0
        self._left = 0
        self._pid = 0
        #: Ends when the command runs, or tells why it cannot.
        self._report = -1
        self._has_said = False
        self._try()

    def _try(self) -> None:
        self._began = time.monotonic()
        self._left = len(self._probe.paths) - 1
        self._timer = self._loop.later(self._probe.timeout, self._give_up)
        if self._probe.type == 'command':
            self._run()
        else:
            self._ask()

    def _ask(self) -> None:
        self._dial = Dial(self._loop, self._probe.port, 0, self._dialled, self._probe.timeout)

    def stop(self) -> None:
        self._over = True
        self._clean()

    def failed(self) -> None:
        self._told(False)

    def _told(self, ready: bool) -> None:
        if self._over:
            return
        self._clean()
        if ready:
            self._over = True
            self._on_ready()
            return
        wait = self._probe.interval - (time.monotonic() - self._began)
        self._timer = self._loop.later(max(wait, 0.01), self._try)

    def _give_up(self) -> None:
        # A path that never answers must not keep the others from being asked.
        self._at = (self._at + 1) % len(self._probe.paths)
        self._told(False)

    def _clean(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._dial is not None:
            self._dial.cancel()
            self._dial = None
        if self._socket is not None:
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._report >= 0:
            os.close(self._report)
            self._report = -1
        if self._pid:
            pid, self._pid = self._pid, 0
            self._programs.children[pid] = _ignore
            try:
                os.killpg(pid, signal.SIGKILL)
            except OSError:
                pass

    def _no_success(self) -> None:
        """Asks the next path within the same try."""
        self._at = (self._at + 1) % len(self._probe.paths)
        if self._left == 0:
            self._told(False)
            return
        self._left -= 1
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        self._socket = None
        self._ask()

    # ---- http and tcp ------------------------------------------------------------------------------------------------
    def _dialled(self, made: Optional[Any], _code: str, _text: str) -> None:
        self._dial = None
        if made is None or self._probe.type == 'tcp':
            if made is not None:
                made.close()
            # Not within the call that began this try.
            self._loop.later(0, lambda: self._told(made is not None))
            return
        self._socket = made
        self._head = b''
        request = 'GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: longshore-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n'
        self._loop.watch(made.fileno(), READ, self._on_head)
        made.send((request % (self._probe.paths[self._at], self._probe.port)).encode('ascii'))

    def _on_head(self, _events: int) -> None:
        try:
            data = self._socket.recv(_MOST_HEAD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b''
        self._head += data
        line, found, _rest = self._head.partition(b'\n')
        if found:
            words = line.split()
            is_http = len(words) >= 2 and words[0].startswith(b'HTTP/') and words[1].isdigit()
            if is_http and 200 <= int(words[1]) < 400:
                self._told(True)
            else:
                self._no_success()
        elif not data or len(self._head) > _MOST_HEAD_BYTES:
            self._no_success()

    # ---- command -----------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        self._start = start = Start(self._probe.command, self._cwd, self._programs.env)
        start.limits = self._programs.limits
        null = os.open('/dev/null', os.O_RDWR | os.O_CLOEXEC)
        start.files = (null, null, null)
        try:
            self._pid, self._report = start.begin()
        except OSError:
            self._loop.later(0, lambda: self._told(False))
            return
        finally:
            os.close(null)
        self._programs.children[self._pid] = self._ran

    def _ran(self, status: int) -> None:
        self._pid = 0
        report = os.read(self._report, 100)
        if report and not self._has_said:
            # The entrypoint may put the program there yet.
            self._has_said = True
            note('the readiness probe cannot be started, and is tried again: %s' % failure_of(report, self._start)[1])
        self._told(os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0)


def _ignore(_status: int) -> None:
    pass
