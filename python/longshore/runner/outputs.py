"""What reaches descriptors 1 and 2 beside prints: child processes, C code, crashes. It becomes lines of the running task.

Both descriptors are pipes. The process that serves reads them, at each beginning and end of a task and in a thread between.
So a line is the task's during which it was written, and stands between the prints before and behind it. The parent of that
process has the pipes open, too. It reads what a process leaves that dies, and what one does not read that holds the
interpreter: else a writer would wait for ever. Must stay true: no end of a pipe is awaited, since children may live on.
"""

from __future__ import annotations

import mmap
import os
import select
import threading
import time

from . import forks
from .connection import MAX_LINE_BYTES
from .keeper import made

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

    from .keeper import Ends
    from .task import Task

    Send = Callable[[Optional[Task], str, List[bytes]], object]
    SendNow = Callable[[Optional[Task], str, List[bytes]], Tuple[int, int]]
    HasRoom = Callable[[Optional[Task]], bool]
    Forward = Callable[[str, str, bytes], object]

_READ_BYTES = 16 * 1024
#: Bound on what is read at a beginning or end of a task: what a pipe holds, and what is written meanwhile.
_MOST_READS = 16
#: Shared memory: a beginning, then a part for each stream, with a state, an unfinished line and what was read last.
_HEAD_BYTES = 4096
_REST_BYTES = 80 * 1024
_PART_BYTES = 8 + _REST_BYTES + _READ_BYTES
#: Behind these, of each stream: the print that has no line end yet, with its task.
_PRINT_BYTES = 8 + 256 + MAX_LINE_BYTES
_PRINTS = {'stdout': _HEAD_BYTES + 2 * _PART_BYTES, 'stderr': _HEAD_BYTES + 2 * _PART_BYTES + _PRINT_BYTES}
_MEMORY_BYTES = _HEAD_BYTES + 2 * (_PART_BYTES + _PRINT_BYTES)
_NOTHING_READ = bytes(_READ_BYTES)
_FREE, _READING, _SENDING = 0, 1, 2
#: Place of the sign that a task has begun.
_BEGUN = _HEAD_BYTES - 1
#: Time that a process has to read for itself, and the bytes that may wait for it longer.
PATIENCE_SECONDS = 0.25
_MOST_WAITING = 32 * 1024
#: Lines that are sent between two signs of life.
_BEAT_LINES = 256
#: Time for which writers wait for an agent that takes nothing; then lines are dropped, as prints are.
_STALL_SECONDS = 5.0
_SEVERAL = 'several tasks ran at once, so output of child processes and C code is shown without a task'


def cut_bytes(data: bytes) -> List[bytes]:
    """A line in pieces of at most MAX_LINE_BYTES, never inside a character."""
    if data.endswith(b'\r'):
        data = data[:-1]
    pieces: List[bytes] = []
    while len(data) > MAX_LINE_BYTES:
        at = MAX_LINE_BYTES
        while at > MAX_LINE_BYTES - 4 and data[at] & 0xC0 == 0x80:
            at -= 1
        pieces.append(data[:at])
        data = data[at:]
    pieces.append(data)
    return pieces


class Lines:
    """Cuts one stream into lines."""

    def __init__(self) -> None:
        self._rest = b''

    def feed(self, data: bytes) -> List[bytes]:
        parts = (self._rest + data).split(b'\n')
        self._rest = parts.pop()
        lines = [piece for part in parts for piece in cut_bytes(part)]
        if len(self._rest) > MAX_LINE_BYTES:
            *more, self._rest = cut_bytes(self._rest)
            lines += more
        return lines

    @property
    def rest(self) -> bytes:
        return self._rest

    def end(self) -> List[bytes]:
        """The line that has no end yet."""
        rest, self._rest = self._rest, b''
        return cut_bytes(rest) if rest else []


