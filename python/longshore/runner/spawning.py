"""`worker_mode` spawn: every runner process is a new interpreter, which imports the app and runs `on_start` by itself.

This mode is for libraries that neither survive a fork (a GPU's driver) nor tolerate several threads. The first process
imports no user code. Each runner process reports to it over a pipe, in frames: its phases, its output until it serves,
and that it is ready, or why it failed.
"""

from __future__ import annotations

import os
import sys
import threading

from . import forks, logs, outputs, protocol, task
from .call import prepared_or_told, started, started_or_told, watch_signals
from .connection import Link
from .protocol import FrameCutter, pack
from .server import hello_header, leave
from .serving import make_server
from .settings import SPAWNED, Settings
from .supervise import Control, Supervisor, serve_here

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, NoReturn, Optional, Set, Tuple

    from .protocol import Header
    from .supervise import Fail


class Spawner(Supervisor):
    """The first process."""

    def __init__(self, settings: Settings, control: Control, fail: Fail) -> None:
        super().__init__(settings, control, fail, 0, 'spawn', None)
        self.pipes: Dict[int, Tuple[int, FrameCutter]] = {}
        self.phases: Set[str] = set()

    def _start(self, process: int) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        pipes = outputs.Pipes()
        passed = [write, *pipes.passed()]
        for descriptor in passed:
            os.set_inheritable(descriptor, True)
        outputs_of_it = [(os.POSIX_SPAWN_DUP2, pipes.out_write, 1), (os.POSIX_SPAWN_DUP2, pipes.err_write, 2)]
        try:
            environ = dict(os.environ, **{SPAWNED: ':'.join(map(str, [process, *passed]))})
            pid = os.posix_spawn(sys.executable, [sys.executable, '-m', 'longshore.runner'], environ, file_actions=outputs_of_it)
        finally:
            os.close(write)
        for descriptor in pipes.reads:
            os.set_inheritable(descriptor, False)
        self._keep(process, pid, pipes)
        self.pipes[read] = (process, FrameCutter())

    def _reports(self) -> Iterable[int]:
        return self.pipes

    def _read_reports(self) -> None:
        self._read_pipes()
        self._tell_ready()

    def _read_pipes(self) -> None:
        for pipe, (process, cutter) in list(self.pipes.items()):
            while True:
                try:
                    data = os.read(pipe, 65536)
                except BlockingIOError:
                    break
                if not data:
                    os.close(pipe)
                    del self.pipes[pipe]
                    break
                for kind, header, body in cutter.feed(data):
                    self._on_report(process, kind, header, body)

    def _on_report(self, process: int, kind: int, header: Header, body: bytes) -> None:
        if kind == protocol.LOG:
            self.link.log('', str(header['stream']), body)
        elif kind == protocol.STARTING:
            if header['phase'] not in self.phases:
                self.phases.add(header['phase'])
                self.link.send(protocol.STARTING, header)
        elif kind == protocol.READY:
            self.on_start_ms = max(self.on_start_ms, header['onStartMs'])
            self.waiting_for_ready.discard(process)
        elif kind == protocol.FAILED:
            self._on_failed(header, body)

    def _on_ended(self, code: Optional[int], killer: Optional[int]) -> None:
        # The report of the reason arrives before the end.
        self._read_reports()
        if self.control.repeated:
            return
        # Before the container was ready, this is a failed start, as with a single process that runs `on_start`.
        self._kill_all()
        leave(self.link, 128 + killer if killer is not None else code or 1)


class Report:
    """A runner process's end of its pipe; until it serves, also the target of its prints."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        # The descriptor is never closed: a late print of a thread must not reach another file with its number.
        self.descriptor = descriptor
        self._writing = threading.Lock()
        forks.hold(lambda: (descriptor,))

    def tell(self, kind: int, header: Header, body: bytes = b'') -> None:
        with self._writing:
            self._write(pack(kind, header, body))

    def log(self, _task_id: str, stream: str, line: bytes) -> None:
        # Does not wait for the lock: its holder may be this very thread (a finaliser that prints).
        if not self._writing.acquire(False):
            os.write(1 if stream == 'stdout' else 2, line + b'\n')
            return
        try:
            self._write(pack(protocol.LOG, {'stream': stream}, line))
        finally:
            self._writing.release()

    def flush(self, _seconds: float) -> bool:
        return True

    def take_unsent_logs(self) -> List[Any]:
        return []

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.descriptor, data) :]


def serve_spawned(settings: Settings) -> NoReturn:
    """Runs a runner process, from its import to its end."""
    del os.environ[SPAWNED]
    process, descriptor, *pipes = (int(part) for part in settings.spawned.split(':'))
    outputs.received(pipes)
    report = Report(descriptor)
    logs.install(report)  # type: ignore[arg-type]
    serve_reported(settings, process, report)


def serve_reported(settings: Settings, process: int, report: Report) -> NoReturn:
    """Imports the app, runs `on_start` and serves, in a process whose output goes to `report` until it serves."""

    def failed(phase: str, text: str, trace: str) -> NoReturn:
        body = trace.encode('utf-8', 'backslashreplace')[-protocol.INLINE_BYTES :]
        report.tell(protocol.FAILED, {'phase': phase, 'error': text}, body)
        leave(report, 1)  # type: ignore[arg-type]
        raise AssertionError('leave returned')

    application, on_start_ms = started_or_told(
        lambda entering: started(settings, entering),
        lambda phase: report.tell(protocol.STARTING, {'phase': phase}),
        failed,
    )
    link = Link(settings.socket_path, dict)
    server = make_server(application, link, hello_header(settings.container_id, process, settings.slots))
    task.install()
    serve_here(server, link)
    on_start_ms += prepared_or_told(server.prepare, failed)
    if settings.reloads:
        from .loaded_files import LoadedFiles  # not paid where no change reloads

        loaded = LoadedFiles(report, os.getcwd())
        loaded.tell()
        server.on_answered = loaded.tell
    link.dial_until_connected(lambda: server.draining)
    watch_signals()
    report.tell(protocol.READY, {'onStartMs': on_start_ms})
    server.serve()
    server.exit()
    raise AssertionError('exit returned')
