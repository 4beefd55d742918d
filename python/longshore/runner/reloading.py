"""A development server's first process: it imports no user code, and forks the runner processes that do.

A change of the files retires the process that serves, and another process imports them anew. The agent gives a retired
process no further call. Its running calls have 10 s, and calls that it has not begun go back and reach the next
process. Processes have numbers in rotation, because several of them exist at once. With a GPU the next process waits
for the end of the one before: its model would not fit beside the old one.

A datagram on an abstract socket of the container's network asks for a reload (`name_of`) and names the changed files
(`reload_rules`). The answer tells how the start went. A start that fails is shown and does not end the container: calls
get its error until the next change.
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
from .protocol import FrameCutter, pack
from .reload_name import name_of
from .reload_rules import reloading_path
from .server import Server, hello_header
from .serving import AsyncServer
from .spawning import Report, Spawner, serve_reported
from .supervise import Child, Control, settled_thread_count

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

    from .protocol import Header
    from .settings import Settings
    from .supervise import Fail
    from .task import Task

#: Time for running calls of a retired process.
GRACE_SECONDS = 10.0
#: Time for a process to end by itself behind that: it closes WebSockets, and runs an application's shutdown.
_END_SECONDS = 3.0
#: The agent takes processes of these numbers: one that serves, and retired ones (`MOST_RETIRED` there).
_NUMBERS = 9
#: Least time between two forks, so that a flood of changes stays within the agent's budget of starts.
_LEAST_BETWEEN = 0.15
#: Bound on those who wait for the outcome of a start; further ones get none.
_MOST_ASKING = 64
_MOST_ASKED_BYTES = 128 * 1024
_MOST_TEXT = 4000


class Retired:
    """A process that ends its calls and gets no other."""

    def __init__(self, number: int, grace: float) -> None:
        #: Repeated after each hello: an agent that was restarted does not know of it.
        self.frame = pack(protocol.RETIRE, {'process': number, 'graceMs': int(grace * 1000)})
        self.kill_at = time.monotonic() + grace + (_END_SECONDS if grace else 0.0)
        #: Whether it was given time for its calls.
        self.had_grace = grace > 0


class Reloader(Spawner):
    """The first process."""

    def __init__(self, settings: Settings, control: Control, fail: Fail) -> None:
        settings.workers = 1
        super().__init__(settings, control, fail)
        self.mode = 'reload'
        self.due.clear()
        #: When the next process is to be started; None: none is wanted.
        self.wanted: Optional[float] = 0.0
        self.last_number = -1
        self.last_start = 0.0
        #: The process that starts or serves; -1: none.
        self.current = -1
        #: Whether it has imported the app, and the agent may know it.
        self.has_loaded = False
        #: Whether it has said that it serves.
        self.serves = False
        self.retired: Dict[int, Retired] = {}
        #: Files of the modules that it has imported, relative to the app's folder.
        self.files: Set[str] = set()
        #: Who waits for the outcome of a start.
        self.asking: List[Any] = []
        #: The same for changes that matter only if the start fails, with the path.
        self.unsure: List[Tuple[Any, str]] = []
        #: Error and traceback of the last start; empty: it went well.
        self.broken = ('', '')
        #: Whether the process that starts or serves only answers with that error.
        self.tells_error = False
        #: The changed file for which the app is loaded anew.
        self.cause = ''
        self.began = time.monotonic()
        self.told_once = False
        if settings.stub_type.startswith('asgi'):
            from . import asgi  # noqa: F401  (here, so that every start is spared its import)
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.door.setblocking(False)
        self.door.bind(name_of(settings.container_id))
        self.link.greeting = lambda: [*control.repeated, *(one.frame for one in self.retired.values())]

    # ---- starting ----------------------------------------------------------------------------------------------------
    def _start_due(self) -> None:
        if self.wanted is None or self.deadline is not None or time.monotonic() < self.wanted or not self._has_room():
            return
        self.wanted = None
        self._start(self._free_number())

    def _has_room(self) -> bool:
        return not self.children if self.settings.gpu else self._free_number() >= 0

    def _free_number(self) -> int:
        """A number that no process has, the one that was free for the longest; -1: there is none. The agent takes several
        once it knows the mode, with `ready`."""
        if not self.control.repeated:
            return -1 if self.children else 0
        numbers = ((self.last_number + ahead) % _NUMBERS for ahead in range(1, _NUMBERS + 1))
        return next((number for number in numbers if number not in self.children), -1)

    def _start(self, process: int) -> None:
        if settled_thread_count() > 1:
            raise AssertionError('the first process of a development server has threads')
        self.current = self.last_number = process
        self.has_loaded = self.serves = False
        self.tells_error = bool(self.broken[0])
        self.last_start = time.monotonic()
        self.link.flush(1.0)
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._fork_to(process, lambda: self._become(process, read, Report(write)))
        os.close(write)
        self.pipes[read] = (process, FrameCutter())

    def _become(self, process: int, read: int, report: Report) -> None:
        """The forked process, to its end."""
        self._forget_parent(self.report_write, read, *self.pipes)
        self.door.close()
        importlib.invalidate_caches()
        logs.install(report)  # type: ignore[arg-type]
        if self.tells_error:
            _serve_broken(self.settings, process, report, self.broken[0])
        serve_reported(self.settings, process, report)

    # ---- what the runner processes report ----------------------------------------------------------------------------
    def _on_report(self, process: int, kind: int, header: Header, body: bytes) -> None:
        if kind == protocol.LOG:
            super()._on_report(process, kind, header, body)
        elif process != self.current:
            return  # a newer change has come: its start counts
        elif kind == protocol.LOADED:
            if not self.has_loaded:
                self.files.clear()
            self.has_loaded = True
            self.files.update(json.loads(body))
        else:
            super()._on_report(process, kind, header, body)
            if kind == protocol.READY:
                self.serves = True
                self.waiting_for_ready.clear()
                self._tell_outcome()

    def _on_failed(self, header: Header, body: bytes) -> None:
        self._is_broken(header['error'], body.decode('utf-8', 'replace'))

    def _is_broken(self, text: str, trace: str) -> None:
        self.broken = (text or 'the start failed', trace)
        for line in (trace or text).rstrip('\n').split('\n'):
            logs.emit(None, 'stderr', line)
        if self.unsure:
            # These changes came during the start, which may have lacked them.
            path = self.unsure[0][1]
            self.asking += [sender for sender, _ in self.unsure]
            self.unsure = []
            self._reload(path)
        elif not any(self.asking):
            logs.note('the app could not be loaded; waiting for the next change')

    def _follow(self, process: int, child: Child, code: Optional[int], killer: Optional[int]) -> None:
        # The report of a failed start arrives before the end.
        self._read_pipes()
        retired = self.retired.pop(process, None)
        if retired is not None:
            return  # a call that it had not ended fails in the agent, which says why in the call's log
        delay = 0.0
        if self.serves:
            self._note_restart(process, child, code, killer)
            delay = self._restart_delay(0, child)
        elif self.tells_error:
            delay = self._restart_delay(0, child)
        elif not self.broken[0]:
            how = 'signal %d' % killer if killer is not None else 'code %s' % code
            self._is_broken('the process ended with %s while it started' % how, '')
        self.current, self.serves = -1, False
        self.wanted = time.monotonic() + delay

    # ---- reloading ---------------------------------------------------------------------------------------------------
    def _reports(self) -> Iterable[int]:
        return [*self.pipes, self.door.fileno()]

    def _read_reports(self) -> None:
        super()._read_reports()
        self._read_door()

    def _read_door(self) -> None:
        cause: Optional[str] = None
        while True:
            try:
                asked, sender = self.door.recvfrom(_MOST_ASKED_BYTES)
            except OSError:
                break
            if self.deadline is not None:
                continue
            paths = _paths_of(asked)
            path = '' if paths is None else reloading_path(paths, self.files, bool(self.broken[0]))
            if paths is None or path:
                cause = cause or path
                self._wait_for_outcome(self.asking, sender)
            elif self.serves:
                self._tell(sender, {'error': '', 'trace': '', 'durationMs': 0, 'unchanged': True})
            else:
                self._wait_for_outcome(self.unsure, (sender, paths[0] if paths else ''))
        if cause is not None:
            self._reload(cause)

    def _wait_for_outcome(self, waiting: List[Any], who: Any) -> None:
        if len(self.asking) + len(self.unsure) < _MOST_ASKING:
            waiting.append(who)

    def _reload(self, cause: str) -> None:
        self.broken, self.cause = ('', ''), cause
        self.began = time.monotonic()
        self._retire()
        self.wanted = max(self.began, self.last_start + _LEAST_BETWEEN)
        if not self.settings.gpu and self._free_number() < 0:
            oldest = min(self.retired.values(), key=lambda one: one.kill_at)
            oldest.kill_at = self.began

    def _retire(self) -> None:
        """Retires the process that starts or serves. The agent tells it to end its calls, behind the last one that it
        got. A process that still starts has none."""
        number, self.current = self.current, -1
        child = self.children.get(number)
        if child is None:
            return
        retired = self.retired[number] = Retired(number, GRACE_SECONDS if self.has_loaded else 0.0)
        self.link.send_packed(retired.frame)
        self.serves = False
        if not retired.had_grace:
            os.kill(child.pid, signal.SIGKILL)

    def _wait_until(self) -> Iterable[float]:
        times = [retired.kill_at for retired in self.retired.values()]
        # The end of a process that another one waits for is a signal.
        return [*times, self.wanted] if self.wanted is not None and self._has_room() else times

    def _leave_if_over(self) -> None:
        now = time.monotonic()
        for number, retired in self.retired.items():
            child = self.children.get(number)
            if child is not None and now >= retired.kill_at:
                os.kill(child.pid, signal.SIGKILL)
                retired.kill_at = now + 1.0
        super()._leave_if_over()

    # ---- the outcome -------------------------------------------------------------------------------------------------
    def _tell_outcome(self) -> None:
        error, trace = self.broken
        took = int((time.monotonic() - self.began) * 1000)
        # Who asked, such as `longshore serve`, tells it, with the files.
        if not error and self.told_once and not any(self.asking):
            logs.note('reloaded in %d ms' % took)
        self.told_once = True
        value = {'error': error[:_MOST_TEXT], 'trace': trace[-_MOST_TEXT:], 'durationMs': took, 'path': self.cause[:_MOST_TEXT]}
        for sender in self.asking:
            self._tell(sender, value)
        for sender, _ in self.unsure:
            self._tell(sender, {'error': '', 'trace': '', 'durationMs': 0, 'unchanged': True})
        self.asking, self.unsure = [], []

    def _tell(self, sender: Any, value: Dict[str, Any]) -> None:
        if not sender:
            return
        try:
            self.door.sendto(json.dumps(value).encode('ascii'), sender)
        except OSError:
            pass  # who asked has left


def _paths_of(asked: bytes) -> Optional[List[str]]:
    """The changed files that a datagram names; None: any may have changed."""
    try:
        paths = json.loads(asked)['paths']
        return [str(path) for path in paths] if isinstance(paths, list) else None
    except (ValueError, LookupError, TypeError):
        return None


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


def _serve_broken(settings: Settings, process: int, report: Report, error: str) -> None:
    link = Link(settings.socket_path, dict)
    hello: Dict[str, Any] = hello_header(settings.container_id, process, settings.slots)
    server: Server = _BrokenServer(_NoApplication(settings), link, hello)  # type: ignore[arg-type]
    server.text = 'the app could not be loaded: %s' % error  # type: ignore[attr-defined]
    task.install()
    logs.retarget(link, lambda: None)
    report.tell(protocol.LOADED, {}, b'[]')
    link.dial_until_connected(lambda: server.draining)
    report.tell(protocol.READY, {'onStartMs': 0})
    server.serve()
    server.exit()