class Pipes:
    """The pipes of a process that is about to be forked or spawned, and a page on which it says what it does."""

    def __init__(self, ends: Optional[Ends] = None) -> None:
        out, err, self.out_write, self.err_write, self.page_file = ends or made()
        self.page = Page(self.page_file)
        self.reads = {out: 'stdout', err: 'stderr'}

    def give_away(self) -> None:
        """Closes what another process has now."""
        for descriptor in (self.out_write, self.err_write, self.page_file):
            os.close(descriptor)

    def passed(self) -> List[int]:
        """Descriptors for a new interpreter, beside its 1 and 2; see `received`."""
        return [*self.reads, self.page_file]

    def use(self) -> None:
        """Makes them the output of this process, behind a fork."""
        os.dup2(self.out_write, 1)
        os.dup2(self.err_write, 2)
        self.give_away()
        _received(self.reads, self.page)


_PLACES = {'stdout': _HEAD_BYTES, 'stderr': _HEAD_BYTES + _PART_BYTES}


class Part:
    """What a process has read of one stream and not sent."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._last = memory[8 + _REST_BYTES :]

    def read(self, descriptor: int) -> bytes:
        """Raises BlockingIOError. What the kernel writes here is found, even if this process does nothing more."""
        self._memory[0] = _READING
        try:
            size = os.readv(descriptor, [self._last])
        except BlockingIOError:
            self._memory[0] = _FREE
            raise
        return bytes(self._last[:size])

    def sending(self, rest: bytes) -> None:
        self._memory[0] = _SENDING
        self._keep(rest)

    def sent(self, lines: List[bytes], rest: bytes) -> None:
        """All but these lines have left, which wait for the agent, and the line that has no end yet."""
        if lines:
            self._keep(b''.join([*(line + b'\n' for line in lines), rest])[:_REST_BYTES])
        self._last[:] = _NOTHING_READ
        self._memory[0] = _FREE

    def _keep(self, data: bytes) -> None:
        self._memory[1:5] = len(data).to_bytes(4, 'little')
        self._memory[8 : 8 + len(data)] = data

    def left(self) -> bytes:
        """In the parent of a process that has ended."""
        size = int.from_bytes(self._memory[1:5], 'little')
        last = bytes(self._last).rstrip(b'\0') if self._memory[0] == _READING else b''
        return bytes(self._memory[8 : 8 + size]) + last


class Page:
    """Shared memory: whether the process reads for itself, a number that changes while it does, which task alone runs, and what it
    has read and not sent, so that nothing is lost with it."""

    def __init__(self, file: int) -> None:
        os.ftruncate(file, _MEMORY_BYTES)  # whoever comes first; it is of this size then
        self._memory = mmap.mmap(file, _MEMORY_BYTES)
        self.parts = {stream: Part(memoryview(self._memory)[at : at + _PART_BYTES]) for stream, at in _PLACES.items()}

    def set_reads(self, reads: bool) -> None:
        self._memory[0] = int(reads)

    def set_begun(self) -> None:
        self._memory[_BEGUN] = 1

    @property
    def has_begun(self) -> bool:
        return bool(self._memory[_BEGUN])

    def beat(self) -> None:
        self._memory[1] = (self._memory[1] + 1) & 0xFF

    @property
    def beats(self) -> int:
        return self._memory[1]

    @property
    def reads(self) -> bool:
        return bool(self._memory[0])

    def set_print(self, stream: str, task_id: str, text: bytes) -> None:
        at = _PRINTS[stream]
        memory = self._memory
        memory[at : at + 4] = bytes(4)  # nothing is there while it changes
        if text:
            task, text = task_id.encode('utf-8')[:255], cut_bytes(text)[0]
            memory[at + 8 : at + 9 + len(task)] = bytes((len(task),)) + task
            memory[at + 264 : at + 264 + len(text)] = text
            memory[at : at + 4] = len(text).to_bytes(4, 'little')

    def unfinished_print(self, stream: str) -> Tuple[str, bytes]:
        at = _PRINTS[stream]
        size = int.from_bytes(self._memory[at : at + 4], 'little')
        task = self._memory[at + 9 : at + 9 + self._memory[at + 8]]
        return task.decode('utf-8', 'replace'), self._memory[at + 264 : at + 264 + size]

    def set_task(self, task_id: str) -> None:
        data = task_id.encode('utf-8')[:255]
        self._memory[2 : 3 + len(data)] = bytes((len(data),)) + data

    @property
    def task(self) -> str:
        return self._memory[3 : 3 + self._memory[2]].decode('utf-8', 'replace')


class Kept:
    """The parent's side."""

    def __init__(self, pipes: Pipes, forward: Forward) -> None:
        pipes.give_away()
        self._reads, self._page = pipes.reads, pipes.page
        self._forward = forward
        self._lines = {descriptor: Lines() for descriptor in self._reads}
        #: When to look whether the process has read for itself; 0: nothing waits.
        self.look_at = 0.0
        self._beats = 0

    def waits_for(self) -> Iterable[int]:
        """Descriptors to poll for input now."""
        return () if self.look_at else self._reads

    def look(self, readable: Iterable[int], now: float) -> None:
        """Called with what the poll said, or at `look_at`."""
        mine = [descriptor for descriptor in self._reads if descriptor in readable]
        if self.look_at:
            if now < self.look_at:
                return
            self.look_at = 0.0
            is_alive = self._page.reads and self._page.beats != self._beats
            for descriptor in () if is_alive else list(self._reads):
                if not self._page.reads or _waiting(descriptor) >= _MOST_WAITING:
                    self._read(descriptor, 4)
        elif mine and self._page.reads:
            self._beats = self._page.beats
            self.look_at = now + PATIENCE_SECONDS
        else:
            for descriptor in mine:
                self._read(descriptor, 1)

    def _read(self, descriptor: int, reads: int) -> None:
        for _ in range(reads):
            task_id = self._page.task  # it may have ended by the time that its output is here
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                # Nobody can write any longer, and a poll would say so again and again.
                self._send(task_id, descriptor, self._lines[descriptor].end())
                os.close(descriptor)
                del self._reads[descriptor]
                return
            self._send(task_id, descriptor, self._lines[descriptor].feed(data))
            if self._page.reads:
                # The rest of the line may be read by the process.
                self._send(task_id, descriptor, self._lines[descriptor].end())

    def _send(self, task_id: str, descriptor: int, lines: List[bytes]) -> None:
        for line in lines:
            self._forward(task_id, self._reads[descriptor], line)

    def left(self) -> None:
        """The process has ended: takes what it left. Children of it may go on to write, until they end."""
        self._page.set_reads(False)
        self.look_at = 0.0
        # An unfinished line that the process has read comes before what it has not.
        for descriptor, stream in list(self._reads.items()):
            left = self._page.parts[stream].left()
            self._send(self._page.task, descriptor, self._lines[descriptor].feed(left))
            self._read(descriptor, 256)
            if descriptor in self._reads:
                self._send(self._page.task, descriptor, self._lines[descriptor].end())
        for stream in _PRINTS:
            task_id, text = self._page.unfinished_print(stream)
            if text:
                self._page.set_print(stream, '', b'')
                self._forward(task_id, stream, text)
        self._page.set_task('')

    @property
    def is_over(self) -> bool:
        return not self._reads

    @property
    def has_begun(self) -> bool:
        """Whether the process was ever handed a task."""
        return self._page.has_begun

    def forget(self) -> None:
        """In another child of this process."""
        for descriptor in self._reads:
            os.close(descriptor)


