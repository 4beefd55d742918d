"""Serves an ASGI 3 application: an event loop that gives every streamed task one call of it, on a connection of its own
(`streams`). The runner imports this module only for such an application."""

from __future__ import annotations

import asyncio
import json

from . import forks, logs, protocol
from .asgi_calls import ClientGone, HttpCall, WebSocketCall
from .call import cancelled, error_body, failed
from .serving import AsyncServer
from .settings import SettingsError
from .streams import descriptors, dial

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from .call import Application, Outcome
    from .protocol import Header
    from .streams import Stream
    from .task import Task

#: Time of a cancelled application to end by itself, after it was told that its caller is gone.
CANCEL_SECONDS = 5.0
#: Exceptions by which an application ends when its caller has left: ours, and Starlette's for HTTP and WebSockets.
_LEAVING = (ClientGone.__name__, 'ClientDisconnect', 'WebSocketDisconnect')
_VARIABLE = 0x04  # `*args`, in the flags of a function's code
#: Time for the application's shutdown: with nothing left to do, and when calls outlasted the drain.
_SHUTDOWN_SECONDS = 5.0
_LATE_SHUTDOWN_SECONDS = 1.0
#: Time for an application to raise after it has said that its startup failed.
_FAILURE_SECONDS = 1.0
#: Time for an application to return after a reload has closed its WebSockets.
_CLOSED_SECONDS = 0.5


class LifespanError(Exception):
    """The application said that its startup failed; the text is its own."""


class Lifespan:
    """The application's startup and shutdown. An application that does not know them is served without."""

    def __init__(self, app: Any) -> None:
        self.app = app
        #: What the application puts there, every scope has a copy of.
        self.state: Dict[str, Any] = {}
        self._task: Any = None
        self._inbox: 'asyncio.Queue[Dict[str, Any]]' = asyncio.Queue()
        self._news = asyncio.Event()
        #: The type of the application's last message, without `lifespan.`.
        self._said = ''
        self._text = ''
        #: Whether it waited for a message of ours, and sent none that only a request has.
        self._known = False

    async def startup(self) -> None:
        """Returns when requests may come. Raises when the application's startup failed."""
        scope = {'type': 'lifespan', 'asgi': {'version': '3.0', 'spec_version': '2.0'}, 'state': self.state}
        self._inbox.put_nowait({'type': 'lifespan.startup'})
        self._task = asyncio.get_event_loop().create_task(self._run(scope))
        await self._news.wait()
        if self._said == 'startup.complete':
            return
        if self._said == 'startup.failed':
            await asyncio.wait([self._task], timeout=_FAILURE_SECONDS)
        error = self._task.exception() if self._task.done() and not self._task.cancelled() else None
        if self._said == 'startup.failed':
            raise error or LifespanError(self._text or 'the application said that its startup failed')
        if error is not None and self._known:
            raise error
        self._task = None

    async def shutdown(self, seconds: float) -> None:
        """Tells the application that the process ends, and waits for a bounded time."""
        if self._task is None or self._task.done():
            return
        self._news.clear()
        self._inbox.put_nowait({'type': 'lifespan.shutdown'})
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except asyncio.TimeoutError:
            logs.note('the application did not shut down within %d s' % seconds)
            return
        if self._said == 'shutdown.failed':
            logs.note('the application said that its shutdown failed: %s' % self._text)
        await asyncio.wait([self._task], timeout=_FAILURE_SECONDS)
        if self._task.done() and not self._task.cancelled() and self._task.exception() is not None:
            for line in logs.failure(self._task.exception())[1].rstrip('\n').split('\n'):
                logs.emit(None, 'stderr', line)

    async def _run(self, scope: Dict[str, Any]) -> None:
        try:
            await self.app(scope, self._receive, self._send)
            forks.end_if_foreign()
        except BaseException as error:
            forks.end_if_foreign(error)
            raise
        finally:
            self._news.set()

    async def _receive(self) -> Dict[str, Any]:
        self._known = True
        return await self._inbox.get()

    async def _send(self, message: Dict[str, Any]) -> None:
        kind = str(message['type'])
        if not kind.startswith('lifespan.'):
            self._known = False
            raise RuntimeError("unexpected ASGI message '%s' in the scope 'lifespan'" % kind)
        self._said = kind[len('lifespan.') :]
        self._text = str(message.get('message') or '')
        self._news.set()


