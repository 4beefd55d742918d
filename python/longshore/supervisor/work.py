"""Work on files, each request in a process of its own that ends with it.

A slow disk, a hard pattern or a large archive so never keeps programs and terminals waiting.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds enums (4 ms)
import errno
import json
import os

from ..runner import protocol
from ..runner.protocol import PIECE_BYTES, FrameError, pack, prefix
from .loop import default_signals, fork
from .programs import of_fork_error
from .spawning import offer_to_kernel
from .wrongs import Wrong, of_os_error

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, NoReturn

    from .channel import Channel
    from .programs import Programs

    Request = Dict[str, Any]

MAX_PATH_BYTES = 4096
#: Bound on the text of an answer: a frame, less its beginning.
MOST_ANSWER_BYTES = protocol.MAX_FRAME_BYTES - 1024
#: Time without a byte from or for the other side.
_IDLE_SECONDS = 300.0
#: Time for the other side to end a connection whose last frame was sent.
_LINGER_SECONDS = 30.0

#: Requests, and the modules that serve them: imported by their own processes only.
FORKED = {
    'stat': 'entries',
    'list': 'entries',
    'read': 'files',
    'write': 'files',
    'remove': 'entries',
    'mkdir': 'entries',
    'move': 'entries',
    'pack': 'archives',
    'unpack': 'archives',
    'find': 'search',
    'replace': 'search',
}


class Cut(Exception):
    """The other side has closed, or must see that the transfer broke off."""


class Work:
    """The connection of one request, blocking."""

    def __init__(self, channel: Channel) -> None:
        self._connection, self._cutter, self._frames = channel.parts()
        self._told = False
        self._connection.settimeout(_IDLE_SECONDS)

    def body(self) -> Iterator[bytes]:
        """The pieces of the request's body, to its clean end; raises Cut where it breaks off."""
        while True:
            while not self._frames:
                data = self._connection.recv(PIECE_BYTES)
                if not data:
                    raise Cut
                self._frames.extend(self._cutter.feed(data))
            kind, _header, body = self._frames.popleft()
            if kind == protocol.END:
                return
            if kind == protocol.DATA:
                yield body

    def send(self, data: bytes) -> None:
        """Sends bytes of the answer's body, as fast as the other side takes them."""
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            self._connection.sendall(prefix(protocol.DATA, len(piece)) + piece)

    def end(self) -> None:
        self._connection.sendall(pack(protocol.END, {}))

    def tell(self, value: Dict[str, Any]) -> None:
        """Sends the answer of a request that went well."""
        body = json.dumps(dict(value, ok=True)).encode('ascii')
        if len(body) > MOST_ANSWER_BYTES:
            raise Wrong('too_large', 'the answer has more than %d bytes' % MOST_ANSWER_BYTES)
        self._told = True
        self._connection.sendall(pack(protocol.RESPONSE, {}, body))

    def refuse_with(self, wrong: Wrong) -> None:
        """Answers that the request failed. Behind an answer that went well, only a cut connection tells."""
        if self._told:
            raise Cut
        body = json.dumps({'ok': False, 'code': wrong.code, 'error': wrong.text[:4000]}).encode('ascii')
        self._connection.sendall(pack(protocol.RESPONSE, {}, body))

    def finish(self) -> None:
        """The scheduler ends the connection; until then it may still read or send."""
        self._connection.shutdown(1)
        self._connection.settimeout(_LINGER_SECONDS)
        while self._connection.recv(65536):
            pass


def begin_work(programs: Programs, channel: Channel, left: Callable[[], object], cwd: str, request: Request) -> None:
    """Forks the process that serves a request. Raises Wrong."""
    try:
        pid = fork()
    except OSError as error:
        raise of_fork_error(error) from None
    if pid == 0:
        _become(channel, cwd, request)
    channel.on_closed = []
    programs.children[pid] = lambda _status: left()
    channel.close()


def _become(channel: Channel, cwd: str, request: Request) -> NoReturn:
    try:
        default_signals()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)  # these are errors of a call then, and what was begun is removed
        offer_to_kernel()
        work = Work(channel)
        _close_others(channel.parts()[0].fileno())
        _serve(work, cwd, request)
    except BaseException:
        pass
    finally:
        os._exit(0)


def _serve(work: Work, cwd: str, request: Request) -> None:
    try:
        from importlib import import_module  # a user who may not read Python's library gets an answer, too

        module = import_module('.' + FORKED[request['type']], __package__)
        module.CALLS[request['type']](work, cwd, request)
    except Wrong as wrong:
        work.refuse_with(wrong)
    except (Cut, FrameError, ConnectionError, TimeoutError):
        return
    except OSError as error:
        if error.errno in (None, errno.EPIPE):
            return
        name = error.filename if isinstance(error.filename, str) else str(request.get('path'))
        work.refuse_with(of_os_error(error, name))
    except MemoryError:
        work.refuse_with(Wrong('failed', 'the memory of the container is used up'))
    except Exception as error:
        work.refuse_with(Wrong('failed', '%s: %s' % (type(error).__name__, error)))
    work.finish()


def _close_others(kept: int) -> None:
    """Closes the connections of others, which must end when the supervisor ends them."""
    for name in os.listdir('/proc/self/fd'):
        fd = int(name)
        if fd > 2 and fd != kept:
            try:
                os.close(fd)
            except OSError:
                pass


# ---- fields of requests ----------------------------------------------------------------------------------------------
def path_of(request: Request, cwd: str, field: str = 'path') -> str:
    """A path of the request, below the working directory where it is relative."""
    value = request.get(field)
    if not isinstance(value, str) or not value or '\0' in value:
        raise Wrong('bad_request', '%s must be a path' % field)
    try:
        size = len(os.fsencode(value))
    except UnicodeEncodeError:
        raise Wrong('bad_request', '%s must be Unicode text' % field) from None
    if size > MAX_PATH_BYTES:
        raise Wrong('bad_request', '%s has more than %d bytes' % (field, MAX_PATH_BYTES))
    return os.path.join(cwd, value)


def number_of(request: Request, field: str, usual: int, least: int, most: int = 2**53) -> int:
    value = request.get(field)
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Wrong('bad_request', '%s must be a whole number from %d' % (field, least))
    return value


def text_of(request: Request, field: str) -> str:
    value = request.get(field)
    if not isinstance(value, str):
        raise Wrong('bad_request', '%s must be a text' % field)
    return value
