"""One call of an ASGI 3 application: the scope, `receive` and `send` of an HTTP request or a WebSocket on a stream."""

from __future__ import annotations

import asyncio
import json

from . import protocol
from .call import ResultError
from .protocol import PIECE_BYTES, pack, prefix
from .streams import Stream

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

    Message = Dict[str, Any]
    Head = Mapping[str, Any]

#: Bound on a WebSocket message that is put together.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
#: Status of a call whose caller left before its answer began; only tasks show it.
_CALLER_LEFT = 499
#: Bound on the reason in a close frame of a WebSocket.
MAX_REASON_BYTES = 123
#: The code by which a WebSocket's server says that it restarts.
_SERVICE_RESTART = 1012

_encode = json.JSONEncoder(separators=(',', ':')).encode


class ClientGone(OSError):
    """Raised by `send` on a WebSocket whose other side has left."""


def scope_of(head: Head, state: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """The ASGI scope of a request's head. `state` is the application's own, copied for each call."""
    websocket = head['type'] == 'websocket'
    raw_path = str(head['path']).encode('latin-1', 'replace')
    client, server = head.get('client'), head.get('server')
    scope: Dict[str, Any] = {
        'type': head['type'],
        'asgi': {'version': '3.0', 'spec_version': '2.4' if websocket else '2.3'},
        'http_version': head.get('httpVersion') or '1.1',
        'scheme': head.get('scheme') or ('ws' if websocket else 'http'),
        'path': _decoded(raw_path),
        'raw_path': raw_path,
        'query_string': str(head.get('query') or '').encode('latin-1', 'replace'),
        'root_path': _decoded(str(head.get('rootPath') or '').encode('latin-1', 'replace')),
        'headers': [(name.lower().encode('latin-1'), value.encode('latin-1', 'replace')) for name, value in head.get('headers') or ()],
        'client': None if client is None else (client[0], client[1]),
        'server': None if server is None else (server[0], server[1]),
        'state': dict(state or {}),
    }
    if websocket:
        scope['subprotocols'] = list(head.get('subprotocols') or ())
        scope['extensions'] = {'websocket.http.response': {}}
    else:
        scope['method'] = str(head.get('method') or 'GET').upper()
        scope['extensions'] = {'http.response.trailers': {}}
    return scope


def _decoded(path: bytes) -> str:
    """Percent-decoded text: UTF-8, or latin-1 where it is none. (`urllib` would cost a cold start 5 ms.)"""
    first, *rest = path.split(b'%')
    pieces = [first]
    for piece in rest:
        digits = piece[:2]
        # A sign or a space counts as part of a number for `int`, and a lone digit as a whole one.
        is_byte = len(digits) == 2 and all(digit in b'0123456789abcdefABCDEF' for digit in digits)
        pieces.append(bytes((int(digits, 16),)) + piece[2:] if is_byte else b'%' + piece)
    data = b''.join(pieces)
    try:
        return data.decode('utf-8')
    except UnicodeDecodeError:
        return data.decode('latin-1')


class Call:
    """The common part of both kinds: an HTTP response, which also refuses a WebSocket."""

    #: The kind of the peer's last frame.
    last = protocol.END
    #: Before the names of its messages.
    prefix = 'http'

    def __init__(self, stream: Stream, head: Head, state: Optional[Dict[str, Any]]) -> None:
        self.stream = stream
        self.scope = scope_of(head, state)
        #: The message of the response that comes next: `start`, `body` or `trailers`; `end`: it is complete.
        self._next = 'start'
        self._status = _CALLER_LEFT
        self._trailers: Optional[List[Any]] = None
        #: A head that waits for the body to be sent with it.
        self._held = b''

    async def receive(self) -> Message:
        raise NotImplementedError

    async def send(self, message: Message) -> None:
        raise NotImplementedError

    @property
    def left(self) -> bool:
        """Whether the caller has left."""
        return self.stream.gone

    def leave(self) -> None:
        """Shows the application that its caller is gone."""
        self.stream.abort()

    def reloaded(self) -> None:
        """Ends what a reload leaves no time for, as far as the protocol has a word for it."""

    @property
    def is_cut(self) -> bool:
        """Whether the caller left before the answer was complete."""
        return self._next != 'end' and self.stream.gone

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller left without a word, so that nothing which the application still does has a purpose."""
        return self.is_cut

    def result(self) -> Dict[str, int]:
        """The result of an application that returned. Raises ResultError when its answer is not complete."""
        if self._next != 'end' and not self.stream.gone:
            how = 'without a response' if self._next == 'start' else 'before the end of its response'
            raise ResultError('RuntimeError: the ASGI application returned %s' % how)
        return {'status': self._status}

    async def finish(self, _error: Optional[BaseException]) -> None:
        """Closes the connection: after the queued output, or at once where an answer is not complete."""
        if self._next == 'end':
            await self.stream.finish(self.last)
        else:
            self.stream.abort()

    async def respond(self, message: Message) -> None:
        """Takes a message of the response."""
        kind = message['type']
        wanted = '%s.response.%s' % (self.prefix, self._next)
        if self._next == 'end':
            raise RuntimeError("unexpected ASGI message '%s': the response is complete" % kind)
        if kind != wanted:
            raise RuntimeError("expected ASGI message '%s', but got '%s'" % (wanted, kind))
        if self._next == 'start':
            self._start(message)
        elif self._next == 'body':
            await self._send_body(message)
        else:
            await self._send_trailers(message)
        if self._next == 'end':
            self.stream.wake()

    def _start(self, message: Message) -> None:
        status = message['status']
        if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 999:
            raise ValueError('the status of a response must be a number from 100 to 999, not %r' % (status,))
        head = {'status': int(status), 'headers': _pairs(message.get('headers'))}
        if message.get('trailers'):
            head['trailers'] = True
            self._trailers = []
        self._held = pack(protocol.RESPONSE, {}, _encode(head).encode('ascii'))
        self._next = 'body'
        self._status = int(status)
        # A body that is sent at once travels with the head; the loop's next turn sends the head in any case.
        asyncio.get_event_loop().call_soon(self.flush)

    def flush(self) -> None:
        held, self._held = self._held, b''
        if held:
            self.stream.write(held)

    async def _send_body(self, message: Message) -> None:
        body = _bytes(message.get('body', b''))
        end = b''
        if not message.get('more_body', False):
            self._next = 'end' if self._trailers is None else 'trailers'
            end = prefix(protocol.END, 0) if self._trailers is None else b''
        before, self._held = self._held, b''
        await self.stream.send_body(protocol.DATA, body, before, end)

    async def _send_trailers(self, message: Message) -> None:
        assert self._trailers is not None
        self._trailers.extend(_pairs(message.get('headers')))
        if not message.get('more_trailers', False):
            self._next = 'end'
            self.stream.write(pack(protocol.END, {}, _encode(self._trailers).encode('ascii')))
            await self.stream.drain()


def _pairs(headers: Any) -> List[List[str]]:
    pairs: List[List[str]] = []
    for name, value in headers or ():
        if not isinstance(name, (bytes, bytearray)) or not isinstance(value, (bytes, bytearray)):
            raise TypeError('names and values of headers must be bytes, not %r: %r' % (name, value))
        pairs.append([name.decode('latin-1').lower(), value.decode('latin-1')])
    return pairs


def _bytes(value: Any) -> bytes:
    """Bytes that nobody changes while they wait to be sent."""
    if isinstance(value, bytes):
        return value
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError('a body or a message must be bytes, not %s' % type(value).__name__) from None


class HttpCall(Call):
    """An HTTP request and its response."""

    def __init__(self, stream: Stream, head: Head, state: Optional[Dict[str, Any]]) -> None:
        super().__init__(stream, head, state)
        self._awaited = head.get('expectsContinue') is True
        self._ended = False

    async def receive(self) -> Message:
        while not self.stream.gone and self._next != 'end':
            frame = None if self._ended else self.stream.next_frame()
            if frame is None:
                if self._awaited and not self._ended:
                    self._awaited = False
                    self.flush()
                    self.stream.write(prefix(protocol.READING, 0))
                await self.stream.news()
            elif frame[0] in (protocol.DATA, protocol.END):
                self._awaited = False
                self._ended = frame[0] == protocol.END or self.stream.next_frame(protocol.END) is not None
                body = frame[2] if frame[0] == protocol.DATA else b''
                return {'type': 'http.request', 'body': body, 'more_body': not self._ended}
        return {'type': 'http.disconnect'}

    async def send(self, message: Message) -> None:
        if not self.stream.gone:
            await self.respond(message)


class WebSocketCall(Call):
    """A WebSocket."""

    last = protocol.CLOSE
    prefix = 'websocket.http'

    def __init__(self, stream: Stream, head: Head, state: Optional[Dict[str, Any]]) -> None:
        super().__init__(stream, head, state)
        self._greeted = False
        self._accepted = False
        #: The code with which it was closed, by whichever side; None: it was not.
        self._code: Optional[int] = None
        self._reason = ''
        self._has_closed = False
        self._parts: List[bytes] = []
        self._size = 0
        self._text = False
        # The parts of a message follow each other, also when several coroutines send.
        self._sending = asyncio.Lock()

    async def receive(self) -> Message:
        if not self._greeted:
            self._greeted = True
            return {'type': 'websocket.connect'}
        while not self._accepted and not self.stream.gone and self._next != 'end':
            await self.stream.news()
        while self._code is None and self._next != 'end':
            frame = self.stream.next_frame()
            if frame is not None:
                message = self._take(*frame)
                if message is not None:
                    return message
            elif self.stream.gone:
                self._code = 1006
            else:
                await self.stream.news()
        return {'type': 'websocket.disconnect', 'code': 1006 if self._code is None else self._code, 'reason': self._reason}

    def _take(self, kind: int, header: Head, body: bytes) -> Optional[Message]:
        """Takes a frame; returns the message that it completes."""
        if kind == protocol.CLOSE:
            self._code = int(header.get('code') or 1005)
            self._reason = str(header.get('reason') or '')
        elif kind == protocol.MESSAGE:
            if not self._parts:
                self._text = header.get('text') is True
            self._parts.append(body)
            self._size += len(body)
            if self._size > MAX_MESSAGE_BYTES:
                self._close(1009, 'message too big')
            elif not header.get('more'):
                data = b''.join(self._parts)
                self._parts, self._size = [], 0
                if not self._text:
                    return {'type': 'websocket.receive', 'bytes': data}
                try:
                    return {'type': 'websocket.receive', 'text': data.decode('utf-8')}
                except UnicodeDecodeError:
                    self._close(1007, 'text that is not UTF-8')
        return None

    async def send(self, message: Message) -> None:
        kind = message['type']
        if not self._accepted:
            await self._answer(kind, message)
        elif kind not in ('websocket.send', 'websocket.close'):
            raise RuntimeError("expected ASGI message 'websocket.send' or 'websocket.close', but got '%s'" % kind)
        elif self.left:
            if kind == 'websocket.send':
                raise ClientGone('the other side of the WebSocket has left')
        elif self._code is not None:
            raise RuntimeError("unexpected ASGI message '%s': the WebSocket is closed" % kind)
        elif kind == 'websocket.send':
            await self._send(message)
        else:
            code = message.get('code')
            async with self._sending:
                self._close(1000 if code is None else int(code), message.get('reason') or '')

    async def _answer(self, kind: str, message: Message) -> None:
        if kind == 'websocket.accept' and self._next == 'start':
            head = {'accept': True, 'subprotocol': message.get('subprotocol'), 'headers': _pairs(message.get('headers'))}
            self.stream.write(pack(protocol.RESPONSE, {}, _encode(head).encode('ascii')))
            self._accepted = True
            self.stream.wake()
        elif kind == 'websocket.close' and self._next == 'start':
            await self.respond({'type': 'websocket.http.response.start', 'status': 403})
            await self.respond({'type': 'websocket.http.response.body'})
        elif kind.startswith('websocket.http.response.') and not self.stream.gone:
            await self.respond(message)
        elif not self.stream.gone:
            raise RuntimeError("unexpected ASGI message '%s' before the WebSocket is accepted" % kind)

    async def _send(self, message: Message) -> None:
        text = message.get('text')
        data = _bytes(message.get('bytes') or b'') if text is None else text.encode('utf-8')
        async with self._sending:
            for at in range(0, len(data) or 1, PIECE_BYTES):
                header: Dict[str, Any] = {'text': text is not None}
                if at + PIECE_BYTES < len(data):
                    header['more'] = True
                self.stream.write(pack(protocol.MESSAGE, header, data[at : at + PIECE_BYTES]))
                await self.stream.drain()

    @property
    def _was_closed(self) -> bool:
        """Whether either side has sent its `close`."""
        return self._has_closed or protocol.CLOSE in self.stream.seen

    def _close(self, code: int, reason: str) -> None:
        self._has_closed = True
        self._code = code
        self._reason = cut_reason(reason)
        self.stream.write(pack(protocol.CLOSE, {'code': code, 'reason': self._reason}))
        self.stream.wake()

    def reloaded(self) -> None:
        if self._accepted and self._code is None and not self.left:
            self._close(_SERVICE_RESTART, 'ended by a reload')

    @property
    def is_cut(self) -> bool:
        return not self._accepted and super().is_cut

    @property
    def is_abandoned(self) -> bool:
        return self.is_cut or (self._accepted and self.stream.gone and not self._was_closed)

    @property
    def left(self) -> bool:
        return self.stream.gone or protocol.CLOSE in self.stream.seen

    def result(self) -> Dict[str, int]:
        if not self._accepted:
            return super().result()
        self._settle(1000)
        return {'code': 1006 if self._code is None else self._code}

    async def finish(self, error: Optional[BaseException]) -> None:
        if not self._accepted:
            await super().finish(error)
            return
        self._settle(1011)
        await self.stream.finish(self.last)

    def _settle(self, code: int) -> None:
        """Finds out how the WebSocket was closed, or closes it."""
        while self._code is None and protocol.CLOSE in self.stream.seen:
            frame = self.stream.next_frame()
            if frame is None:
                break
            if frame[0] == protocol.CLOSE:
                self._take(*frame)
        if self._code is None and not self.stream.gone:
            self._close(code, '')


def cut_reason(text: str) -> str:
    """A reason that a close frame can hold: at most 123 bytes, never cut inside a character."""
    return text.encode('utf-8', 'replace')[:MAX_REASON_BYTES].decode('utf-8', 'ignore')
