"""A WebSocket to an installation, for programs in sandboxes. Standard library only; loaded at its first use."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import struct
import time
from http.client import HTTPException
from typing import Any, Dict, Optional, Tuple, Union
from urllib import parse, request

from .client import At, GatewayError, trust

_CONNECT_SECONDS = 30.0
#: Silence after which the other end is asked for a sign of life, and how often before it counts as gone.
_SILENT_SECONDS = 20.0
_ASKED = 3
_MAX_HEAD_BYTES = 64 << 10
_MAX_MESSAGE_BYTES = 16 << 20
_PIECE_BYTES = 1 << 18
#: A constant of RFC 6455.
_ACCEPTED = b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10
Message = Union[str, bytes]


class Closed(GatewayError):
    """The connection ended; `code` is that of the closing frame, 1006 without one."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class WebSocket:
    """A connection that is open. For one thread at a time."""

    def __init__(self, at: At, path: str, what: str) -> None:
        """what: start of error texts. Raises GatewayError: `status` is that of a refusal, 0 where nobody answers."""
        self._what = what
        self._buffer = bytearray()
        self._asked = 0
        #: The kind, and what came of a message in several frames.
        self._kind = 0
        self._whole = b''
        url, token = at
        try:
            self._socket = _connected(url)
        except (OSError, HTTPException) as problem:
            raise GatewayError('%s: %s does not answer (%s)' % (what, url, problem)) from None
        try:
            self._shake_hands(url, token, path)
        except BaseException:
            self._socket.close()
            raise

    def _shake_hands(self, url: str, token: str, path: str) -> None:
        parts = parse.urlsplit(url)
        key = base64.b64encode(os.urandom(16))
        fields = {
            'Host': parts.netloc.rpartition('@')[2],
            'Authorization': 'Bearer ' + token,
            'Connection': 'Upgrade',
            'Upgrade': 'websocket',
            'Sec-WebSocket-Version': '13',
            'Sec-WebSocket-Key': key.decode('ascii'),
        }
        lines = ['GET %s%s HTTP/1.1' % (parts.path, path), *('%s: %s' % field for field in fields.items()), '', '']
        try:
            self._socket.sendall('\r\n'.join(lines).encode('utf-8'))
            status, answered, body = self._head()
        except OSError as problem:
            raise GatewayError('%s: %s does not answer (%s)' % (self._what, url, problem)) from None
        if status != 101:
            raise GatewayError('%s: %s' % (self._what, _refusal(status, body)), status)
        expected = base64.b64encode(hashlib.sha1(key + _ACCEPTED).digest()).decode('ascii')
        if answered.get('sec-websocket-accept') != expected:
            raise GatewayError('%s: what answers at %s is no WebSocket' % (self._what, url))

    def _head(self) -> Tuple[int, Dict[str, str], bytes]:
        """Status and fields of the answer, and the body of a refusal."""
        until = time.monotonic() + _CONNECT_SECONDS
        end = -1
        while end < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES or not self._received(until):
                raise OSError('the connection ended before its answer')
            end = self._buffer.find(b'\r\n\r\n')
        first, *lines = bytes(self._buffer[:end]).decode('latin-1').split('\r\n')
        del self._buffer[: end + 4]
        pairs = [line.partition(':') for line in lines]
        fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
        status = int(first.split(' ')[1]) if first.count(' ') > 0 and first.split(' ')[1].isdigit() else 0
        length = fields.get('content-length', '')
        if status != 101 and length.isdigit():
            while len(self._buffer) < min(int(length), _MAX_HEAD_BYTES) and self._received(until):
                pass
        return status, fields, bytes(self._buffer) if status != 101 else b''

    def _received(self, until: float) -> bool:
        """Reads what has come. False: the connection ended. Raises socket.timeout at `until`, a time of
        time.monotonic()."""
        self._socket.settimeout(max(0.001, until - time.monotonic()))
        data = self._socket.recv(_PIECE_BYTES)
        self._buffer += data
        return len(data) > 0

    def send(self, message: Message) -> None:
        """Raises GatewayError where the connection is gone."""
        if isinstance(message, str):
            self._send(_TEXT, message.encode('utf-8'))
        else:
            self._send(_BINARY, message)

    def _send(self, kind: int, data: bytes) -> None:
        mask = os.urandom(4)
        size = len(data)
        if size < 126:
            head = struct.pack('!BB', 0x80 | kind, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack('!BBH', 0x80 | kind, 0xFE, size)
        else:
            head = struct.pack('!BBQ', 0x80 | kind, 0xFF, size)
        try:
            self._socket.settimeout(_CONNECT_SECONDS)
            self._socket.sendall(head + mask + _masked(data, mask))
        except OSError as problem:
            raise Closed('%s: the connection ended (%s)' % (self._what, problem), 1006) from problem

    def receive(self, until: Optional[float] = None) -> Optional[Message]:
        """The next message, text or bytes. None: there was none until then, a time of time.monotonic(). Raises Closed."""
        while True:
            frame = self._frame(until)
            if frame is None:
                return None
            is_last, kind, data = frame
            if kind == _PING:
                self._send(_PONG, data)
            elif kind == _CLOSE:
                code = struct.unpack('!H', data[:2])[0] if len(data) >= 2 else 1005
                self.close()
                raise Closed('%s: %s' % (self._what, data[2:].decode('utf-8', 'replace') or 'the connection was closed'), code)
            elif kind in (0, _TEXT, _BINARY):
                self._kind = kind or self._kind
                self._whole += data
                if len(self._whole) > _MAX_MESSAGE_BYTES:
                    raise Closed('%s: a message is too long' % self._what, 1009)
                if is_last:
                    whole, self._whole = self._whole, b''
                    return whole.decode('utf-8', 'replace') if self._kind == _TEXT else whole

    def _frame(self, until: Optional[float]) -> Optional[Tuple[bool, int, bytes]]:
        while True:
            found = self._taken()
            if found is not None:
                return found
            silent = time.monotonic() + _SILENT_SECONDS
            try:
                if not self._received(silent if until is None else min(silent, until)):
                    raise Closed('%s: the connection ended' % self._what, 1006)
                self._asked = 0
            except socket.timeout:
                if until is not None and time.monotonic() >= until:
                    return None
                if self._asked >= _ASKED:
                    raise Closed('%s: nothing came for %d s' % (self._what, _SILENT_SECONDS * _ASKED), 1006) from None
                self._asked += 1
                self._send(_PING, b'')
            except OSError as problem:
                raise Closed('%s: the connection ended (%s)' % (self._what, problem), 1006) from problem

    def _taken(self) -> Optional[Tuple[bool, int, bytes]]:
        """The first frame that came whole. A server's frames have no mask."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, at = buffer[1] & 0x7F, 2
        if size >= 126:
            at = 4 if size == 126 else 10
            if len(buffer) < at:
                return None
            size = struct.unpack('!H' if at == 4 else '!Q', buffer[2:at])[0]
        if size > _MAX_MESSAGE_BYTES:
            raise Closed('%s: a message is too long' % self._what, 1009)
        if len(buffer) < at + size:
            return None
        first = buffer[0]
        data = bytes(buffer[at : at + size])
        del buffer[: at + size]
        return bool(first & 0x80), first & 0x0F, data

    def close(self) -> None:
        """Ends the connection in the way that says so to the other end."""
        try:
            self._send(_CLOSE, struct.pack('!H', 1000))
        except GatewayError:
            pass
        self._socket.close()


def _masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, 'big') ^ int.from_bytes(repeated, 'big')).to_bytes(size, 'big')


def _refusal(status: int, body: bytes) -> str:
    try:
        found = json.loads(body.decode('utf-8'))
        text = found.get('error') or found.get('message') or found.get('errorMsg') or ''
    except (ValueError, AttributeError):
        text = ''
    return str(text) or 'it was answered %d' % status


def _connected(url: str) -> Any:
    """A socket to the installation, by the proxy of the environment where there is one."""
    from http.client import HTTPConnection, HTTPSConnection

    parts = parse.urlsplit(url)
    host = parts.hostname or ''
    port = parts.port or (443 if parts.scheme == 'https' else 80)
    local = host == 'localhost' or host == '::1' or host.startswith('127.')
    proxy = '' if local or request.proxy_bypass(host) else request.getproxies().get(parts.scheme, '')
    by = parse.urlsplit(proxy if '://' in proxy else 'http://' + proxy) if proxy else None
    made: HTTPConnection
    to_host, to_port = (by.hostname or '', by.port or 80) if by is not None else (host, port)
    if parts.scheme == 'https':
        made = HTTPSConnection(to_host, to_port, timeout=_CONNECT_SECONDS, context=trust())
    else:
        made = HTTPConnection(to_host, to_port, timeout=_CONNECT_SECONDS)
    if by is not None:
        made.set_tunnel(host, port)
    made.connect()
    made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made.sock
