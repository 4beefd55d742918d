"""The ASGI application around a `realtime` handler, which is called for every message of a WebSocket."""

from __future__ import annotations

import asyncio
import contextvars
import types
from concurrent.futures import ThreadPoolExecutor

from . import forks, logs
from .asgi_calls import ClientGone, cut_reason
from .call import encode_result
from .task import Cancellation

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Awaitable, Callable, Dict, List, Union

    from .call import Application

    Message = Dict[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

_UPGRADE = b'this address takes WebSockets\n'
_END = object()


class RealtimeApp:
    """Calls the handler with a message after the other, and sends what it returns."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self._threads = ThreadPoolExecutor(max_workers=application.settings.slots, thread_name_prefix='longshore-realtime')

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope['type'] == 'lifespan':
            return
        if scope['type'] == 'http':
            headers = [(b'upgrade', b'websocket'), (b'content-type', b'text/plain; charset=utf-8')]
            headers.append((b'content-length', b'%d' % len(_UPGRADE)))
            await send({'type': 'http.response.start', 'status': 426, 'headers': headers})
            await send({'type': 'http.response.body', 'body': b'' if scope['method'] == 'HEAD' else _UPGRADE})
            return
        await receive()
        await send({'type': 'websocket.accept'})
        while True:
            message = await receive()
            if message['type'] == 'websocket.disconnect':
                return
            try:
                await self._answer(message.get('text', message.get('bytes')), send)
            except ClientGone:
                raise
            except Exception as error:
                forks.end_if_foreign(error)
                await send({'type': 'websocket.close', 'code': 1011, 'reason': cut_reason(logs.summary(error))})
                raise

    async def _answer(self, data: Union[str, bytes, None], send: Send) -> None:
        application = self.application
        positional: List[Any] = [data]
        keywords: Dict[str, Any] = {}
        if application.input_name:
            positional, keywords = [], {application.input_name: data}
        elif application.input_name is None:
            positional = []
        if application.wants_context:
            keywords['context'] = application.context(logs.current_task.get())
        if application.is_async:
            value = application.function(*positional, **keywords)
        else:
            value = await self._in_thread(lambda: application.function(*positional, **keywords))
        if isinstance(value, types.GeneratorType):
            while True:
                item = await self._in_thread(lambda: next(value, _END))
                if item is _END:
                    return
                await _send_value(item, send)
        elif hasattr(value, '__aiter__'):
            async for item in value:
                await _send_value(item, send)
        else:
            await _send_value(await value if hasattr(value, '__await__') else value, send)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        """Runs plain code beside the loop; its prints keep their task. A cancellation is raised in the code, and the
        task lasts until the code has ended: else a handler that never returns would keep a thread without a task."""
        context = contextvars.copy_context()
        code = _Code(work)
        running = asyncio.get_event_loop().run_in_executor(self._threads, context.run, code.run)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            code.cancel('cancelled')
            while not running.done():
                try:
                    await asyncio.wait([running])
                except asyncio.CancelledError:
                    pass
            running.exception()  # else the loop would report it as one that nobody saw
            raise


class _Code(Cancellation):
    """Code of a handler in a thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self._work = work

    def run(self) -> Any:
        try:
            self.open()
            value = self._work()
            forks.end_if_foreign()
            return value
        except BaseException as error:
            forks.end_if_foreign(error)
            raise
        finally:
            self.end()


async def _send_value(value: Any, send: Send) -> None:
    """Text and bytes as they are, other values as JSON text; None sends nothing."""
    forks.end_if_foreign()
    if value is None:
        return
    if isinstance(value, (bytes, bytearray, memoryview)):
        await send({'type': 'websocket.send', 'bytes': bytes(value)})
    else:
        await send({'type': 'websocket.send', 'text': value if isinstance(value, str) else encode_result(value).decode('utf-8')})
