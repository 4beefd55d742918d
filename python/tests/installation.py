"""Stands in for an installation at the outermost edge: answers of gateway routes, and a WebSocket that plays messages."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, List, Optional, Tuple, Union
from urllib import parse

Answer = Union[Dict[str, Any], bytes, Tuple[int, Any]]
_ACCEPTED = b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'


class Installation(ThreadingHTTPServer):
    """`answers` has what is answered by method and path, without the query: JSON, bytes, or a status with either; a
    function is given the request. `seen` has method, path with query, and body of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self.seen: List[Tuple[str, str, Any]] = []
        self.answers: Dict[str, Any] = {}
        #: Is given the first message of a WebSocket, and the means to speak on it.
        self.play: Optional[Callable[[Dict[str, Any], 'Speaker'], None]] = None
        self.attached: List[Dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return 'http://127.0.0.1:%d' % self.server_address[1]

    def bodies(self, path: str) -> List[Any]:
        return [body for _, seen, body in self.seen if seen == path]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that has left is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class Speaker:
    """The server's end of a WebSocket."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def send(self, message: Union[Dict[str, Any], bytes], pieces: int = 1) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode('utf-8')
        size = len(data) // pieces
        for piece in range(pieces):
            kind = 0 if piece else 2 if isinstance(message, bytes) else 1
            is_last = piece == pieces - 1
            self.frame(kind, data[piece * size :] if is_last else data[piece * size : (piece + 1) * size], is_last)

    def frame(self, kind: int, data: bytes = b'', is_last: bool = True) -> None:
        first = (0x80 if is_last else 0) | kind
        size = len(data)
        if size < 126:
            head = struct.pack('!BB', first, size)
        else:
            head = struct.pack('!BBH', first, 126, size) if size < 1 << 16 else struct.pack('!BBQ', first, 127, size)
        self._handler.wfile.write(head + data)
        self._handler.wfile.flush()

    def receive(self) -> Tuple[int, bytes]:
        """Kind and unmasked bytes of a frame. Raises EOFError at the end."""
        head = self._handler.rfile.read(2)
        if len(head) < 2:
            raise EOFError
        assert head[1] & 0x80, 'a frame of a client has a mask'
        size = head[1] & 0x7F
        if size >= 126:
            size = struct.unpack('!H' if size == 126 else '!Q', self._handler.rfile.read(2 if size == 126 else 8))[0]
        mask = self._handler.rfile.read(4)
        data = self._handler.rfile.read(size)
        return head[0] & 0x0F, bytes(one ^ mask[at % 4] for at, one in enumerate(data))


class _Handler(BaseHTTPRequestHandler):
    server: Installation
    protocol_version = 'HTTP/1.1'

    def handle_any(self) -> None:
        if self.headers.get('Upgrade') == 'websocket':
            self._upgrade()
            return
        body: Any = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        if self.headers.get('Content-Type') == 'application/json':
            body = json.loads(body) if body else None
        self.server.seen.append((self.command, self.path, body))
        # A signed address is its own credential.
        wanted = None if self.path.startswith('/signed') else 'Bearer t'
        assert self.headers['Authorization'] == wanted, self.headers['Authorization']
        found = self.server.answers.get('%s %s' % (self.command, self.path.partition('?')[0]), (404, {'message': 'no such route'}))
        if callable(found):
            found = found(dict(parse.parse_qsl(self.path.partition('?')[2])), body)
        status, content = found if isinstance(found, tuple) else (200, found)
        data = content if isinstance(content, bytes) else json.dumps(content).encode('utf-8')
        self.send_response(status)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = handle_any

    def _upgrade(self) -> None:
        key = self.headers['Sec-WebSocket-Key'].encode('ascii')
        self.server.seen.append(('WS', self.path, self.headers['Authorization']))
        self.send_response(101)
        self.send_header('Upgrade', 'websocket')
        self.send_header('Connection', 'Upgrade')
        self.send_header('Sec-WebSocket-Accept', base64.b64encode(hashlib.sha1(key + _ACCEPTED).digest()).decode('ascii'))
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        speaker = Speaker(self)
        _, first = speaker.receive()
        asked = json.loads(first)
        self.server.attached.append(asked)
        assert self.server.play is not None
        self.server.play(asked, speaker)

    def log_message(self, *args: Any) -> None:
        pass