def _waiting(descriptor: int) -> int:
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, b'\0' * 4), 'little')


class Capture:
    """The side of the process that serves."""

    def __init__(self, reads: Dict[int, str], page: Page, send: Send, send_now: SendNow, has_room: HasRoom) -> None:
        self._reads = reads
        self._page = page
        self._send, self._send_now = send, send_now
        self._has_room = has_room
        #: Lines that were read and wait for the agent, behind one on its way. The parent finds them in the page.
        self._unsent: Dict[int, List[bytes]] = {}
        #: Taken and released in C, together with its owner: no signal handler or finaliser that prints runs between.
        #: No process that is forked from here takes it (`logs`, `is_foreign`).
        self._turns: Any = threading.RLock()
        self._lines = {descriptor: Lines() for descriptor in reads}
        self._running: Dict[Any, Task] = {}
        self._look, self._wait = select.poll(), select.poll()
        for descriptor in reads:
            self._look.register(descriptor, select.POLLIN)
            self._wait.register(descriptor, select.POLLIN)
        self._said = self._has_begun = False
        self._over = False
        self._flush_c = _c_output()
        page.set_reads(True)
        threading.Thread(target=self._follow, name='longshore-output', daemon=True).start()

    # ---- tasks -------------------------------------------------------------------------------------------------------
    def begin(self, task: Task) -> None:
        with self._turns:
            self._turn()
            if not self._has_begun:
                self._has_begun = True
                self._page.set_begun()
            self._running[task.key] = task
            self._tell_page()

    def end(self, task: Task) -> None:
        if task.key not in self._running:
            return
        self._flush_c()
        with self._turns:
            self._turn()
            self._running.pop(task.key, None)
            self._tell_page()

    def catch_up(self) -> None:
        """Sends what was written before a print; not in a print of a signal handler or finaliser amid our own code."""
        if not self._turns._is_owned():
            with self._turns:
                self._take(False)

    def stop(self) -> None:
        """Before the process ends; from here its parent reads."""
        self._flush_c()
        if not self._turns._is_owned():
            with self._turns:
                if not self._over:
                    self._turn()
                self._over = True
        self._page.set_reads(False)

    def _turn(self) -> None:
        """Another set of tasks runs from here: an unfinished line belongs to those before."""
        until = time.monotonic() + _STALL_SECONDS
        for _ in range(_MOST_READS):
            if not self._take(self._await_room(until)):
                break
        self._tell_all(until)
        for descriptor, lines in self._lines.items():
            self._tell(descriptor, lines.end(), True)
            self._tell_all(until)

    def _tell_all(self, until: float) -> None:
        while self._unsent:
            self._tell_unsent(self._await_room(until))

    def _tell_page(self) -> None:
        task = self._only_task()
        self._page.set_task('' if task is None else task.task_id)

    # ---- reading: with the lock --------------------------------------------------------------------------------------
    def _take(self, may_wait: bool) -> bool:
        """Reads each stream once. Lines that the agent does not take stay here if they may wait. Whether there may be more."""
        self._tell_unsent(may_wait)
        if self._unsent:
            return True
        more = False
        for descriptor, _ in self._look.poll(0):
            try:
                data = self._page.parts[self._reads[descriptor]].read(descriptor)
            except BlockingIOError:
                continue
            if not data:
                self._look.unregister(descriptor)
                self._wait.unregister(descriptor)
                continue
            self._tell(descriptor, self._lines[descriptor].feed(data), may_wait)
            more = more or len(data) == _READ_BYTES
        return more

    def _tell_unsent(self, may_wait: bool) -> None:
        for descriptor in list(self._unsent):
            self._tell(descriptor, self._unsent.pop(descriptor), may_wait)

    def _only_task(self) -> Optional[Task]:
        running = self._running
        return next(iter(running.values())) if len(running) == 1 else None

    def _tell(self, descriptor: int, lines: List[bytes], may_wait: bool) -> None:
        task, stream = self._only_task(), self._reads[descriptor]
        part, rest = self._page.parts[stream], self._lines[descriptor].rest
        part.sending(rest)
        if lines and len(self._running) > 1 and not self._said:
            self._said = True
            self._send(None, 'stderr', [b'longshore: ' + _SEVERAL.encode()])
        at = on_its_way = 0
        while at < len(lines) and not on_its_way:
            self._page.beat()
            some = lines[at : at + _BEAT_LINES]
            sent, on_its_way = self._send_now(task, stream, some)
            at += sent
            if sent < len(some):
                break
        left = lines[at:]
        if left and may_wait:
            self._unsent[descriptor] = left[on_its_way:]
        elif left:
            self._send(task, stream, left[on_its_way:])
            left = []
        part.sent(left, rest)

    def _follow(self) -> None:
        while not self._over:
            if not self._unsent:
                self._wait.poll()
            self._page.beat()
            may_wait = self._await_room(time.monotonic() + _STALL_SECONDS)
            with self._turns:
                more = not self._over and self._take(may_wait)
            if more:
                time.sleep(0.001)  # a flood leaves time to the handler

    def _await_room(self, until: float) -> bool:
        """Reads no more than the agent takes, so that writers wait, as for the engine's own log. False: it takes nothing."""
        while not self._has_room(self._only_task()):
            if time.monotonic() >= until:
                return False
            time.sleep(0.002)
            self._page.beat()
        return True


