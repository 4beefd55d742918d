"""The first process of a container with several runner processes: starts, restarts and ends them.

This process never has a second thread, because only then may it fork again: it sleeps in one `poll` over the control
connection, the signals and the pipe on which runner processes report. `on_start` ran before, and nothing here repeats
it. Processes with their own `on_start` are in `spawning`.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import time

from . import forks, logs, outputs, protocol, task
from .call import Application, prepared_or_told, watch_signals
from .connection import Link
from .protocol import FrameCutter, pack
from .server import TERM_SECONDS, Server, hello_header, leave
from .serving import InlineServer, PoolServer, make_server

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, NoReturn, Optional

    from .protocol import Header
    from .settings import Settings

    Fail = Callable[[Link, str, str, str], NoReturn]

#: Age up to which a runner process that dies without having had a task is restarted more slowly each time.
_YOUNG_SECONDS = 1.0
_MAX_RESTART_DELAY = 5.0
#: Bound on a child's report: a pipe takes 4096 bytes as one piece.
_REPORT_BYTES = 4096


def thread_count() -> int:
    """Number of threads of this process, including those of C libraries: `threading` does not know them, and a fork
    would lose them."""
    try:
        return len(os.listdir('/proc/self/task'))
    except OSError:
        return threading.active_count()


def settled_thread_count() -> int:
    """Counts threads again after a moment, in which joined threads leave the kernel's list too."""
    for _ in range(5):
        if thread_count() == 1:
            return 1
        time.sleep(0.01)
    return thread_count()


class Control:
    """The first process's side of its connection: a hello without slots, and the frames that follow each hello."""

    def __init__(self, link: Link, hello: Header) -> None:
        self.link = link
        self.repeated: List[bytes] = []
        link.hello = lambda: dict(hello, holding=[])
        link.greeting = lambda: self.repeated

    def ready(self, mode: str, slots: int, on_start_ms: int) -> None:
        frame = pack(protocol.READY, {'onStartMs': on_start_ms, 'mode': mode, 'slots': slots})
        self.repeated.append(frame)
        self.link.send_packed(frame)


class Child:
    def __init__(self, pid: int, kept: outputs.Kept) -> None:
        self.pid = pid
        self.kept = kept
        self.started = time.monotonic()


