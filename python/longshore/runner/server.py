"""A runner process's slots: takes tasks from its connection, has the handler called, and answers.

Three ways to serve, by what the handler is: `InlineServer` (one slot: the handler runs in the thread that reads), `PoolServer`
(plain handler, several slots: a thread each), `AsyncServer` (asynchronous handler: one event loop). What must stay true: a result is
kept until the agent acknowledged it and sent again after every new hello; a task that is in hand or answered is not run again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import OrderedDict, deque

from . import logs, protocol
from .call import Application, ResultError, cancelled, error_body, run_async, run_sync
from .connection import Link
from .protocol import pack
from .task import Task

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Deque, Dict, Iterable, List, Optional, Tuple

    from .protocol import Header

    Result = Tuple[Task, str, int, bytes]

#: Results kept for an agent that does not acknowledge; it gives no new tasks meanwhile, so this is never reached by a sane one.
MAX_UNACKNOWLEDGED = 256
#: How long a leaving process waits for its last results to be acknowledged.
ACKNOWLEDGE_SECONDS = 2.0
#: After SIGTERM tasks in hand get this long; Docker's KILL comes at 30 s.
TERM_SECONDS = 25.0
_TICK = 0.02


def hello_header(container_id: str, process: int, slots: int) -> Header:
    """The fields of a hello but `holding`."""
    return {
        'version': protocol.VERSION,
        'containerId': container_id,
        'process': process,
        'pid': os.getpid(),
        'slots': slots,
        'python': '%d.%d.%d' % sys.version_info[:3],
    }


class Server:
    """What the three have in common: bookkeeping of tasks and results on one connection."""

    def __init__(self, application: Application, link: Link, hello: Header) -> None:
        self.application = application
        self.link = link
        self.identity = hello
        self.slots = application.settings.slots
        self.held: Dict[Any, Task] = {}
        self.waiting: Deque[Task] = deque()
        self.unacknowledged: 'OrderedDict[Any, Result]' = OrderedDict()
        self.draining = False
        self._wake_write = -1
        self.deadline: Optional[float] = None
        #: Frames to repeat after each hello (the control connection's `ready`).
        self.repeated: List[bytes] = []
        link.hello = self._hello
        link.greeting = self._greeting

    # ---- what a new connection hears ---------------------------------------------------------------------------------------------
    def _hello(self) -> Header:
        keys = (list(self.held) + [key for key in self.unacknowledged if key not in self.held])[:400]
        return dict(self.identity, holding=[{'taskId': task_id, 'token': token} for task_id, token in keys])

    def _greeting(self) -> Iterable[bytes]:
        yield from self.repeated
        for result in list(self.unacknowledged.values()):
            yield from self._result_frames(*result)

    # ---- frames ------------------------------------------------------------------------------------------------------------------
    def on_frame(self, kind: int, header: Header, body: bytes) -> None:
        if kind == protocol.RUN:
            self._collect(header, body)
        elif kind == protocol.ACKED:
            self.unacknowledged.pop(_key(header), None)
        elif kind == protocol.CANCEL:
            task = self.held.get(_key(header))
            if task is not None:
                self._cancel(task, str(header.get('reason') or ''))
        elif kind == protocol.DRAIN:
            self.drain(_seconds(header.get('graceMs')))
        elif kind == protocol.KILL:
            # Only the first process is told to kill, and serving itself it is the one meant: the container ends.
            os._exit(137)

    def _collect(self, header: Header, body: bytes) -> None:
        key = _key(header)
        task = self.held.get(key)
        if task is None:
            if key in self.unacknowledged or not key[0]:
                return
            query = header.get('query')
            task = Task(key[0], key[1], query if isinstance(query, dict) else None, int(header.get('timeoutMs') or 0))
            task.sink = self.link
            # An agent that takes the hand-over for the start says so, and is spared a frame per task.
            task.announce = header.get('started') is not False
            self.held[key] = task
        elif not task.parts:
            return  # sent twice: it is in hand
        if int(header.get('part') or 0) != len(task.parts):
            # A part that came before the connection was lost: the agent begins again with the first.
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
            self.accept(task)

    def accept(self, task: Task) -> None:
        """A task is complete and wants a slot."""
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

    # ---- answers -----------------------------------------------------------------------------------------------------------------
    def begin(self, task: Task) -> None:
        task.began = time.monotonic()
        if task.announce:
            self.link.send(protocol.STARTED, {'taskId': task.task_id, 'token': task.token})

    def _answer(self, task: Task, outcome: str, body: bytes) -> None:
        """Sends a result and keeps it until it is acknowledged."""
        logs.finish_task(task)
        duration = int((time.monotonic() - task.began) * 1000) if task.began else 0
        self.unacknowledged[task.key] = (task, outcome, duration, body)
        self.held.pop(task.key, None)
        while len(self.unacknowledged) > MAX_UNACKNOWLEDGED:
            self.unacknowledged.popitem(last=False)
        for frame in self._result_frames(task, outcome, duration, body):
            if not self.link.send_packed(frame):
                return  # the next hello sends it

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
        """One item of a generator, sent as it comes and not kept: after a lost connection the count in the result shows the gap."""
        # The handler is not interruptible while a frame is under way.
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

    # ---- leaving -----------------------------------------------------------------------------------------------------------------
    def take_signals(self) -> None:
        """In the main thread of a process that serves: SIGTERM drains. The pipe ends the reader's wait, also when the signal came just
        before it began."""
        if self._wake_write < 0:
            self.link.wake_fd, self._wake_write = os.pipe()
            os.set_blocking(self.link.wake_fd, False)
            os.set_blocking(self._wake_write, False)
            signal.signal(signal.SIGTERM, self.on_term)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def on_term(self, _number: int = 0, _frame: Any = None) -> None:
        self.drain(TERM_SECONDS)

    def drain(self, seconds: float) -> None:
        """Takes no more; what runs may finish."""
        self.draining = True
        until = time.monotonic() + seconds
        self.deadline = until if self.deadline is None else min(self.deadline, until)

    def exit(self) -> None:
        """Ends this process after `serve`: results first, then what was printed."""
        # A task that outlasted the drain is cut off, and the code says so.
        code = 143 if any(task.began for task in self.held.values()) else 0
        until = time.monotonic() + ACKNOWLEDGE_SECONDS
        while code == 0 and self.unacknowledged and self.link.connected and time.monotonic() < until:
            frames = self.link.receive(False)
            if frames is None:
                break
            for frame in frames:
                if frame[0] == protocol.ACKED:
                    self.on_frame(*frame)
            if not frames:
                time.sleep(0.002)
        leave(self.link, code)

    def exit_like(self, task: Task, error: SystemExit) -> None:
        """A handler that calls sys.exit ends its process with that code; the agent names it."""
        logs.finish_task(task)
        self.exit_now(exit_code(error.code))

    def exit_now(self, code: int) -> None:
        leave(self.link, code)

    def serve(self) -> None:
        raise NotImplementedError


def leave(link: Optional[Link], code: int) -> None:
    """The last thing a process does. Not sys.exit: a forked child would run its parent's clean-up, and threads of user code that
    never end would hold it."""
    import atexit

    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass
    logs.finish_all(link, 1.0)
    os._exit(code)


def exit_code(value: Any) -> int:
    """What the interpreter makes of `sys.exit(value)`."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    logs.emit(None, 'stderr', str(value))
    return 1