class _Own:
    def __init__(self) -> None:
        #: Pipes that this process has as its output, until something reads them.
        self.reads: Optional[Dict[int, str]] = None
        self.page: Any = None
        self.capture: Optional[Capture] = None


_own = _Own()


def _received(reads: Dict[int, str], page: Page) -> None:
    forget()
    _own.reads, _own.page, _own.capture = reads, page, None


def received(descriptors: List[int]) -> None:
    """In a spawned process: `passed` of its parent."""
    out, err, page = descriptors
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    _received({out: 'stdout', err: 'stderr'}, Page(page))
    os.close(page)


def forget() -> None:
    """In a process that the runner forked: the pipes of its parent are none of its own."""
    for descriptor in _own.reads or ():
        os.close(descriptor)
    _own.reads = None


def start(send: Send, send_now: SendNow, has_room: HasRoom) -> None:
    """Begins to read, in a process that serves and forks no more of its own. Without pipes nothing happens."""
    if _own.reads is not None and _own.capture is None:
        reads = _own.reads
        forks.hold(lambda: reads)
        _own.capture = Capture(reads, _own.page, send, send_now, has_room)


def begin(task: Task) -> None:
    if _own.capture is not None:
        _own.capture.begin(task)


def end(task: Task) -> None:
    if _own.capture is not None:
        _own.capture.end(task)