class Supervisor:
    """Runner processes (or threads) 0 to `workers` - 1. `fail` ends the first process with a start that failed by the
    user's cause."""

    def __init__(
        self,
        settings: Settings,
        control: Control,
        fail: Fail,
        on_start_ms: int,
        mode: str,
        application: Optional[Application],
    ) -> None:
        self.settings = settings
        self.fail = fail
        self.application = application
        self.control = control
        self.link = control.link
        self.on_start_ms = on_start_ms
        self.mode = mode
        self.threads = mode == 'thread'
        self.workers = settings.workers
        self.children: Dict[int, Child] = {}
        #: Output of these, and of children that they left behind.
        self.kept: List[outputs.Kept] = []
        self.servers: List[Server] = []
        self.due: Dict[int, float] = {process: 0.0 for process in range(self.workers)}
        self.delays: Dict[int, float] = {}
        self.waiting_for_ready = set(range(self.workers))
        self.deadline: Optional[float] = None
        self.killed = False
        self.report_read, self.report_write = os.pipe()
        self.reports = FrameCutter()
        self.wake_read, self.wake_write = os.pipe()
        for descriptor in (self.report_read, self.wake_read, self.wake_write):
            os.set_blocking(descriptor, False)
        forks.hold(lambda: (self.report_read, self.report_write, self.wake_read, self.wake_write))

    def run(self) -> None:
        """Runs until told to leave; never returns."""
        signal.signal(signal.SIGCHLD, _nothing)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        if self.mode == 'fork':
            # Objects made so far stay shared with the children: a collection must not write into them.
            gc.freeze()
        elif self.threads:
            logs.capture_output()
        while True:
            self._start_due()
            self._wait()
            self._reap()
            self._read_control()
            self._read_reports()
            self._leave_if_over()

    # ---- starting ----------------------------------------------------------------------------------------------------
    def _start_due(self) -> None:
        now = time.monotonic()
        for process in [process for process, at in self.due.items() if at <= now]:
            if self.deadline is not None:
                self.due.clear()
                return
            del self.due[process]
            self._start(process)

    def _start(self, process: int) -> None:
        if self.threads:
            self._start_thread(process)
        else:
            self._fork(process)

    def _start_thread(self, process: int) -> None:
        threading.Thread(target=self._serve, args=(process,), name='longshore-process-%d' % process, daemon=True).start()

    def _fork(self, process: int) -> None:
        if settled_thread_count() > 1:
            logs.note('a thread was started after on_start: runner process %d cannot be forked again' % process)
            leave(self.link, 1)
        self.link.flush(1.0)
        self._fork_to(process, lambda: self._become_child(process))

    def _fork_to(self, process: int, become: Callable[[], object]) -> None:
        """Forks. The child runs `become`, which may end it, and ends behind it."""
        pipes = outputs.Pipes()
        pid = forks.fork()
        if pid:
            self._keep(process, pid, pipes)
            return
        code = 70
        try:
            pipes.use()
            for kept in self.kept:
                kept.forget()
            become()
            code = 0
        except BaseException as error:
            try:
                logs.note(logs.failure(error)[1])
            except BaseException:
                pass
        finally:
            os._exit(code)

    def _keep(self, process: int, pid: int, pipes: outputs.Pipes) -> None:
        kept = outputs.Kept(pipes, lambda task_id, stream, line: self.link.log(task_id, stream, line))
        self.kept.append(kept)
        self.children[process] = Child(pid, kept)

    def _forget_parent(self, *descriptors: int) -> None:
        """Gives up, in the child, what only the parent has a use for; these descriptors, too."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Until the child serves, it has nothing to finish.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # The parent owns the connection: a shutdown here would end it for both.
        self.link.close()
        self.link.take_unsent_logs()
        for descriptor in (self.report_read, self.wake_read, self.wake_write, *descriptors):
            os.close(descriptor)
        logs.forget_partial_lines()

    def _become_child(self, process: int) -> None:
        self._forget_parent()
        forks.hold(lambda: (self.report_write,))
        task.install()
        self._serve(process)

    def _serve(self, process: int) -> None:
        """Opens a connection of its own, in the child or in a thread, and then serves tasks."""
        settings = self.settings
        assert self.application is not None
        link = Link(settings.socket_path, dict)
        server = make_server(self.application, link, hello_header(settings.container_id, process, settings.slots))
        self.servers.append(server)
        if not self.threads:
            serve_here(server, link)
        prepared_or_told(server.prepare, lambda phase, text, trace: self._tell_failure(link, phase, text, trace))
        link.dial_until_connected(lambda: server.draining)
        watch_signals()
        os.write(self.report_write, pack(protocol.READY, {'process': process}))
        server.serve()
        if self.threads:
            server.await_acknowledgements()
        else:
            server.exit()

    def _tell_failure(self, link: Link, phase: str, text: str, trace: str) -> NoReturn:
        """Reports from a child that its start failed, in one write that the pipe does not tear."""
        report = pack(protocol.FAILED, {'phase': phase, 'error': text[:200]})
        body = trace.encode('utf-8', 'backslashreplace')[len(report) - _REPORT_BYTES :]
        os.write(self.report_write, pack(protocol.FAILED, {'phase': phase, 'error': text[:200]}, body))
        leave(link, 1)
        raise AssertionError('leave returned')

    # ---- watching ----------------------------------------------------------------------------------------------------
    def _wait(self) -> None:
        poller = select.poll()
        for descriptor in self._reports():
            poller.register(descriptor, select.POLLIN)
        poller.register(self.wake_read, select.POLLIN)
        now = time.monotonic()
        until = [*self.due.values(), *self._wait_until()]
        if self.link.connected:
            poller.register(self.link.fileno(), select.POLLIN | (select.POLLOUT if self.link.has_waiting else 0))
        else:
            until.append(self.link.next_dial_at)
        if self.deadline is not None:
            until.append(min(self.deadline, now + (0.05 if self.threads else 0.5)))
        for kept in self.kept:
            for descriptor in kept.waits_for():
                poller.register(descriptor, select.POLLIN)
            if kept.look_at:
                until.append(kept.look_at)
        events = poller.poll(max(0.0, min(until) - now) * 1000 + 1 if until else None)
        readable, now = {descriptor for descriptor, _ in events}, time.monotonic()
        for kept in self.kept:
            kept.look(readable, now)
        self.kept = [kept for kept in self.kept if not kept.is_over]
        try:
            os.read(self.wake_read, 4096)
        except BlockingIOError:
            pass

    def _reports(self) -> Iterable[int]:
        """Descriptors on which runner processes report that they serve."""
        return (self.report_read,)

    def _wait_until(self) -> Iterable[float]:
        """Further times at which there is something to do."""
        return ()

    def _reap(self) -> None:
        # Each child is awaited by its number: user code awaits the processes that it started.
        for process, child in list(self.children.items()):
            try:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
            except ChildProcessError:  # user code waited for everybody
                pid, status = child.pid, 0
            if pid == 0:
                continue
            del self.children[process]
            child.kept.left()
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            self.link.send(protocol.EXITED, {'process': process, 'pid': pid, 'code': code, 'signal': killer})
            if self.deadline is None:
                self._follow(process, child, code, killer)

    def _follow(self, process: int, child: Child, code: Optional[int], killer: Optional[int]) -> None:
        """Called when a runner process has ended by itself: it is started again."""
        self._on_ended(code, killer)
        self._note_restart(process, child, code, killer)
        self.due[process] = time.monotonic() + self._restart_delay(process, child)

    @staticmethod
    def _note_restart(process: int, child: Child, code: Optional[int], killer: Optional[int]) -> None:
        how = 'signal %d' % killer if killer is not None else 'code %s' % code
        logs.note('runner process %d (pid %d) ended with %s; starting it again' % (process, child.pid, how))

    def _on_ended(self, code: Optional[int], killer: Optional[int]) -> None:
        """Called when a runner process has ended by itself; it is restarted when this returns."""
        # The report of a failed start arrives before the end.
        self._read_reports()

    def _restart_delay(self, process: int, child: Child) -> float:
        # An end in a task is no failed start (decision 0345).
        if child.kept.has_begun or time.monotonic() - child.started > _YOUNG_SECONDS:
            self.delays.pop(process, None)
            return 0.0
        delay = self.delays.get(process, 0.0)
        self.delays[process] = min(max(delay * 2, 0.1), _MAX_RESTART_DELAY)
        return delay

    def _read_control(self) -> None:
        if self.link.connected and self.link.has_waiting:
            self.link.flush_logs()
        frames = self.link.receive(False)
        if frames is None:
            if time.monotonic() >= self.link.next_dial_at:
                self.link.dial()
            return
        for kind, header, _ in frames:
            if kind == protocol.KILL:
                self._kill(header.get('process'))
            elif kind == protocol.DRAIN:
                grace = header.get('graceMs')
                self._drain(float(grace) / 1000 if isinstance(grace, (int, float)) else TERM_SECONDS)

    def _kill(self, process: Any) -> None:
        if self.threads:
            os._exit(137)  # a thread cannot be killed: the container ends instead
        child = self.children.get(process) if isinstance(process, int) else None
        if child is not None:
            os.kill(child.pid, signal.SIGKILL)

    def _read_reports(self) -> None:
        try:
            reports = os.read(self.report_read, 4096)
        except BlockingIOError:
            return
        for kind, header, body in self.reports.feed(reports):
            if kind == protocol.READY:
                self.waiting_for_ready.discard(header['process'])
            elif kind == protocol.FAILED:
                self._on_failed(header, body)
        self._tell_ready()

    def _on_failed(self, header: Header, body: bytes) -> None:
        """A child's start failed. Before the container is ready this is its failed start, later one more restart."""
        trace = body.decode('utf-8', 'replace')
        if not self.control.repeated:
            self._kill_all()
            self.fail(self.link, header['phase'], header['error'], trace)
        for line in (trace or header['error']).rstrip('\n').split('\n'):
            logs.emit(None, 'stderr', line)

    def _kill_all(self) -> None:
        for child in self.children.values():
            os.kill(child.pid, signal.SIGKILL)

    def _tell_ready(self) -> None:
        if not self.waiting_for_ready and not self.control.repeated:
            self.control.ready(self.mode, self.workers * self.settings.slots, self.on_start_ms)

    # ---- leaving -----------------------------------------------------------------------------------------------------
    def _on_term(self, _number: int, _frame: Any) -> None:
        self._drain(TERM_SECONDS)

    def _drain(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        first = self.deadline is None
        self.deadline = until if self.deadline is None else min(self.deadline, until)
        if first:
            for server in self.servers:
                server.draining = True
            self._tell_children()

    def _tell_children(self) -> None:
        for child in self.children.values():
            os.kill(child.pid, signal.SIGTERM)

    def _leave_if_over(self) -> None:
        if self.deadline is None:
            return
        if self.threads:
            if any(server.runs() or server.unacknowledged for server in self.servers) and time.monotonic() < self.deadline:
                return
            leave(self.link, 0)
        if not self.children:
            leave(self.link, 137 if self.killed else 0)
        if time.monotonic() >= self.deadline and not self.killed:
            self.killed = True
            self._kill_all()
            self.deadline = time.monotonic() + 5.0
        elif not self.killed:
            # The signal is sent again: a child that was just forked had not begun to handle it.
            self._tell_children()


def serve_here(server: Server, link: Link) -> None:
    """Sets up a process that serves by itself: its printing, its SIGTERM."""
    logs.capture_output()
    if isinstance(server, InlineServer):
        inline = server
        logs.retarget(link, lambda: inline.task)
    else:
        logs.retarget(link, lambda: None)
    if isinstance(server, (InlineServer, PoolServer)):
        server.take_signals()


def _nothing(_number: int, _frame: Any) -> None:
    """Handles a signal that only has to end the sleep."""