class InlineServer(Server):
    """One slot. The thread that reads runs the handler, which costs no hand-over; a second thread watches only tasks that take long
    (cancellation, a lost connection, log lines that the socket did not take)."""

    def __init__(self, application: Application, link: Link, hello: Header) -> None:
        super().__init__(application, link, hello)
        self.task: Optional[Task] = None
        self.reading = threading.Lock()
        self.turn = 0
        self._parked = True
        self._wake = threading.Semaphore(0)
        self._watcher: Optional[threading.Thread] = None

    def serve(self) -> None:
        """Until drained."""
        while True:
            while self.waiting and not self.draining:
                self._run(self.waiting.popleft())
            if self.draining:
                return
            frames = self.link.receive()
            if frames is None:
                self.link.dial_until_connected(lambda: self.draining)
                continue
            for frame in frames:
                self.on_frame(*frame)

    def _run(self, task: Task) -> None:
        self.task = task
        self.turn += 1
        self._awaken()
        self.begin(task)
        try:
            outcome, body = run_sync(self.application, task, self.send_item)
        except SystemExit as error:
            self.exit_like(task, error)
            return
        with self.reading:
            self.task = None
        if self._wake_write >= 0:
            self.take_signals()  # an event loop of the handler's own takes them away when it closes
        self._answer(task, outcome, body)

    def _awaken(self) -> None:
        if not self._parked:
            return
        self._parked = False
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name='longshore-watch', daemon=True)
            self._watcher.start()
        else:
            self._wake.release()

    def _watch(self) -> None:
        """Looks every 20 ms whether the same task still runs, and parks after a second without work: an idle container costs nothing,
        a short task no thread switch."""
        quiet = 0
        seen = -1
        while True:
            time.sleep(_TICK)
            task = self.task
            if self.link.connected and self.link.has_waiting:
                self.link.flush_logs()
            if task is None:
                quiet += 1
                seen = -1
                if quiet >= 50:
                    self._parked = True
                    if self.task is None:
                        self._wake.acquire()
                    self._parked = False
                    quiet = 0
                continue
            quiet = 0
            if self.turn != seen:
                seen = self.turn
                continue
            if self.deadline is not None and time.monotonic() > self.deadline:
                leave(self.link, 143)
            if task.cancel_reason:
                task.press()
            self._read_for(task)

    def _read_for(self, task: Task) -> None:
        """Reads what came while the handler runs; never while the other thread reads."""
        with self.reading:
            if self.task is not task:
                return
            frames = self.link.receive(False)
            if frames is None:
                if time.monotonic() >= self.link.next_dial_at:
                    self.link.dial()
                return
            for frame in frames:
                self.on_frame(*frame)


