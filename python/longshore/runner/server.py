"""The state of a runner process: tasks taken from its connection, answers to send, the end of the process. `serving.py`
calls the handlers. Must stay true: a result is kept until the agent acknowledged it, and sent again after every new
hello; a task that is running or answered does not run again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import OrderedDict, deque

from ..task_context import interruption
from . import forks, logs, outputs, protocol
from .call import Application, ResultError, cancelled, error_body
from .connection import Link
from .protocol import pack
from .task import Task

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Tuple

    from .protocol import Header

    Result = Tuple[Task, str, int, bytes]

#: Bounds on results kept until they are acknowledged. An acknowledgement comes when the database has the task's record,
#: which takes a third of a second, and seconds while the database is away.
MAX_UNACKNOWLEDGED = 8192
MAX_UNACKNOWLEDGED_BYTES = 16 * 1024 * 1024
#: Bound on attempts that a hello names, because they stand in its header. Results come behind it in any number.
MOST_NAMED = 400
#: Wait of a leaving process for the acknowledgement of its last results.
ACKNOWLEDGE_SECONDS = 2.0
#: Time for running tasks after SIGTERM; Docker's KILL comes at 30 s.
TERM_SECONDS = 25.0

_STREAMED = 'TypeError: a streamed call needs an ASGI application, and this handler is called with inputs'
_NOT_STREAMED = 'TypeError: an ASGI application is called by HTTP requests and WebSockets, not with inputs'


def hello_header(container_id: str, process: int, slots: int) -> Header:
    """The fields of a hello without `holding`."""
    return {
        'version': protocol.VERSION,
        'containerId': container_id,
        'process': process,
        'pid': os.getpid(),
        'slots': slots,
        'python': '%d.%d.%d' % sys.version_info[:3],
    }


class Server:
    """The common part of all ways to serve: bookkeeping of tasks and results on one connection."""

    #: Whether tasks are streamed; a task of the other sort is an error.
    takes_streams = False

    def __init__(self, application: Application, link: Link, hello: Header) -> None:
        self.application = application
        self.link = link
        self.identity = hello
        self.slots = application.settings.slots
        self.held: Dict[Any, Task] = {}
        self.waiting: Deque[Task] = deque()
        self.unacknowledged: 'OrderedDict[Any, Result]' = OrderedDict()
        self.unacknowledged_bytes = 0
        self.draining = False
        self._wake_write = -1
        self.deadline: Optional[float] = None
        #: Frames to repeat after each hello (the control connection's `ready`).
        self.repeated: List[bytes] = []
        #: Called when a task was answered.
        self.on_answered: Callable[[], object] = _nothing
        link.hello = self._hello
        link.greeting = self._greeting

    # ---- what a new connection hears ---------------------------------------------------------------------------------
    def _hello(self) -> Header:
        # The newest results first: an agent ends what it gave to this process and does not find among the names.
        newest = list(self.unacknowledged)[::-1]
        keys = list(dict.fromkeys(list(self.held) + newest))[:MOST_NAMED]
        return dict(self.identity, holding=[{'taskId': task_id, 'token': token} for task_id, token in keys])

    def _greeting(self) -> Iterable[bytes]:
        yield from self.repeated
        for result in list(self.unacknowledged.values()):
            yield from self._result_frames(*result)

    # ---- frames ------------------------------------------------------------------------------------------------------
    def on_frame(self, kind: int, header: Header, body: bytes) -> None:
        if kind == protocol.RUN:
            self._collect(header, body)
        elif kind == protocol.ACKED:
            self._forget(self.unacknowledged.pop(_key(header), None))
        elif kind == protocol.CANCEL:
            task = self.held.get(_key(header))
            if task is not None:
                self._cancel(task, str(header.get('reason') or ''))
        elif kind == protocol.DRAIN:
            self.drain(_seconds(header.get('graceMs')))
        elif kind == protocol.INTERRUPT:
            interruption._tell(_seconds(header.get('noticeMs')))
        elif kind == protocol.KILL:
            # Only the first process receives a kill; when it serves itself, it is the one meant, and the container
            # ends.
            os._exit(137)

    def _collect(self, header: Header, body: bytes) -> None:
        key = _key(header)
        task = self.held.get(key)
        if task is None:
            # A later part of an unknown task is the rest of one that was given back.
            if key in self.unacknowledged or not key[0] or header.get('part'):
                return
            query = header.get('query')
            task = Task(key[0], key[1], query if isinstance(query, dict) else None, int(header.get('timeoutMs') or 0))
            task.sink = self.link
            # An agent that counts the hand-over as the start says so, and saves a frame per task.
            task.announce = header.get('started') is not False
            task.streamed = header.get('stream') is True
            self.held[key] = task
        elif not task.parts:
            return  # sent twice: it is in hand
        if int(header.get('part') or 0) != len(task.parts):
            # A new first part follows a lost connection: the agent sends all parts again.
            if int(header.get('part') or 0) == 0:
                task.parts, task.size = [], 0
            else:
                return
        task.size += len(body)
        if task.size > protocol.MAX_BODY_BYTES:
            self._answer(task, 'error', error_body('ValueError: the input has more than %d bytes' % protocol.MAX_BODY_BYTES))
            return
        task.parts.append(body)
        if header.get('last', True):
            task.body = b''.join(task.parts)
            task.parts = []
            if task.streamed == self.takes_streams:
                self.accept(task)
            else:
                self._answer(task, 'error', error_body(_STREAMED if task.streamed else _NOT_STREAMED))

    def accept(self, task: Task) -> None:
        """Takes a complete task, which waits for a slot."""
        self.waiting.append(task)

    def _cancel(self, task: Task, reason: str) -> None:
        if task in self.waiting or task.parts:
            try:
                self.waiting.remove(task)
            except ValueError:
                pass
            task.cancel_reason = reason or 'cancelled'
            self._answer(task, *cancelled(task))
        else:
            self.cancel_running(task, reason)

    def cancel_running(self, task: Task, reason: str) -> None:
        task.cancel(reason)

    # ---- answers -----------------------------------------------------------------------------------------------------
    def begin(self, task: Task) -> None:
        outputs.begin(task)
        task.began = time.monotonic()
        if task.announce:
            self.link.send(protocol.STARTED, {'taskId': task.task_id, 'token': task.token})

    def _answer(self, task: Task, outcome: str, body: bytes) -> None:
        """Sends a result and keeps it until it is acknowledged."""
        outputs.end(task)
        logs.finish_task(task)
        duration = int((time.monotonic() - task.began) * 1000) if task.began else 0
        self._forget(self.unacknowledged.pop(task.key, None))
        self.unacknowledged[task.key] = (task, outcome, duration, body)
        self.unacknowledged_bytes += len(body)
        self.held.pop(task.key, None)
        while len(self.unacknowledged) > 1 and (
            len(self.unacknowledged) > MAX_UNACKNOWLEDGED or self.unacknowledged_bytes > MAX_UNACKNOWLEDGED_BYTES
        ):
            self._forget(self.unacknowledged.popitem(last=False)[1])
        for frame in self._result_frames(task, outcome, duration, body):
            if not self.link.send_packed(frame):
                break  # the next hello sends it
        self.on_answered()

    def _forget(self, result: Optional[Result]) -> None:
        if result is not None:
            self.unacknowledged_bytes -= len(result[3])

    def _result_frames(self, task: Task, outcome: str, duration: int, body: bytes) -> Iterable[bytes]:
        header: Header = {'taskId': task.task_id, 'token': task.token}
        chunks = task.chunks
        if len(body) > protocol.INLINE_BYTES:
            for at in range(0, len(body), protocol.PART_BYTES):
                part = body[at : at + protocol.PART_BYTES]
                yield pack(protocol.CHUNK, dict(header, seq=chunks), part)
                chunks += 1
            body = b''
        header.update(outcome=outcome, durationMs=duration, chunks=chunks)
        if task.chunks:
            header['items'] = task.chunks
        yield pack(protocol.RESULT, header, body)

    def send_item(self, task: Task, item: bytes) -> None:
        """Sends a generator's item without keeping it: after a lost connection the count in the result shows the
        gap."""
        # A frame in progress must not be interrupted, so the handler is closed to cancellation.
        task.close()
        try:
            self._send_item(task, item)
        finally:
            task.open()

    def _send_item(self, task: Task, item: bytes) -> None:
        if len(item) > protocol.PART_BYTES:
            raise ResultError('ValueError: an item of %d bytes is more than %d' % (len(item), protocol.PART_BYTES))
        self.link.send(protocol.CHUNK, {'taskId': task.task_id, 'token': task.token, 'seq': task.chunks, 'item': True}, item)
        task.chunks += 1

    # ---- leaving -----------------------------------------------------------------------------------------------------
    def take_signals(self) -> None:
        """Makes SIGTERM drain, in the main thread of a process that serves. The pipe ends the reader's wait, even if
        the signal came just before it."""
        if self._wake_write < 0:
            self.link.wake_fd, self._wake_write = os.pipe()
            forks.hold(lambda: (self._wake_write,))
            os.set_blocking(self.link.wake_fd, False)
            os.set_blocking(self._wake_write, False)
            signal.signal(signal.SIGTERM, self.on_term)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def on_term(self, _number: int = 0, _frame: Any = None) -> None:
        self.drain(TERM_SECONDS)

    def drain(self, seconds: float) -> None:
        """Stops taking tasks; running ones may finish."""
        self.draining = True
        until = time.monotonic() + seconds
        self.deadline = until if self.deadline is None else min(self.deadline, until)

    def give_back(self) -> None:
        """Gives back tasks that have not begun, once this process takes no more. The agent of a development server
        has its next process run them."""
        while self.waiting:
            self._give_back(self.waiting.popleft())
        for task in list(self.held.values()):
            if task.parts:
                self._give_back(task)

    def _give_back(self, task: Task) -> None:
        self.held.pop(task.key, None)
        self.link.send(protocol.RETURNED, {'taskId': task.task_id, 'token': task.token})

    def exit(self) -> None:
        """Ends this process after `serve`: sends results first, then printed output."""
        # A task that outlasted the drain is cut off, which the exit code tells.
        code = 143 if self.runs() else 0
        if code == 0:
            self.await_acknowledgements()
        leave(self.link, code)

    def runs(self) -> bool:
        """Whether a task began and has not ended."""
        return any(task.began for task in list(self.held.values()))

    def await_acknowledgements(self) -> None:
        """Waits a while until the agent has confirmed every result; called by the reading thread, behind `serve`."""
        until = time.monotonic() + ACKNOWLEDGE_SECONDS
        lives_on = self.application.settings.reloads and self.deadline is not None
        if lives_on:
            until = max(until, self.deadline or 0.0)
        while self.unacknowledged and time.monotonic() < until:
            frames = self.link.receive(False)
            if frames is None:
                if not lives_on:
                    break
                # The container of a retired process lives on: an agent that restarts just now comes back.
                self.link.dial_until_connected(lambda: time.monotonic() >= until)
                continue
            for frame in frames:
                if frame[0] == protocol.ACKED:
                    self.on_frame(*frame)
            if not frames:
                time.sleep(0.002)
        self.unacknowledged.clear()
        self.unacknowledged_bytes = 0

    def exit_like(self, task: Task, error: SystemExit) -> None:
        """Ends the process with the code of a handler's sys.exit; the agent reports it."""
        outputs.end(task)
        logs.finish_task(task)
        self.exit_now(exit_code(error.code))

    def exit_now(self, code: int) -> None:
        leave(self.link, code)

    def prepare(self) -> None:
        """Runs before the process says that it is ready. An exception is a failed start."""

    def serve(self) -> None:
        raise NotImplementedError


def leave(link: Optional[Link], code: int) -> None:
    """Exits at once. sys.exit would run the parent's clean-up in a forked child, and would wait for threads of user
    code that never end."""
    import atexit

    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass
    logs.finish_all(link, 1.0)
    os._exit(code)


def exit_code(value: Any) -> int:
    """The exit code that the interpreter derives from `sys.exit(value)`."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    logs.emit(None, 'stderr', str(value))
    return 1


def _nothing() -> None:
    pass


def _key(header: Header) -> Tuple[str, str]:
    return str(header.get('taskId') or ''), str(header.get('token') or '')


def _seconds(value: Any) -> float:
    return max(0.0, float(value) / 1000) if isinstance(value, (int, float)) else TERM_SECONDS
