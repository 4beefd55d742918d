"""Frames of a request on a blocking connection, and refusals as the platform's API words them."""

from __future__ import annotations

import json
import os

from ..runner import protocol
from ..runner.protocol import PIECE_BYTES, PREFIX, FrameCutter, check_prefix, pack, prefix

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    import socket
    from typing import Any, Dict, Iterator, List, Optional, Protocol, Tuple

    Headers = List[Tuple[str, str]]

    class Digest(Protocol):
        def update(self, data: memoryview) -> None: ...


#: More than a connection holds, so that a read takes all that waits.
_READ_BYTES = 256 * 1024
#: With less room behind them, bytes that wait are moved to the begin before the next read.
_LEAST_ROOM = 64 * 1024


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
        #: Bytes that were read and not taken: from `_at` to `_end`. The memory is used again for each read.
        self._buffer = memoryview(bytearray(max(_READ_BYTES, len(first))))
        self._at, self._end = 0, len(first)
        self._buffer[: len(first)] = first
        self._ended = False

    def head(self) -> Dict[str, Any]:
        kind, _header, body = self._next()
        if kind != protocol.REQUEST:
            raise Cut
        head = json.loads(body)
        if not isinstance(head, dict):
            raise Cut
        return head

    def body(self) -> Iterator[memoryview]:
        """The pieces of the request's body, to its clean end; raises Cut where it breaks off.

        A piece holds until the next one is asked for.
        """
        while not self._ended:
            length, kind, head_length = self._prefix()
            if kind != protocol.DATA:
                self._next()
                self._ended = kind == protocol.END
                continue
            self._require(PREFIX.size + head_length)
            self._at += PREFIX.size + head_length
            left = length - 3 - head_length
            while left > 0:
                # As much as the frame has, since each piece costs its receiver some calls.
                self._require(min(left, PIECE_BYTES))
                count = min(left, self._end - self._at)
                piece = self._buffer[self._at : self._at + count]
                self._at += count
                left -= count
                yield piece

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

    def send_framed(self, room: memoryview) -> None:
        """Sends a piece of the answer's body, with room for its prefix in front."""
        PREFIX.pack_into(room, 0, len(room) - PREFIX.size + 3, protocol.DATA, 0)
        self._connection.sendall(room)

    def _prefix(self) -> Tuple[int, int, int]:
        self._require(PREFIX.size)
        length, kind, head_length = PREFIX.unpack_from(self._buffer, self._at)
        check_prefix(length, head_length)
        return length, kind, head_length

    def _next(self) -> Any:
        """The next frame as a whole."""
        size = 4 + self._prefix()[0]
        self._require(size)
        (frame,) = FrameCutter().feed(bytes(self._buffer[self._at : self._at + size]))
        self._at += size
        return frame

    def _require(self, count: int) -> None:
        """Reads until so many bytes wait; raises Cut where no more come."""
        while self._end - self._at < count:
            if self._at == self._end:
                self._at = self._end = 0
            elif self._at > 0 and (self._at + count > len(self._buffer) or len(self._buffer) - self._end < _LEAST_ROOM):
                waiting = bytes(self._buffer[self._at : self._end])
                self._at, self._end = 0, len(waiting)
                self._buffer[: self._end] = waiting
            if count > len(self._buffer):
                larger = memoryview(bytearray(count))
                larger[: self._end] = self._buffer[: self._end]
                self._buffer = larger
            read = self._connection.recv_into(self._buffer[self._end :])
            if read == 0:
                raise Cut
            self._end += read


class Out:
    """An answer's body: small parts are joined, and bytes of files are read to where they are sent from.

    The last ones wait for `flush`.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._room = memoryview(bytearray(PREFIX.size + PIECE_BYTES))
        self._end = PREFIX.size

    def write(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            count = min(len(data) - at, self._free())
            self._room[self._end : self._end + count] = data[at : at + count]
            self._end += count
            at += count

    def line(self, value: Dict[str, Any]) -> None:
        self.write(json.dumps(value).encode('utf-8') + b'\n')

    def read(self, fd: int, at: int, most: int, digest: Optional[Digest] = None) -> int:
        """Takes bytes of a file from `at` on. Returns how many; 0: the file ends there."""
        count = min(most, self._free())
        part = self._room[self._end : self._end + count]
        count = os.preadv(fd, [part], at)
        if digest is not None:
            digest.update(part[:count])
        self._end += count
        return count

    def _free(self) -> int:
        if self._end == len(self._room):
            self.flush()
        return len(self._room) - self._end

    def flush(self) -> None:
        if self._end > PREFIX.size:
            self._wire.send_framed(self._room[: self._end])
            self._end = PREFIX.size