def catch_up() -> None:
    if _own.capture is not None:
        _own.capture.catch_up()


def keep_print(stream: str, task_id: str, text: bytes) -> None:
    """Keeps a print without a line end, which would be lost with this process; empty: it has got one."""
    if _own.page is not None:
        _own.page.set_print(stream, task_id, text)


def stop() -> None:
    if _own.capture is not None:
        _own.capture.stop()


def _c_output() -> Callable[[], object]:
    """Makes C's `stdout` pass on each line at once, and gives a function that passes on the rest. `ctypes` would cost 5 ms."""
    try:
        import _ctypes

        class Pointer(_ctypes._SimpleCData):  # type: ignore[name-defined,misc]
            _type_ = 'P'

        class Library:
            _handle = _ctypes.dlopen(None, 0)  # type: ignore[attr-defined]

        stdout = Pointer.in_dll(Library, 'stdout')
        by_line = 1
        _ctypes.call_function(_ctypes.dlsym(Library._handle, 'setvbuf'), (stdout, None, by_line, 0))  # type: ignore[attr-defined]
        flush = _ctypes.dlsym(Library._handle, 'fflush')  # type: ignore[attr-defined]
        call = _ctypes.call_function  # type: ignore[attr-defined]
    except Exception:  # an interpreter without it: C code flushes as it likes
        return lambda: None
    return lambda: call(flush, (stdout,))
