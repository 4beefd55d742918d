"""Frames of a request on a blocking connection, and refusals as the platform's API words them."""

from __future__ import annotations

import json
from collections import deque

from ..runner import protocol
from ..runner.protocol import PIECE_BYTES, FrameCutter, pack, prefix

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    import socket
    from typing import Any, Deque, Dict, Iterator, List, Optional, Tuple

    Headers = List[Tuple[str, str]]


class Cut(Exception):
    """The other side has closed, or must see that the transfer broke off."""


class Refusal(Exception):
    """An answer instead of the file: status, code and text of an error, with further headers."""

    def __init__(self, status: int, code: str, message: str, headers: Optional[Headers] = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers: Headers = headers or []


class Wire:
    """One connection: a request's head, its body, and the answer."""

    def __init__(self, connection: socket.socket, first: bytes) -> None:
        self._connection = connection
        self._cutter = FrameCutter()
        self._frames: Deque[Any] = deque(self._cutter.feed(first))
        self._ended = False

    def head(self) -> Dict[str, Any]:
        kind, _header, body = self._next()
        if kind != protocol.REQUEST:
            raise Cut
        head = json.loads(body)
        if not isinstance(head, dict):
            raise Cut
        return head

    def body(self) -> Iterator[bytes]:
        """The pieces of the request's body, to its clean end; raises Cut where it breaks off."""
        while not self._ended:
            kind, _header, body = self._next()
            if kind == protocol.END:
                self._ended = True
            elif kind == protocol.DATA:
                yield body

    def wants_body(self) -> None:
        """Tells a sender that waits for `100 Continue` to begin."""
        self._connection.sendall(pack(protocol.READING, {}))

    def answer(self, status: int, headers: Headers) -> None:
        """Sends the head of the answer."""
        head = json.dumps({'status': status, 'headers': headers}, ensure_ascii=False).encode('utf-8')
        self._connection.sendall(pack(protocol.RESPONSE, {}, head))

    def send(self, data: bytes) -> None:
        """Sends bytes of the answer's body, as fast as the other side takes them."""
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            self._connection.sendall(prefix(protocol.DATA, len(piece)) + piece)

    def end(self) -> None:
        self._connection.sendall(pack(protocol.END, {}))

    def answer_json(self, status: int, headers: Headers, value: Any) -> None:
        body = json.dumps(value).encode('utf-8')
        length = ('content-length', str(len(body)))
        self.answer(status, [*headers, ('content-type', 'application/json'), length])
        self.send(body)
        self.end()

    def refuse(self, refusal: Refusal, request_id: str) -> None:
        value = {'message': refusal.message, 'code': refusal.code, 'request_id': request_id}
        self.answer_json(refusal.status, refusal.headers, value)

    def _next(self) -> Any:
        while not self._frames:
            data = self._connection.recv(PIECE_BYTES)
            if not data:
                raise Cut
            self._frames.extend(self._cutter.feed(data))
        return self._frames.popleft()
