"""Turns printed output of Python code into log frames, cut into lines and tagged with the task that printed them.

`install` replaces sys.stdout and sys.stderr. Must stay true: a line goes to fd 1 or 2 only if no connection could carry
it, since those are shown too (`outputs`). Printing never waits for the agent.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from contextvars import ContextVar

from . import forks, outputs, thread_tasks
from .connection import MAX_LINE_BYTES, Link
from .task import Task, shield, unshield

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

#: The task of the running code; set before a handler is called.
current_task: ContextVar[Optional[Task]] = ContextVar('longshore_task', default=None)


class _State:
    def __init__(self) -> None:
        #: The connection for lines without a task; tasks have their own.
        self.link: Optional[Link] = None
        #: The task of prints in threads of user code, in a process that runs one task at a time.
        self.only_task: Callable[[], Optional[Task]] = lambda: None
        self.partial: Dict[Any, str] = {}
        #: Whose unfinished line of each stream outlives this process.
        self.kept: Dict[str, Any] = {}
        #: Whether the app forked this process: its output goes to the descriptors.
        self.is_foreign = False


_state = _State()


class LogStream(io.TextIOBase):
    """A text stream whose lines are sent as log frames."""

    def __init__(self, name: str, descriptor: int) -> None:
        super().__init__()
        self._name = name
        self._descriptor = descriptor
        self._bytes = _ByteStream(self)

    @property
    def name(self) -> str:
        return '<%s>' % self._name

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return 'utf-8'

    @property
    def errors(self) -> str:  # type: ignore[override]
        return 'backslashreplace'

    @property
    def buffer(self) -> Any:
        return self._bytes

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """The real descriptor, for a subprocess that gets this stream (its lines then come through Docker)."""
        return self._descriptor

    def flush(self) -> None:
        """Writes an unfinished line, in a process that the app forked; elsewhere it waits for its end."""
        if _state.is_foreign:
            for key in [key for key in _state.partial if key[0] == self._name]:
                _write(self._descriptor, _state.partial.pop(key).encode('utf-8', 'backslashreplace'))

    def reconfigure(self, **_options: Any) -> None:
        """Accepted without effect, because some programs call it."""

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError('write() argument must be str, not %s' % type(text).__name__)
        shielded = shield()
        written = len(text)
        try:
            task = None if _state.is_foreign else thread_tasks.running() or _state.only_task()
            partial = _state.partial if task is None else task.partial
            key = (self._name, threading.get_ident())
            if '\n' not in text:
                text = partial.get(key, '') + text
                # The bound stops a progress bar without line ends from growing for ever.
                if len(text) < MAX_LINE_BYTES:
                    partial[key] = text
                    _keep(task, key, text)
                    return written
                pieces = cut_line(text)
                partial[key] = pieces.pop().decode('utf-8', 'replace')
                if not _state.is_foreign:
                    outputs.catch_up()
                _send(task, self._name, pieces)
                _keep(task, key, partial[key])
                return written
            if not _state.is_foreign:
                outputs.catch_up()
            lines = (partial.pop(key, '') + text).split('\n')
            last = lines.pop()
            if last:
                partial[key] = last
            for line in lines:
                emit(task, self._name, line)
            _keep(task, key, last)
            return written
        finally:
            if shielded:
                unshield()


class _ByteStream(io.RawIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, text: LogStream) -> None:
        super().__init__()
        self._text = text

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()

    def write(self, data: Any) -> int:
        data = bytes(data)
        if _state.is_foreign:
            self._text.flush()
            _write(self.fileno(), data)
            return len(data)
        self._text.write(data.decode('utf-8', 'backslashreplace'))
        return len(data)


def _keep(task: Optional[Task], key: Any, text: str) -> None:
    """Keeps the unfinished line of a thread for the case that this process ends in it; empty: the line is finished."""
    owner = (None if task is None else task.key, key)
    if _state.is_foreign or (not text and _state.kept.get(key[0]) != owner):
        return
    _state.kept[key[0]] = owner if text else None
    outputs.keep_print(key[0], '' if task is None else task.task_id, text.encode('utf-8', 'backslashreplace'))


def cut_line(line: str) -> List[bytes]:
    """A line as UTF-8 in pieces of at most MAX_LINE_BYTES, never inside a character."""
    return outputs.cut_bytes(line.encode('utf-8', 'backslashreplace'))


def emit(task: Optional[Task], stream: str, line: str) -> None:
    """Sends a line for a task, or for none."""
    _send(task, stream, cut_line(line))


def _send(task: Optional[Task], stream: str, pieces: List[bytes]) -> None:
    link = _state.link if task is None or task.sink is None or _state.is_foreign else task.sink
    for piece in pieces:
        if link is None:
            _fallback(stream, piece)
        else:
            link.log('' if task is None else task.task_id, stream, piece)


def _send_now(task: Optional[Task], stream: str, pieces: List[bytes]) -> Tuple[int, int]:
    """Sends lines as far as the agent takes them. Returns how many need no more care, and 1 where the next one is on its way."""
    link: Any = _state.link if task is None or task.sink is None else task.sink
    if link is None or not link.connected:
        _send(task, stream, pieces)
        return len(pieces), 0
    sent: Tuple[int, int] = link.log_at_once('' if task is None else task.task_id, stream, pieces)
    return sent


def _has_room(task: Optional[Task]) -> bool:
    """Whether the agent takes more. A connection that is away is not waited for."""
    link: Any = _state.link if task is None or task.sink is None else task.sink
    return link is None or not link.connected or bool(link.has_room)


def finish_task(task: Task) -> None:
    """Sends a task's output that has no line end, behind which nothing comes."""
    task.is_over = True
    # A thread that the task started knows the task as long as it lives.
    task.body = b''
    for key in list(task.partial):
        text = task.partial.pop(key, '')
        if text:
            emit(task, key[0], text)
            _keep(task, key, '')


