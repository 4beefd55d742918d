"""HTTP with JSON and server-sent events for a small ASGI application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_BYTES = 1024 * 1024


class Refused(Exception):
    """An answer in the error format of the OpenAI API."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.body = status, error(code, message, param)


def error(code: str, message: str, param: str | None = None) -> dict[str, Any]:
    return {'error': {'message': message, 'type': 'invalid_request_error', 'param': param, 'code': code}}


async def body_of(receive: Receive) -> dict[str, Any]:
    data = b''
    while True:
        message = await receive()
        data += message.get('body', b'')
        if len(data) > MOST_BYTES:
            raise Refused(413, 'request_too_large', f'a request has at most {MOST_BYTES} bytes')
        if not message.get('more_body'):
            break
    try:
        body = json.loads(data)
    except ValueError:
        raise Refused(400, 'invalid_json', 'the body is not JSON') from None
    if not isinstance(body, dict):
        raise Refused(400, 'invalid_request', 'the body is not a JSON object')
    return body


async def answer(send: Send, status: int, body: object) -> None:
    data = json.dumps(body, ensure_ascii=False).encode()
    headers = [(b'content-type', b'application/json'), (b'content-length', b'%d' % len(data))]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': data})


class Events:
    """A stream of events. After its begin, `is_gone` tells that the caller has left."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.send = send
        # The request is read, so nothing but the caller's end can come.
        self.end = asyncio.ensure_future(receive())

    @property
    def is_gone(self) -> bool:
        return self.end.done()

    async def begin(self) -> None:
        headers = [(b'content-type', b'text/event-stream; charset=utf-8'), (b'cache-control', b'no-cache')]
        await self.send({'type': 'http.response.start', 'status': 200, 'headers': headers})

    async def event(self, data: object) -> None:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        await self.send({'type': 'http.response.body', 'body': f'data: {text}\n\n'.encode(), 'more_body': True})
        # Other requests of this process have their turn.
        await asyncio.sleep(0)

    async def finish(self) -> None:
        self.end.cancel()
        await self.send({'type': 'http.response.body', 'body': b''})
