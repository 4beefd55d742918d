"""The bytes of one file, read from a place on, or written whole."""

from __future__ import annotations

import errno
import os
import stat

from .entries import temporary_beside
from .work import number_of, path_of
from .wrongs import Wrong

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Optional

    from .work import Request, Work

_PIECE_BYTES = 256 * 1024
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_file(path: str, flags: int = _READ) -> int:
    """Opens an ordinary file. A pipe or a device is refused: it may have no end."""
    fd = os.open(path, flags, 0o666)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise Wrong('is_a_directory', '%s: is a directory' % path)
    raise Wrong('bad_request', '%s: is no ordinary file' % path)


def _read(work: Work, cwd: str, request: Request) -> None:
    path = path_of(request, cwd)
    at = number_of(request, 'offset', 0, 0)
    length = number_of(request, 'length', -1, -1)
    fd = open_file(path)
    found = os.fstat(fd)
    # Files of the kernel's say that they are empty: these are read until nothing comes.
    left: Optional[int] = max(found.st_size - at, 0) if found.st_size > 0 else None
    if length >= 0:
        left = length if left is None else min(left, length)

    def piece() -> bytes:
        return os.pread(fd, _PIECE_BYTES if left is None else min(_PIECE_BYTES, left), at)

    # A file that cannot be read at all is refused.
    data = piece()
    work.tell({'size': found.st_size, 'mode': stat.S_IMODE(found.st_mode)})
    while left is None or left > 0:
        if not data:
            if left is not None and found.st_size > 0:
                raise ConnectionError('the file became shorter')
            break
        at += len(data)
        left = None if left is None else left - len(data)
        work.send(data)
        data = piece()
    work.end()


def _write(work: Work, cwd: str, request: Request) -> None:
    path = path_of(request, cwd)
    mode = None if request.get('mode') is None else number_of(request, 'mode', 0, 0, 0o7777)
    if path.endswith('/'):
        raise Wrong('is_a_directory', '%s: names a directory' % path)
    if request.get('parents') is True:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    path = os.path.realpath(path)
    if request.get('append') is True:
        at = None if request.get('offset') is None else number_of(request, 'offset', 0, 0)
        work.tell({'size': _append(work, path, mode, at)})
    else:
        work.tell({'size': _write_whole(work, path, mode)})


def _append(work: Work, path: str, mode: Optional[int], at: Optional[int]) -> int:
    """Adds bytes to a file, or writes them from a place on. Those of a connection that is cut off are taken away again."""
    was_there = os.path.lexists(path)
    # A piece that is repeated is written over itself, where one that is added would come twice.
    how = os.O_APPEND | os.O_CREAT if at is None else 0
    fd = open_file(path, os.O_WRONLY | how | os.O_NONBLOCK | os.O_CLOEXEC)
    before = os.fstat(fd).st_size
    written = 0
    if at is not None:
        if at > before:
            raise Wrong('bad_request', '%s: has %d bytes, and none may be left out before offset %d' % (path, before, at))
        os.lseek(fd, at, os.SEEK_SET)
    try:
        for data in work.body():
            _write_all(fd, data)
            written += len(data)
    except BaseException:
        if not was_there:
            os.unlink(path)
        elif os.fstat(fd).st_size >= before:
            os.ftruncate(fd, before)
        raise
    if mode is not None:
        os.fchmod(fd, mode)
    return os.fstat(fd).st_size


def _write_whole(work: Work, path: str, mode: Optional[int]) -> int:
    """Writes a file beside its place, and puts it there at once."""
    old: Optional[os.stat_result] = None
    try:
        old = os.stat(path)
    except FileNotFoundError:
        pass
    if old is not None and not stat.S_ISREG(old.st_mode):
        os.close(open_file(path))
    made = temporary_beside(path)
    try:
        fd = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        error.filename = path  # nobody knows the other name
        raise
    try:
        for data in work.body():
            _write_all(fd, data)
        if old is not None:
            try:
                os.fchown(fd, old.st_uid, old.st_gid)
            except OSError:
                pass  # only root may; the file is the writer's then
        if mode is None and old is not None:
            mode = stat.S_IMODE(old.st_mode)
        if mode is not None:
            os.fchmod(fd, mode)
        size = os.fstat(fd).st_size
        try:
            os.rename(made, path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            # A file that was mounted, such as /etc/hosts, can only be filled anew.
            _fill(path, fd)
            os.unlink(made)
    except BaseException:
        os.unlink(made)
        raise
    return size


def _fill(path: str, source: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    os.lseek(source, 0, os.SEEK_SET)
    while True:
        data = os.read(source, _PIECE_BYTES)
        if not data:
            return
        _write_all(fd, data)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


CALLS = {'read': _read, 'write': _write}