class PoolServer(Server):
    """Several slots for a plain handler: threads, started as they are wanted."""

    def __init__(self, application: Application, link: Link, hello: Header) -> None:
        super().__init__(application, link, hello)
        self._room = threading.Condition()
        self._threads = 0
        self._free = 0

    def serve(self) -> None:
        while not self.draining:
            frames = self.link.receive()
            if frames is None:
                self.link.dial_until_connected(lambda: self.draining)
                continue
            for frame in frames:
                self.on_frame(*frame)
        while self.held and (self.deadline is None or time.monotonic() < self.deadline):
            frames = self.link.receive(False)
            if frames is None and time.monotonic() >= self.link.next_dial_at:
                self.link.dial()
            for frame in frames or ():
                self.on_frame(*frame)
            time.sleep(_TICK)

    def accept(self, task: Task) -> None:
        if self.draining:
            self.held.pop(task.key, None)
            return
        with self._room:
            self.waiting.append(task)
            if self._free < len(self.waiting) and self._threads < self.slots:
                self._threads += 1
                threading.Thread(target=self._work, name='longshore-slot-%d' % self._threads, daemon=True).start()
            else:
                self._room.notify()

    def _cancel(self, task: Task, reason: str) -> None:
        with self._room:
            super()._cancel(task, reason)

    def _work(self) -> None:
        while True:
            with self._room:
                self._free += 1
                while not self.waiting:
                    self._room.wait()
                self._free -= 1
                task = self.waiting.popleft()
            self.begin(task)
            try:
                outcome, body = run_sync(self.application, task, self.send_item)
            except SystemExit as error:
                self.exit_like(task, error)
                return
            self._answer(task, outcome, body)