def capture_output() -> None:
    """Shows what reaches the descriptors of this process beside prints, in a process that serves."""
    outputs.start(_send, _send_now, _has_room)


def finish_all(link: Optional[Link], seconds: float) -> None:
    """Sends the rest of the output before an exit: to the agent, or else to fd 1 and 2."""
    if not _state.is_foreign:
        outputs.stop()
    for key in list(_state.partial):
        text = _state.partial.pop(key, '')
        if text:
            emit(None, key[0], text)
            _keep(None, key, '')
    if link is not None and not link.flush(seconds):
        for _, stream, line in link.take_unsent_logs():
            _fallback(stream, line)


def install(link: Link) -> None:
    """Sends prints to `link` from now on."""
    _state.link = link
    forks.follow(_be_foreign)
    thread_tasks.install(current_task.get)
    sys.stdout = LogStream('stdout', 1)
    sys.stderr = LogStream('stderr', 2)


def retarget(link: Link, only_task: Callable[[], Optional[Task]]) -> None:
    """Sets the link in a forked child, and in the process that serves one task at a time."""
    _state.link = link
    _state.only_task = only_task


def _be_foreign() -> None:
    """In a process that the app forked: it has no connection, and its parent's unfinished lines are its parent's."""
    _state.is_foreign = True
    _state.link = None
    _state.partial.clear()


def forget_partial_lines() -> None:
    """Drops unfinished lines: a forked child must not print its parent's."""
    _state.partial.clear()
    _state.kept.clear()


def note(text: str) -> None:
    """Prints a line of the runner itself."""
    emit(None, 'stderr', 'longshore: ' + text)


def failure(error: BaseException) -> Tuple[str, str]:
    """Text such as `KeyError: 'x'`, and the traceback from the first frame of user code on."""
    import traceback  # costs a few milliseconds, and most processes never need it

    trace = error.__traceback__
    here = os.path.dirname(__file__)
    while trace is not None and (
        trace.tb_frame.f_code.co_filename.startswith(here)
        or trace.tb_frame.f_code.co_filename.startswith('<frozen importlib')
        or trace.tb_frame.f_code.co_filename.endswith(os.path.join('importlib', '__init__.py'))
    ):
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(error), error, trace)
    except Exception:  # an exception whose own text raises
        lines = ['%s\n' % type(error).__name__]
    return summary(error), ''.join(lines)


def summary(error: BaseException) -> str:
    """Type and message of an exception, bounded."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = ''
    return ('%s: %s' % (name, text) if text else name)[:8192]


def _fallback(stream: str, line: bytes) -> None:
    _write(1 if stream == 'stdout' else 2, line + b'\n')


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        pass
