"""A task's own connection for the bytes of a streamed call, on `streams.sock`: frames with back-pressure both ways.

Must stay true: unread input and unsent output are bounded, each to about 256 KiB and a frame. After the other side has
closed, sending has no effect.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque

from . import forks, protocol
from .protocol import PIECE_BYTES, FrameCutter, FrameError, pack, prefix

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, List, Optional, Set, Union

    from .protocol import Frame
    from .task import Task

#: Bounds on unread input (reading pauses above it) and on unsent output (senders wait above it).
WINDOW_BYTES = 256 * 1024
#: Bodies up to this size are sent in one piece with their frame's beginning.
_JOINED_BYTES = 64 * 1024
#: A frame's share of the window besides its body, so that many small frames are bounded, too.
_FRAME_COST = 256
_DIAL_SECONDS = 5.0
#: Time for the other side to end a call whose input was not read to its end. The end of the answer may wait in the
#: socket for a slow caller, whom the scheduler cuts off after 300 s without a read.
_LINGER_SECONDS = 330.0


#: Connections that a process forked by the app must not hold.
_open: Set[Stream] = set()


def descriptors() -> List[int]:
    return [stream._socket.fileno() for stream in _open]


class Stream(asyncio.Protocol):
    """The runner's end of one connection. Made in a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_event_loop()
        self._transport: Any = None
        self._socket: Any = None
        self._cutter = FrameCutter(splits_data=True)
        self._frames: Deque[Frame] = deque()
        self._unread = 0
        self._reading = True
        self._waiters: List[Any] = []
        self._writable: List[Any] = []
        self._full = False
        #: Whether the other side has closed, or the connection broke.
        self.gone = False
        #: Called once when that happens.
        self.on_gone: Callable[[], object] = _nothing
        #: Kinds of frames that have arrived, read or not.
        self.seen: Set[int] = set()
        self._finished = False
        #: Ends a connection whose other side does not.
        self._late: Any = None

    # ---- called by the event loop ------------------------------------------------------------------------------------
    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._socket = transport.get_extra_info('socket')
        _open.add(self)
        transport.set_write_buffer_limits(high=WINDOW_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._finished:
            return
        try:
            frames = self._cutter.feed(data)
        except FrameError:
            self.abort()
            return
        for frame in frames:
            self._unread += len(frame[2]) + _FRAME_COST
            self.seen.add(frame[0])
        self._frames.extend(frames)
        if self._unread > WINDOW_BYTES and self._reading:
            self._reading = False
            self._transport.pause_reading()
        if frames:
            self.wake()

    def eof_received(self) -> Optional[bool]:
        self.lost()
        return None

    def connection_lost(self, _error: Optional[Exception]) -> None:
        _open.discard(self)
        if self._late is not None:
            self._late.cancel()  # else every call of the last minutes would stay in memory
            self._late = None
        self.lost()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _release(self._writable)

    # ---- reading -----------------------------------------------------------------------------------------------------
    def next_frame(self, kind: int = 0) -> Optional[Frame]:
        """The oldest unread frame, if there is one, and if it is of this kind where one is named."""
        if not self._frames or (kind and self._frames[0][0] != kind):
            return None
        frame = self._frames.popleft()
        self._unread -= len(frame[2]) + _FRAME_COST
        if not self._reading and self._unread <= WINDOW_BYTES // 2 and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()
        return frame

    async def news(self) -> None:
        """Waits for a frame, for the end of the connection, or for `wake`."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        _release(self._waiters)

    # ---- sending -----------------------------------------------------------------------------------------------------
    def write(self, data: Union[bytes, memoryview]) -> None:
        """Queues bytes without waiting."""
        if not self.gone and not self._finished:
            self._transport.write(data)

    async def drain(self) -> None:
        """Waits until there is room for more, or nobody reads any longer."""
        while self._full and not self.gone:
            waiter = self._loop.create_future()
            self._writable.append(waiter)
            await waiter

    async def send_body(self, kind: int, body: bytes, before: bytes = b'', after: bytes = b'') -> None:
        """Sends a body in frames of at most 256 KiB, between packed frames, and waits for room."""
        if len(body) <= _JOINED_BYTES:
            self.write(b''.join((before, prefix(kind, len(body)), body, after)) if body else before + after)
            await self.drain()
            return
        if before:
            self.write(before)
        view = memoryview(body)
        for at in range(0, len(body), PIECE_BYTES):
            piece = view[at : at + PIECE_BYTES]
            self.write(prefix(kind, len(piece)))
            self.write(piece)
            await self.drain()
        if after:
            self.write(after)
            await self.drain()

    # ---- the end -----------------------------------------------------------------------------------------------------
    def lost(self) -> None:
        """Notes that nobody listens any longer."""
        self.gone = True
        self.wake()
        _release(self._writable)
        told, self.on_gone = self.on_gone, _nothing
        told()

    def abort(self) -> None:
        """Closes at once; queued output is dropped."""
        self.lost()
        self._transport.abort()

    def drop(self) -> None:
        """Closes at once, unless `finish` has sent everything and closes by itself."""
        if not self._finished:
            self.abort()

    async def finish(self, last: int) -> None:
        """Sends what is queued, then closes. `last` is the kind of the peer's last frame."""
        if self._transport.is_closing():
            return
        self._transport.set_write_buffer_limits(high=0)
        await self.drain()
        self._finished = True
        self._frames.clear()
        if self.gone or last in self.seen:
            self._transport.close()
            return
        # Closing with unread input would break the connection, and the peer might lose the end of the answer.
        self._transport.write_eof()
        if not self._reading:
            self._transport.resume_reading()
        self._late = self._loop.call_later(_LINGER_SECONDS, self._transport.abort)


async def dial(path: str, task: Task) -> Stream:
    """Opens the connection of a task and says whose it is. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        until = time.monotonic() + _DIAL_SECONDS
        while True:
            try:
                connection.connect(path)
                break
            except BlockingIOError:  # a full backlog, which asyncio's own connect takes for success
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.01)
        # A new socket has room for it. Sent before the loop knows the connection, it is there a turn earlier.
        try:
            connection.sendall(pack(protocol.STREAM, {'version': protocol.VERSION, 'taskId': task.task_id, 'token': task.token}))
        except ConnectionError:
            pass  # the loop will tell of the end
        stream = Stream()
        await asyncio.get_event_loop().create_unix_connection(lambda: stream, sock=connection)
    except BaseException:
        connection.close()
        raise
    return stream


def _release(waiters: List[Any]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


def _nothing() -> None:
    pass