class AsgiServer(AsyncServer):
    """Serves streamed tasks."""

    takes_streams = True

    def __init__(self, application: Application, link: Any, hello: Any) -> None:
        super().__init__(application, link, hello)
        self._app: Any = None
        self._lifespan: Optional[Lifespan] = None
        self._ending = False
        #: Whether a reload has retired this process, and whether it has closed the WebSockets that were left.
        self._is_retired = False
        self._has_closed = False
        forks.hold(descriptors)

    def prepare(self) -> None:
        self._make_loop()
        self._running_loop(lambda: self._loop.run_until_complete(self._prepare()))

    async def _prepare(self) -> None:
        try:
            self._app = await find_app(self.application)
        except BaseException as error:
            forks.end_if_foreign(error)
            raise
        forks.end_if_foreign()
        self._lifespan = Lifespan(self._app)
        await self._lifespan.startup()

    def serve(self) -> None:
        super().serve()
        self._ending = True
        assert self._lifespan is not None
        lifespan = self._lifespan
        self._running_loop(lambda: self._loop.run_until_complete(lifespan.shutdown(_LATE_SHUTDOWN_SECONDS if self._running else _SHUTDOWN_SECONDS)))

    def on_frame(self, kind: int, header: Header, body: bytes) -> None:
        if kind == protocol.DRAIN:
            self._is_retired = self.application.settings.reloads
        super().on_frame(kind, header, body)

    def _stop(self) -> None:
        if self._ending:
            return  # the shutdown has a bound of its own
        if self._is_retired and self._running and not self._has_closed:
            self._has_closed = True
            for task in list(self.held.values()):
                if task.call is not None:
                    task.call.reloaded()
            self._loop.call_later(_CLOSED_SECONDS, self._stop)
        else:
            super()._stop()

    async def _run(self, task: Task) -> None:
        if self.goes_back(task):
            return
        self.begin(task)
        try:
            outcome, body = await self._call(task)
        except SystemExit as error:
            self.exit_like(task, error)
            return
        self._answer(task, outcome, body)

    async def _call(self, task: Task) -> Outcome:
        logs.current_task.set(task)  # this coroutine has a context of its own
        stream: Optional[Stream] = None
        try:
            stream = await dial(self.application.settings.streams_path, task)
            head = await _request(stream)
            if head is None:
                stream.abort()
                return 'cancelled', error_body('the caller left')
            return await self._serve_call(task, stream, head)
        except asyncio.CancelledError as error:
            if stream is not None:
                stream.drop()
            return cancelled(task) if task.cancel_reason else failed(self.application, task, error)
        except SystemExit:
            raise
        except BaseException as error:
            if stream is not None:
                stream.drop()
            return cancelled(task) if task.cancel_reason else failed(self.application, task, error)

    async def _serve_call(self, task: Task, stream: Stream, head: Dict[str, Any]) -> Outcome:
        """Calls the application. Its exceptions pass through, once its connection is closed."""
        assert self._lifespan is not None
        kind = WebSocketCall if head['type'] == 'websocket' else HttpCall
        call = task.call = kind(stream, head, self._lifespan.state)
        stream.on_gone = lambda: self._watch_left(task)
        if stream.gone:
            self._watch_left(task)
        try:
            try:
                await self._app(call.scope, call.receive, call.send)
                forks.end_if_foreign()
            except Exception as error:
                forks.end_if_foreign(error)
                if not call.left or type(error).__name__ not in _LEAVING:
                    raise
            result = call.result()
            is_cut = call.is_cut
        except SystemExit as error:
            forks.end_if_foreign(error)
            raise
        except BaseException as error:
            forks.end_if_foreign(error)
            await call.finish(error)
            raise
        await call.finish(None)
        if task.cancel_reason:
            return cancelled(task)
        return ('cancelled', error_body('the caller left')) if is_cut else ('ok', json.dumps(result).encode('ascii'))

    def cancel_running(self, task: Task, reason: str) -> None:
        """Shows the application that its caller is gone; ends it when that does not."""
        again = bool(task.cancel_reason)
        task.cancel_reason = task.cancel_reason or reason or 'cancelled'
        if again or task.coroutine is None:
            return
        if task.call is None:
            task.coroutine.cancel()
            return
        task.call.leave()
        self._loop.call_later(CANCEL_SECONDS, task.coroutine.cancel)

    def _watch_left(self, task: Task) -> None:
        """Ends an application that takes no notice of a caller who left. No cancel comes from a scheduler that died."""
        if task.call.is_abandoned and not task.cancel_reason:
            self._loop.call_later(CANCEL_SECONDS, self._end_left, task)

    @staticmethod
    def _end_left(task: Task) -> None:
        if not task.cancel_reason and not task.coroutine.done():
            task.cancel_reason = 'caller left'
            task.coroutine.cancel()


async def _request(stream: Stream) -> Optional[Dict[str, Any]]:
    """The head of the request; None: the connection ended without."""
    while True:
        frame = stream.next_frame(protocol.REQUEST)
        if frame is not None:
            head: Dict[str, Any] = json.loads(frame[2])
            return head
        if stream.gone:
            return None
        await stream.news()


async def find_app(application: Application) -> Any:
    """The ASGI application: the object that HANDLER names, or what that function returns."""
    found = application.function
    if application.is_realtime:
        from .realtime import RealtimeApp

        return RealtimeApp(application)
    if is_asgi_app(found):
        return found
    made = found(**({'context': application.context(None)} if application.wants_context else {}))
    if hasattr(made, '__await__'):
        made = await made
    if not callable(made):
        raise SettingsError('%s returned a %s, not an ASGI application' % (application.settings.handler, type(made).__name__))
    return made


def is_asgi_app(found: Any) -> bool:
    """Whether an object takes `scope`, `receive` and `send` itself; a function of fewer parameters makes one."""
    if isinstance(found, type):
        return False
    bound = 0
    for _ in range(16):
        code = getattr(found, '__code__', None)
        if code is not None:
            # A bound method has its function's code, with `self` in it.
            bound += getattr(found, '__self__', None) is not None
            return bool(code.co_argcount - bound >= 3 or (code.co_flags & _VARIABLE and not code.co_argcount - bound))
        if type(found).__name__ == 'partial':
            bound += len(found.args)
            found = found.func
        else:
            found = found.__call__
    return True