class AsyncServer(Server):
    """An asynchronous handler: one event loop for the process's life reads the connection and runs every task."""

    def __init__(self, application: Application, link: Link, hello: Header) -> None:
        super().__init__(application, link, hello)
        self._loop: Any = None
        self._running = 0
        self._attached = -1

    def serve(self) -> None:
        import asyncio

        self._loop = loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        if threading.get_ident() == threading.main_thread().ident:
            loop.add_signal_handler(signal.SIGTERM, self.on_term)
        self._attach()
        self._tick()
        loop.run_forever()

    def drain(self, seconds: float) -> None:
        super().drain(seconds)
        self._stop_if_done()
        if self.deadline is not None:
            self._loop.call_later(max(0.0, self.deadline - time.monotonic()), self._loop.stop)

    def _stop_if_done(self) -> None:
        if self.draining and not self._running:
            self._loop.stop()

    def _tick(self) -> None:
        """Log lines that the socket did not take when they were printed."""
        if self.link.connected and self.link.has_waiting:
            self.link.flush_logs()
        self._loop.call_later(0.05 if self._running else 1.0, self._tick)

    def _attach(self) -> None:
        self._attached = self.link.fileno()
        if self._attached >= 0:
            self._loop.add_reader(self._attached, self._readable)
        else:
            self._redial()

    def _redial(self) -> None:
        wait = self.link.next_dial_at - time.monotonic()
        if wait > 0:
            self._loop.call_later(wait, self._redial)
        elif self.link.dial():
            self._attach()
        else:
            self._loop.call_later(0.05, self._redial)

    def _readable(self) -> None:
        frames = self.link.receive(False)
        if frames is None:
            self._loop.remove_reader(self._attached)
            self._redial()
            return
        for frame in frames:
            self.on_frame(*frame)

    def accept(self, task: Task) -> None:
        if self.draining:
            self.held.pop(task.key, None)
        elif self._running < self.slots:
            self._start(task)
        else:
            self.waiting.append(task)

    def _start(self, task: Task) -> None:
        self._running += 1
        task.coroutine = self._loop.create_task(self._run(task))
        task.coroutine.add_done_callback(lambda done: self._done(task, done))

    async def _run(self, task: Task) -> None:
        self.begin(task)
        try:
            outcome, body = await run_async(self.application, task, self._send_item)
        except SystemExit as error:
            self.exit_like(task, error)
            return
        self._answer(task, outcome, body)

    def _done(self, task: Task, done: Any) -> None:
        self._running -= 1
        if task.key in self.held:
            # Cancelled before its first step, which then never came.
            task.cancel_reason = task.cancel_reason or 'cancelled'
            self._answer(task, *cancelled(task))
        if not done.cancelled() and done.exception() is not None:
            logs.note('a task ended badly: %s' % logs.summary(done.exception()))
        if self.waiting and not self.draining:
            self._start(self.waiting.popleft())
        self._stop_if_done()

    def cancel_running(self, task: Task, reason: str) -> None:
        task.cancel_reason = task.cancel_reason or reason or 'cancelled'
        if task.coroutine is not None:
            task.coroutine.cancel()


def make_server(application: Application, link: Link, hello: Header) -> Server:
    """The one of the three that suits the handler."""
    if application.is_async:
        return AsyncServer(application, link, hello)
    if application.settings.slots > 1:
        return PoolServer(application, link, hello)
    return InlineServer(application, link, hello)


def _key(header: Header) -> Tuple[str, str]:
    return str(header.get('taskId') or ''), str(header.get('token') or '')


def _seconds(value: Any) -> float:
    return max(0.0, float(value) / 1000) if isinstance(value, (int, float)) else TERM_SECONDS
