"""The runner's end of one connection to the agent.

A single thread reads, and it alone dials again; any thread may send. Must stay true: frames are never torn. Results are
never dropped here (their owner keeps them and sends them again after a new hello). A log line never makes its writer
wait.
"""

from __future__ import annotations

import _socket as socket  # `socket` adds selectors and enums (3 ms) that a plain connection does not need
import os
import select
import threading
import time
from collections import deque

from . import forks, protocol
from .protocol import PREFIX, FrameCutter, FrameError, encode_header, pack

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Iterable, List, Optional, Tuple

    from .protocol import Frame, Header

#: Bound on log frames that wait for the socket; further ones are counted and dropped.
MAX_LOG_BYTES = 1024 * 1024
MAX_LINE_BYTES = 64 * 1024
FIRST_DELAY = 0.1
LAST_DELAY = 1.0
_DIAL_TIMEOUT = 5.0
_READ_BYTES = 256 * 1024


class Link:
    """
    A connection to the agent that dials again after each break.

    `hello` returns the header of each hello, `greeting` the frames to send after it.
    """

    def __init__(self, path: str, hello: Callable[[], Header], greeting: Callable[[], Iterable[bytes]] = lambda: ()) -> None:
        self.path = path
        self.hello = hello
        self.greeting = greeting
        self.connected = False
        self.next_dial_at = 0.0
        #: Descriptor that a signal makes readable (`signal.set_wakeup_fd`); -1: signals do not concern this reader.
        self.wake_fd = -1
        self._poller: Any = None
        self._delay = FIRST_DELAY
        self._socket: Optional[socket.socket] = None
        self._cutter = FrameCutter()
        self._sending = threading.Lock()
        self._out = bytearray()
        self._logs: Deque[Any] = deque()
        self._log_bytes = 0
        #: Task and stream of the last line that was sent, and the header of its frame.
        self._log_of: Any = None
        self._log_head = b''
        self._dropped = 0
        self._parent = os.getppid()
        forks.hold(lambda: (self.fileno(), self.wake_fd))

    # ---- dialling: the reading thread only ---------------------------------------------------------------------------
    def dial(self) -> bool:
        """Tries once; on failure `next_dial_at` is the time of the next try."""
        self._forget_socket()
        if os.getppid() != self._parent:
            os._exit(1)  # the process that forked us, or the agent's helper, is gone: nobody will ever listen
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_DIAL_TIMEOUT)
            connection.connect(self.path)
            connection.settimeout(None)
        except OSError:
            connection.close()
            self._later()
            return False
        with self._sending:
            self._socket = connection
            self._cutter = FrameCutter()
            self._poller = None
            self.connected = True
            del self._out[:]
            self._out += pack(protocol.HELLO, self.hello())
            for frame in self.greeting():
                self._out += frame
            self._flush(True)
        return self.connected

    def dial_until_connected(self, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Dials for ever, every 100 ms growing to 1 s, or until `give_up`."""
        while not give_up():
            wait = self.next_dial_at - time.monotonic()
            if wait > 0:
                time.sleep(min(wait, LAST_DELAY))
                continue
            if self.dial():
                return True
        return False

    def _later(self) -> None:
        self.next_dial_at = time.monotonic() + self._delay
        self._delay = min(self._delay * 1.5, LAST_DELAY)

    def _forget_socket(self) -> None:
        with self._sending:
            gone, self._socket, self.connected = self._socket, None, False
            del self._out[:]
        if gone is not None:
            gone.close()

    def close(self) -> None:
        """Releases the socket. In a forked child this leaves the parent's connection as it is."""
        self._forget_socket()

    def fileno(self) -> int:
        """The socket's descriptor; -1 without a socket."""
        return -1 if self._socket is None else self._socket.fileno()

    # ---- reading -----------------------------------------------------------------------------------------------------
    def receive(self, wait: bool = True) -> Optional[List[Frame]]:
        """Frames that arrived (possibly none); None when the connection is over and must be dialled again."""
        connection = self._socket
        if connection is None or not self.connected:
            return None
        if wait and not self._wait(connection):
            return []
        try:
            data = connection.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            data = b''
        try:
            if data:
                self._delay = FIRST_DELAY
                return self._cutter.feed(data)
        except FrameError:
            pass
        self._lost()
        return None

    def _lost(self) -> None:
        if self.connected:
            self.connected = False
            self._later()

    def _wait(self, connection: socket.socket) -> bool:
        """Waits for input, and sends remaining data as the socket accepts it. False: a signal came instead."""
        poller = self._poller
        if poller is None:
            self._poller = poller = select.poll()
            poller.register(connection, select.POLLIN)
            if self.wake_fd >= 0:
                poller.register(self.wake_fd, select.POLLIN)
        while True:
            left_over = self.has_waiting
            if left_over:
                poller.modify(connection, select.POLLIN | select.POLLOUT)
            events = poller.poll()
            if left_over:
                poller.modify(connection, select.POLLIN)
            readable = False
            for descriptor, event in events:
                if descriptor == self.wake_fd:
                    os.read(descriptor, 4096)
                    return False
                readable = readable or bool(event & ~select.POLLOUT)
            if readable:
                return True
            self.flush_logs()

    # ---- sending -----------------------------------------------------------------------------------------------------
    def send(self, kind: int, header: Header, body: bytes = b'') -> bool:
        """Sends a frame; waits for the socket. False: there is no connection, and nothing was kept."""
        return self.send_packed(pack(kind, header, body))

    def send_packed(self, frame: bytes) -> bool:
        """Does the same as `send` for a packed frame."""
        with self._sending:
            if not self.connected:
                return False
            if self._logs or self._out:
                self._queue_logs()
                self._out += frame
                self._flush(True)
            else:
                self._send_now(frame)
            return self.connected

    def _send_now(self, frame: bytes) -> None:
        connection = self._socket
        assert connection is not None
        try:
            connection.sendall(frame)
        except OSError:
            self._broken(connection)

    def log(self, task_id: str, stream: str, line: bytes) -> None:
        """Queues a log line without waiting: the rest goes with a later frame, and lines above the bound are dropped
        and counted."""
        if self._log_now(task_id, stream, line):
            return
        if self._log_bytes + len(line) > MAX_LOG_BYTES:
            self._dropped += 1
            return
        self._log_bytes += len(line) + 64
        self._logs.append((task_id, stream, line))
        self.flush_logs()

    def _log_now(self, task_id: str, stream: str, line: bytes) -> bool:
        """Sends a line if none waits before it and the socket takes some of it at once."""
        # Does not wait for the lock, see `flush_logs`.
        if not self._sending.acquire(False):
            return False
        try:
            connection = self._socket
            if connection is None or not self.connected or self._out or self._logs or self._dropped:
                return False
            frame = self._log_frame(task_id, stream, line)
            try:
                sent = connection.send(frame, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                self._broken(connection)
                return False
            self._out += frame[sent:]
            return True
        finally:
            self._sending.release()

    def log_at_once(self, task_id: str, stream: str, lines: List[bytes]) -> Tuple[int, int]:
        """Sends lines as far as the socket takes them now. Returns how many have left this process, and 1 where a part of the
        next one has: it leaves before anything else."""
        if not self._sending.acquire(False):
            return 0, 0
        try:
            connection = self._socket
            if connection is None or not self.connected or self._out or self._logs or self._dropped:
                return 0, 0
            frames = [self._log_frame(task_id, stream, line) for line in lines]
            try:
                sent = connection.send(b''.join(frames), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return 0, 0
            except OSError:
                self._broken(connection)
                return 0, 0
            whole = 0
            for frame in frames:
                if sent < len(frame):
                    break
                sent -= len(frame)
                whole += 1
            if sent:
                self._out += frames[whole][sent:]
            return whole, int(sent > 0)
        finally:
            self._sending.release()

    @property
    def has_room(self) -> bool:
        """Whether nothing waits and the socket takes more."""
        self.flush_logs()
        connection = self._socket
        if connection is None or self.has_waiting:
            return False
        poller = select.poll()
        poller.register(connection, select.POLLOUT)
        return bool(poller.poll(0))

    @property
    def has_waiting(self) -> bool:
        return bool(self._logs or self._out)

    def flush_logs(self) -> None:
        """Sends as much as the socket accepts at once."""
        # Does not wait for the lock: its holder may be this very thread (a finaliser that prints), and sends our lines
        # anyway.
        if self.connected and self._sending.acquire(False):
            try:
                self._flush(False)
            finally:
                self._sending.release()

    def flush(self, seconds: float) -> bool:
        """Sends everything queued before an exit, for at most `seconds`."""
        until = time.monotonic() + seconds
        while self.connected and self.has_waiting and time.monotonic() < until:
            self.flush_logs()
            if self.has_waiting:
                time.sleep(0.005)
        return not self.has_waiting

    def take_unsent_logs(self) -> List[Any]:
        """Lines that were never sent, for the fallback."""
        unsent = list(self._logs)
        self._logs.clear()
        self._log_bytes = 0
        return unsent

    def _queue_logs(self) -> None:
        while self._logs:
            task_id, stream, line = self._logs.popleft()
            self._log_bytes -= len(line) + 64
            self._out += self._log_frame(task_id, stream, line)
        if self._dropped:
            lost, self._dropped = self._dropped, 0
            self._out += self._log_frame('', 'stderr', b'longshore: %d log lines dropped' % lost)

    def _log_frame(self, task_id: str, stream: str, line: bytes) -> bytes:
        if self._log_of != (task_id, stream):
            self._log_of = (task_id, stream)
            self._log_head = encode_header({'taskId': task_id, 'stream': stream})
        head = self._log_head
        return PREFIX.pack(3 + len(head) + len(line), protocol.LOG, len(head)) + head + line

    def _flush(self, wait: bool) -> bool:
        """Sends queued data; requires the lock. Logs are cut into frames only as the socket has room, so that their
        bound holds."""
        connection = self._socket
        if connection is None or not self.connected:
            return False
        while True:
            if not self._out:
                if not self._logs and not self._dropped:
                    return True
                self._queue_logs()
            try:
                sent = connection.send(self._out, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                self._broken(connection)
                return False
            del self._out[:sent]

    def _broken(self, connection: socket.socket) -> None:
        """Marks the connection as broken. The reader finds its end and dials again; closing here could free its
        descriptor for another file."""
        self._lost()
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
