"""A connection that carries frames, in the loop.

Must stay true: frames are never torn; what waits for the socket is bounded by its senders, who stop while `full`. After the other
side has closed, sending has no effect.
"""

from __future__ import annotations

import _socket as socket
import time
from collections import deque

from ..runner import protocol
from ..runner.protocol import FrameCutter, FrameError, pack, prefix
from .loop import GONE, READ, WRITE, note, nothing

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Iterable, List, Optional, Set, Tuple

    from ..runner.protocol import Frame, Header
    from .loop import Loop, Timer

    OnFrame = Callable[[int, Header, bytes], object]

#: Senders stop above it.
WINDOW_BYTES = 256 * 1024
READ_BYTES = 256 * 1024
FIRST_DELAY = 0.1
LAST_DELAY = 1.0
#: Time for the other side to end a connection whose last frame was sent.
_LINGER_SECONDS = 30.0
#: Time for what a connection brought before it ended to be taken.
_REST_SECONDS = 60.0


def dial(path: str) -> Optional[Any]:
    """Connects without waiting; None: nobody takes connections there now."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


class Channel:
    """One connection. `on_frame` gets its frames, `on_end` hears once that nothing more comes; either may be replaced."""

    _open: Set[Channel] = set()

    @classmethod
    def any_unsent(cls) -> bool:
        """Whether bytes of any connection wait for its socket, or have still to be read for it."""
        return any(channel.unsent or channel.has_unread() for channel in cls._open)

    def __init__(self, loop: Loop, connection: Any, on_frame: OnFrame, on_end: Callable[[], object]) -> None:
        self.on_frame = on_frame
        self.on_end = on_end
        #: Whether bytes for this connection lie in the kernel, where a program that has ended left them.
        self.has_unread: Callable[[], bool] = lambda: False
        #: Called when there is room again.
        self.on_room: Callable[[], object] = nothing
        #: Called with the text of bytes that are no frames, before `on_end`.
        self.on_bad: Callable[[str], object] = nothing_with
        #: Called once when the first bytes have come.
        self.on_some: Callable[[], object] = nothing
        #: Called once when all was sent, after `finish`.
        self.on_sent: Callable[[], object] = nothing
        #: Called once when the socket was closed.
        self.on_closed: List[Callable[[], object]] = []
        self.ended = False
        self.closed = False
        #: When the socket last took bytes, or began to have some to take.
        self.moved_at = 0.0
        self._loop = loop
        self._socket = connection
        self._fd: int = connection.fileno()
        self._cutter = FrameCutter()
        self._frames: Deque[Frame] = deque()
        self._out: Deque[Any] = deque()
        self._out_bytes = 0
        self._reading = True
        self._finishing = False
        self._hung_up = False
        self._mask = READ
        self._timer: Optional[Timer] = None
        loop.watch(self._fd, READ, self._on_event)
        self._open.add(self)

    # ---- sending -----------------------------------------------------------------------------------------------------
    @property
    def full(self) -> bool:
        return self._out_bytes > WINDOW_BYTES

    @property
    def unsent(self) -> int:
        return self._out_bytes

    def send(self, kind: int, header: Header, body: bytes = b'') -> None:
        self._queue(pack(kind, header, body))

    def send_data(self, body: bytes) -> None:
        """A `data` frame without a header, whose body is not copied."""
        self._queue(prefix(protocol.DATA, len(body)), body)

    def send_packed(self, frames: bytes) -> None:
        self._queue(frames)

    def _queue(self, *parts: bytes) -> None:
        if self.ended or self._finishing or self._hung_up:
            return
        if not self._out:
            self.moved_at = time.monotonic()
        waits = bool(self._out)
        for part in parts:
            if part:
                self._out.append(part)
                self._out_bytes += len(part)
        if not waits:
            self._flush()
        self._settle()

    def _flush(self) -> None:
        out = self._out
        while out:
            try:
                sent = self._socket.sendmsg([out[at] for at in range(min(len(out), 16))])
            except BlockingIOError:
                return
            except OSError:
                self._hang_up()
                return
            self.moved_at = time.monotonic()
            self._out_bytes -= sent
            while sent > 0:
                first = out[0]
                if sent >= len(first):
                    sent -= len(first)
                    out.popleft()
                else:
                    out[0] = memoryview(first)[sent:]
                    sent = 0

    # ---- reading -----------------------------------------------------------------------------------------------------
    def pause(self) -> None:
        """Reads nothing further until `resume`."""
        self._reading = False
        self._settle()

    def resume(self) -> None:
        if not self._reading:
            self._reading = True
            self._settle()

    def _on_event(self, events: int) -> None:
        if events & WRITE and not self.closed:
            was_full = self.full
            self._flush()
            if was_full and not self.full:
                self.on_room()
        if self.closed:
            return
        if self._reading and events & (READ | GONE):
            self._receive()
        elif events & GONE:
            self._hang_up()
        self._settle()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b''
        if not data:
            self._end()
            return
        some, self.on_some = self.on_some, nothing
        some()
        if self._finishing:
            return
        try:
            frames = self._cutter.feed(data)
        except FrameError as error:
            self.on_bad(str(error))
            if not self._finishing:
                self._end()
            return
        self.deliver(frames)

    def deliver(self, frames: Iterable[Frame]) -> None:
        """Hands frames over, until the connection is over for us."""
        self._frames.extend(frames)
        while self._frames and not self.ended and not self._finishing:
            self.on_frame(*self._frames.popleft())

    # ---- the end -----------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        """Sends what is queued, then ends the connection; the other side closes it."""
        if not self._finishing and not self.closed:
            self._finishing = True
            self._reading = True
            self.on_end = nothing
            if self._timer is None:
                self._timer = self._loop.later(_LINGER_SECONDS, self.close)
            self._settle()

    def parts(self) -> Tuple[Any, FrameCutter, Deque[Frame]]:
        """For a forked process: the socket, what it brought of the next frame, and frames not handed over."""
        return self._socket, self._cutter, self._frames

    def close(self) -> None:
        """Ends the connection at once; queued bytes are dropped."""
        if self.closed:
            return
        self.closed = self.ended = True
        self._drop_out()
        self._open.discard(self)
        self._loop.forget(self._fd)
        self._socket.close()
        if self._timer is not None:
            self._timer.cancel()
        told, self.on_closed = self.on_closed, []
        for call in told:
            call()

    def failed(self) -> None:
        """An error in a call for this connection."""
        self._end()
        self.close()

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._drop_out()
        told, self.on_end = self.on_end, nothing
        try:
            told()
        except Exception as error:
            note('%s: %s' % (type(error).__name__, error))
        self.close()

    def _hang_up(self) -> None:
        """Nobody reads what we send; what came before may still be read."""
        self._hung_up = True
        self._drop_out()
        if self._timer is None:
            self._timer = self._loop.later(_REST_SECONDS, self.close)

    def _drop_out(self) -> None:
        self._out.clear()
        self._out_bytes = 0

    def _settle(self) -> None:
        """Asks the loop for what this connection waits for now."""
        if self.closed:
            return
        if self._finishing and not self._out and not self._hung_up:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            self._hung_up = True
            self.on_sent()
        mask = (READ if self._reading else 0) | (WRITE if self._out else 0)
        if self._hung_up and not self._reading:
            # The end of the connection would be reported again and again.
            self._loop.forget(self._fd)
            self._mask = -1
            return
        if self._mask == -1:
            self._loop.watch(self._fd, mask, self._on_event)
        elif mask != self._mask:
            self._loop.change(self._fd, mask)
        self._mask = mask


def nothing_with(_text: str) -> None:
    pass
