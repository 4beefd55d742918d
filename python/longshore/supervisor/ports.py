"""A connection to a port of the container: its bytes as `data` frames, half-closes as `end` frames."""

from __future__ import annotations

import _socket as socket
import errno
import os
import struct
import time
from collections import deque

from ..runner import protocol
from .channel import READ_BYTES, WINDOW_BYTES
from .loop import READ, WRITE

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Optional

    from ..runner.protocol import Header
    from .channel import Channel
    from .loop import Loop, Timer
    from .programs import Program

#: Between tries while nothing listens.
_AGAIN_SECONDS = 0.05
#: Time between the kernel's close of a program's connections and its word that the program has ended.
ENDED_SECONDS = 0.02
#: Bound on one try: a listener whose queue is full does not answer.
_TRY_SECONDS = 5.0
_RESET = struct.pack('ii', 1, 0)
_REFUSED = (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EAFNOSUPPORT, errno.EHOSTUNREACH)


class Dial:
    """Tries 127.0.0.1, then ::1, until `seconds` are over. `told` gets the socket, or None and why."""

    def __init__(
        self, loop: Loop, port: int, seconds: float, told: Callable[[Optional[Any], str, str], object], tries: float = _TRY_SECONDS
    ) -> None:
        self._loop = loop
        self._port = port
        self._told = told
        self._until = time.monotonic() + seconds
        self._tries = tries
        self._socket: Any = None
        self._family = socket.AF_INET
        self._timer: Optional[Timer] = None
        self._text = ''
        self._try()

    def _try(self) -> None:
        address = ('127.0.0.1' if self._family == socket.AF_INET else '::1', self._port)
        try:
            self._socket = socket.socket(self._family, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            self._socket.connect(address)
        except BlockingIOError:
            self._loop.watch(self._socket.fileno(), WRITE, self._on_event)
            self._timer = self._loop.later(self._tries, self._too_slow)
            return
        except OSError as error:
            self._missed(error.errno or 0)
            return
        self._made()

    def _on_event(self, _events: int) -> None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._loop.forget(self._socket.fileno())
        self._stop_timer()
        if number:
            self._missed(number)
        else:
            self._made()

    def _made(self) -> None:
        made, self._socket = self._socket, None
        self._finish(made, '', '')

    def _too_slow(self) -> None:
        self._timer = None
        self.cancel_try()
        self._finish(None, 'failed', 'port %d: no answer within %d s' % (self._port, self._tries))

    def _missed(self, number: int) -> None:
        self.cancel_try()
        if number in _REFUSED and self._family == socket.AF_INET:
            self._family = socket.AF_INET6
            self._try()
            return
        if number not in _REFUSED:
            self._finish(None, 'failed', 'port %d: %s' % (self._port, os.strerror(number)))
        elif time.monotonic() + _AGAIN_SECONDS > self._until:
            self._finish(None, 'refused', 'nothing listens on port %d' % self._port)
        else:
            self._family = socket.AF_INET
            self._timer = self._loop.later(_AGAIN_SECONDS, self._try)

    def cancel_try(self) -> None:
        self._stop_timer()
        if self._socket is not None:
            if self._socket.fileno() >= 0:
                self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def cancel(self) -> None:
        """Nobody wants the connection any longer."""
        self.cancel_try()
        self._told = _no_one

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish(self, made: Optional[Any], code: str, text: str) -> None:
        told, self._told = self._told, _no_one
        told(made, code, text)

    def failed(self) -> None:
        self.cancel_try()
        self._finish(None, 'failed', 'port %d: the connection failed' % self._port)


def has_ended(program: Program) -> bool:
    """Whether its process has, even though its last output is not read yet."""
    program.programs.reap()
    return program.ending or not program.running


class PortConnection:
    """
    Bytes between a channel and a port. `answer` hears once whether there is a connection: a code and a text, else empty.
    `entry` is the container's own program: where it has ended, the end of the port's bytes is no regular end.
    """

    def __init__(
        self,
        loop: Loop,
        channel: Channel,
        port: int,
        wait_seconds: float,
        answer: Callable[[str, str], object],
        entry: Optional[Program] = None,
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._answer = answer
        self._entry = entry
        self._socket: Any = None
        self._fd = -1
        self._mask = 0
        self._out: Deque[Any] = deque()
        self._out_bytes = 0
        #: Whether the near side (the channel), and the port, have ended what they send.
        self.near_ended = False
        self.port_ended = False
        #: The port's side broke the connection off.
        self.broken = False
        self._reset = False
        #: The near side has yet to hear of the port's end.
        self._end_due = False
        self._shut = False
        self._over = False
        channel.on_frame = self._on_frame
        channel.on_room = self._settle
        channel.on_end = self._near_left
        channel.has_unread = self._has_unread
        self._dial = Dial(loop, port, wait_seconds, self._dialled)

    def _dialled(self, made: Optional[Any], code: str, text: str) -> None:
        if made is None:
            self._over = True
            self._answer(code, text)
            return
        self._socket = made
        self._fd = made.fileno()
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer('', '')
        self._write()
        self._settle()

    # ---- from the channel to the port --------------------------------------------------------------------------------
    def _on_frame(self, kind: int, _header: Header, body: bytes) -> None:
        if self.near_ended or self._over:
            return
        if kind == protocol.DATA and body:
            self._out.append(body)
            self._out_bytes += len(body)
            if len(self._out) == 1 and self._socket is not None:
                self._write()
        elif kind == protocol.END:
            self.near_ended = True
        self._settle()

    def _write(self) -> None:
        out = self._out
        while out:
            try:
                sent = self._socket.send(out[0])
            except BlockingIOError:
                return
            except OSError:
                # The port takes nothing more; what it sends is still passed on.
                self.near_ended = True
                self._shut = True
                out.clear()
                self._out_bytes = 0
                return
            self._out_bytes -= sent
            if sent == len(out[0]):
                out.popleft()
            else:
                out[0] = memoryview(out[0])[sent:]

    # ---- from the port to the channel --------------------------------------------------------------------------------
    def _on_event(self, events: int) -> None:
        if events & WRITE:
            self._write()
        if events & ~WRITE and not self.port_ended and not self._channel.full:
            self._read()
        self._settle()

    def _has_unread(self) -> bool:
        if self._socket is None or self._over or self.port_ended:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return False
        return True

    def _read(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._reset = True
            data = b''
        if data:
            self._channel.send_data(data)
        else:
            self.port_ended = True
            if self._entry is not None:
                self._end_due = True
                self._loop.later(ENDED_SECONDS, self._tell_end)
            elif self._reset:
                self.cut()
            else:
                self._channel.send(protocol.END, {})

    def _tell_end(self) -> None:
        """A program that was killed closes its connections as one that has said all does."""
        if self._over:
            return
        self._end_due = False
        ended = self._entry is not None and has_ended(self._entry)
        if ended or (self._reset and not self.near_ended):
            # Bytes that came go out; without an END nobody takes them for the whole.
            self.broken = True
            self._close()
            self._channel.finish()
            return
        self._channel.send(protocol.END, {})
        self._settle()

    # ---- both --------------------------------------------------------------------------------------------------------
    def _settle(self) -> None:
        """Asks the loop for what this connection waits for now."""
        if self._over:
            return
        if self._out_bytes > WINDOW_BYTES:
            self._channel.pause()
        else:
            self._channel.resume()
        if self._socket is None:
            return
        if self.near_ended and not self._out and not self._shut:
            self._shut = True
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        if self.port_ended and self._shut and not self._end_due:
            self._close()
            self._channel.finish()
            return
        if self._channel.ended and self._shut and not self._end_due:
            self._close()
            return
        mask = (READ if not self.port_ended and not self._channel.full else 0) | (WRITE if self._out else 0)
        if mask == self._mask:
            return
        # A port that has hung up would be reported again and again to one who waits for nothing.
        if mask == 0:
            self._loop.forget(self._fd)
        elif self._mask == 0:
            self._loop.forget(self._fd)
            self._loop.watch(self._fd, mask, self._on_event)
        else:
            self._loop.change(self._fd, mask)
        self._mask = mask

    def _near_left(self) -> None:
        """The channel's other side has closed."""
        if self._over:
            return
        if self.near_ended and self._socket is not None:
            self.port_ended = True
            self._settle()
        else:
            self.cut()

    def cut(self) -> None:
        """Breaks the connection off, so that nobody takes what came for the whole."""
        if self._over:
            return
        if self._socket is None:
            self._dial.cancel()
            self._over = True
        else:
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            except OSError:
                pass
            self._close()
        self._channel.close()

    def _close(self) -> None:
        self._over = True
        self._loop.forget(self._fd)
        self._socket.close()

    def failed(self) -> None:
        self.cut()


def _no_one(made: Optional[Any], _code: str, _text: str) -> None:
    if made is not None:
        made.close()
