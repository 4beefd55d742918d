"""Three ways to call the handler, by its kind: `InlineServer` (one slot: the handler runs in the reading thread),
`PoolServer` (plain handler, several slots: a thread each), `AsyncServer` (asynchronous handler: one event loop).
ASGI applications have a fourth (`asgi`).
"""

from __future__ import annotations

import os
import signal
import threading
import time

from . import forks, logs, protocol
from .call import Application, cancelled, run_async, run_sync
from .connection import Link
from .server import Server, leave
from .task import Task

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Optional

    from .protocol import Header

_TICK = 0.02
_NO_LOOP = 'a forked process cannot wait in the event loop of its parent'


class InlineServer(Server):
    """Serves one slot. The reading thread runs the handler, which saves a hand-over. A second thread watches only long
    tasks (cancellation, a lost connection, log lines that the socket did not accept)."""

    def __init__(self, application: Application, link: Link, hello: Header) -> None:
        super().__init__(application, link, hello)
        self.task: Optional[Task] = None
        self.reading = threading.Lock()
        self.turn = 0
        self._parked = True
        self._wake = threading.Semaphore(0)
        self._watcher: Optional[threading.Thread] = None

    def serve(self) -> None:
        """Serves until drained."""
        while True:
            while self.waiting and not self.draining:
                self._run(self.waiting.popleft())
            if self.draining:
                self.give_back()
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
        """Checks every 20 ms whether the same task still runs, and parks after a second without work: an idle container
        then costs nothing, and a short task no thread switch."""
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
        """Reads input while the handler runs; never while the other thread reads."""
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
    """Serves several slots for a plain handler: threads, started when needed."""

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
        with self._room:
            self.give_back()
        while self.held and (self.deadline is None or time.monotonic() < self.deadline):
            frames = self.link.receive(False)
            if frames is None and time.monotonic() >= self.link.next_dial_at:
                self.link.dial()
            for frame in frames or ():
                self.on_frame(*frame)
            time.sleep(_TICK)

    def accept(self, task: Task) -> None:
        if self.draining:
            self._give_back(task)
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
    """Serves an asynchronous handler: one event loop for the process's life reads the connection and runs every
    task."""

    def __init__(self, application: Application, link: Link, hello: Header) -> None:
        super().__init__(application, link, hello)
        self._loop: Any = None
        self._running = 0
        self._attached = -1

    def _make_loop(self) -> None:
        import asyncio

        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        forks.hold(self._of_loop)
        forks.follow(self._stop_loop)

    def _of_loop(self) -> Iterable[int]:
        loop = self._loop
        for name in ('_selector', '_ssock', '_csock'):  # absent where the loop is another library's
            part = getattr(loop, name, None)
            if part is not None:
                yield part.fileno()

    def _stop_loop(self) -> None:
        """In a process that the app forked: the copy of the loop makes no further call."""
        loop = self._loop
        if hasattr(loop, '_ready'):
            loop._ready.clear()
            loop.call_soon_threadsafe = forks.end_from_thread

    def _running_loop(self, run: Callable[[], object]) -> None:
        """Runs the loop. The copy of it in a process that the app forked fails at its next wait."""
        try:
            run()
        except (SystemExit, KeyboardInterrupt) as error:  # of a task of the app's own
            forks.end_if_foreign(error)
            raise
        finally:
            forks.end_if_foreign(None, _NO_LOOP)

    def serve(self) -> None:
        if self._loop is None:
            self._make_loop()
        loop = self._loop
        if threading.get_ident() == threading.main_thread().ident:
            loop.add_signal_handler(signal.SIGTERM, self.on_term)
        self._attach()
        self._tick()
        self._running_loop(loop.run_forever)

    def drain(self, seconds: float) -> None:
        super().drain(seconds)
        self.give_back()
        self._stop_if_done()
        if self.deadline is not None:
            self._loop.call_later(max(0.0, self.deadline - time.monotonic()), self._stop)

    def _stop_if_done(self) -> None:
        if self.draining and not self._running:
            self._stop()

    def _stop(self) -> None:
        self._loop.stop()

    def _tick(self) -> None:
        """Sends log lines that the socket did not accept when they were printed."""
        forks.end_if_foreign(None, _NO_LOOP)
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
        forks.end_if_foreign(None, _NO_LOOP)
        frames = self.link.receive(False)
        if frames is None:
            self._loop.remove_reader(self._attached)
            self._redial()
            return
        # Tasks that arrived while a handler held up the loop have not begun: a drain behind them counts first.
        frames.sort(key=lambda frame: frame[0] != protocol.DRAIN)
        for frame in frames:
            self.on_frame(*frame)

    def accept(self, task: Task) -> None:
        if self.draining:
            self._give_back(task)
        elif self._running < self.slots:
            self._start(task)
        else:
            self.waiting.append(task)

    def _start(self, task: Task) -> None:
        self._running += 1
        task.coroutine = self._loop.create_task(self._run(task))
        task.coroutine.add_done_callback(lambda done: self._done(task, done))

    def goes_back(self, task: Task) -> bool:
        """Gives a task back that a reload has overtaken: its handler has not begun, and the loop was held up."""
        if not self.application.settings.reloads:
            return False
        if self.link.connected:
            self._readable()
        if self.draining and task.key in self.held:
            self._give_back(task)
        return task.key not in self.held

    async def _run(self, task: Task) -> None:
        if self.goes_back(task):
            return
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
            # The task was cancelled before its first step, which then never came.
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
    """The server that suits the handler."""
    if application.is_asgi:
        from .asgi import AsgiServer  # with asyncio, which other handlers do not pay for

        return AsgiServer(application, link, hello)
    if application.is_async:
        return AsyncServer(application, link, hello)
    if application.settings.slots > 1:
        return PoolServer(application, link, hello)
    return InlineServer(application, link, hello)
