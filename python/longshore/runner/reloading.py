"""A development server's first process: it imports no user code, and forks one runner process that does.

A change of the files ends that process, and the next one imports them anew. A datagram on an abstract socket of the
container's network asks for it (`name_of`); the answer tells how the start went. A start that fails is shown and does
not end the container: calls get its error until the next change.
"""

from __future__ import annotations

import _socket as socket  # `socket` adds selectors and enums (3 ms)
import importlib
import json
import os
import signal
import time

from . import logs, protocol, task
from .call import error_body
from .connection import Link
from .protocol import FrameCutter
from .reload_name import name_of
from .server import Server, hello_header
from .serving import AsyncServer
from .spawning import Report, Spawner, serve_reported
from .supervise import Control, settled_thread_count

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional

    from .protocol import Header
    from .settings import Settings
    from .supervise import Child, Fail
    from .task import Task

#: Time for running calls to end before the process that serves them does.
GRACE_SECONDS = 10.0
#: Bound on those who wait for the outcome of a start; further ones get none.
_MOST_ASKING = 64
_MOST_TEXT = 4000


class Reloader(Spawner):
    """The first process. One runner process serves; its number is 0."""

    def __init__(self, settings: Settings, control: Control, fail: Fail) -> None:
        settings.workers = 1
        super().__init__(settings, control, fail)
        self.asking: List[Any] = []
        #: Error and traceback of the last start; empty: it went well.
        self.broken = ('', '')
        #: Whether the runner process has said that it serves.
        self.serves = False
        #: Whether the runner process must make room for the next one.
        self.makes_room = False
        #: When it is killed, if calls still run by then; 0: it is not.
        self.kill_at = 0.0
        self.began = time.monotonic()
        self.told_once = False
        if settings.stub_type.startswith('asgi'):
            from . import asgi  # noqa: F401  (here, so that every start is spared its import)
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.door.setblocking(False)
        self.door.bind(name_of(settings.container_id))

    # ---- starting ----------------------------------------------------------------------------------------------------
    def _start(self, process: int) -> None:
        if settled_thread_count() > 1:
            raise AssertionError('the first process of a development server has threads')
        self.serves = False
        if not self.broken[0]:
            self.began = time.monotonic()
        self.link.flush(1.0)
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._fork_to(process, lambda: self._become(read, Report(write)))
        os.close(write)
        self.pipes[read] = (process, FrameCutter())

    def _become(self, read: int, report: Report) -> None:
        """The forked process, to its end."""
        self._forget_parent(self.report_write, read, *self.pipes)
        self.door.close()
        importlib.invalidate_caches()
        logs.install(report)  # type: ignore[arg-type]
        if self.broken[0]:
            _serve_broken(self.settings, report, self.broken[0])
        serve_reported(self.settings, 0, report)

    # ---- what the runner process reports -----------------------------------------------------------------------------
    def _on_report(self, process: int, kind: int, header: Header, body: bytes) -> None:
        super()._on_report(process, kind, header, body)
        if kind == protocol.READY:
            self.serves = True
            if not self.makes_room:
                self._tell_outcome()

    def _on_failed(self, header: Header, body: bytes) -> None:
        trace = body.decode('utf-8', 'replace')
        self._is_broken(header['error'], trace)

    def _is_broken(self, text: str, trace: str) -> None:
        if self.makes_room:
            return  # a newer change has come: its start counts
        self.broken = (text or 'the start failed', trace)
        for line in (trace or text).rstrip('\n').split('\n'):
            logs.emit(None, 'stderr', line)
        logs.note('the app could not be loaded; waiting for the next change')

    def _on_ended(self, code: Optional[int], killer: Optional[int]) -> None:
        self._read_reports()
        if not self.serves and not self.broken[0] and not self.makes_room:
            how = 'signal %d' % killer if killer is not None else 'code %s' % code
            self._is_broken('the process ended with %s while it started' % how, '')

    def _restart_delay(self, process: int, child: Child) -> float:
        made_room, self.makes_room, self.kill_at = self.makes_room, False, 0.0
        if made_room or (self.broken[0] and not self.serves):
            return 0.0
        return super()._restart_delay(process, child)

    def _says_restart(self) -> bool:
        return self.serves and not self.makes_room

    # ---- reloading ---------------------------------------------------------------------------------------------------
    def _reports(self) -> Iterable[int]:
        return [*self.pipes, self.door.fileno()]

    def _read_reports(self) -> None:
        super()._read_reports()
        self._read_door()

    def _read_door(self) -> None:
        asked = False
        while True:
            try:
                _, sender = self.door.recvfrom(4096)
            except OSError:
                break
            asked = True
            if sender and len(self.asking) < _MOST_ASKING:
                self.asking.append(sender)
        if asked and self.deadline is None:
            self._reload()

    def _reload(self) -> None:
        child = self.children.get(0)
        is_in_use, self.broken = self.serves and not self.broken[0], ('', '')
        self.began = time.monotonic()
        if child is None:
            self.due[0] = self.began
            return
        self.makes_room = True
        if is_in_use:
            # Running calls may end first.
            self.kill_at = self.kill_at or self.began + GRACE_SECONDS
        os.kill(child.pid, signal.SIGTERM if is_in_use else signal.SIGKILL)

    def _wait_until(self) -> Iterable[float]:
        return [self.kill_at] if self.kill_at else []

    def _leave_if_over(self) -> None:
        if self.kill_at and self.deadline is None and time.monotonic() >= self.kill_at:
            child = self.children.get(0)
            if child is not None:
                logs.note('a call outlasted the %d s that a reload waits, and was ended' % GRACE_SECONDS)
                os.kill(child.pid, signal.SIGKILL)
            self.kill_at = time.monotonic() + 1.0
        super()._leave_if_over()

    def _tell_outcome(self) -> None:
        error, trace = self.broken
        took = int((time.monotonic() - self.began) * 1000)
        if not error and self.told_once:
            logs.note('reloaded in %d ms' % took)
        self.told_once = True
        value = {'error': error[:_MOST_TEXT], 'trace': trace[-_MOST_TEXT:], 'durationMs': took}
        answer = json.dumps(value).encode('ascii')
        for sender in self.asking:
            try:
                self.door.sendto(answer, sender)
            except OSError:
                pass  # who asked has left
        self.asking = []


class _BrokenServer(AsyncServer):
    """Answers every call, streamed ones too, with the error of the start."""

    text = ''

    @property
    def takes_streams(self) -> bool:  # type: ignore[override]
        return self._streamed

    _streamed = False

    def on_frame(self, kind: int, header: Header, body: bytes) -> None:
        if kind == protocol.RUN:
            self._streamed = header.get('stream') is True
        super().on_frame(kind, header, body)

    def accept(self, task: Task) -> None:
        self._answer(task, 'error', error_body(self.text))


class _NoApplication:
    """Stands where a server wants the app, and there is none."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings


def _serve_broken(settings: Settings, report: Report, error: str) -> None:
    link = Link(settings.socket_path, dict)
    hello: Dict[str, Any] = hello_header(settings.container_id, 0, settings.slots)
    server: Server = _BrokenServer(_NoApplication(settings), link, hello)  # type: ignore[arg-type]
    server.text = 'the app could not be loaded: %s' % error  # type: ignore[attr-defined]
    task.install()
    logs.retarget(link, lambda: None)
    link.dial_until_connected(lambda: server.draining)
    report.tell(protocol.READY, {'onStartMs': 0})
    server.serve()
    server.exit()

