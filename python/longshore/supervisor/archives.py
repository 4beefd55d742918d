"""Directories as tar archives.

Must stay true: nothing is written outside the directory that a request names. No link is followed below it, and devices are
neither packed nor made.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile

from .work import path_of
from .wrongs import Wrong

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

    from .work import Request, Work

_BUFFER_BYTES = 256 * 1024
#: Names that are not UTF-8 stay as they are.
_NAMES: 'Dict[str, Any]' = {'encoding': 'utf-8', 'errors': 'surrogateescape'}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


# ---- packing ---------------------------------------------------------------------------------------------------------
class _Sink:
    """The body of the answer, as a file to write."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def write(self, data: bytes) -> int:
        self._work.send(data)
        return len(data)


class _Padded:
    """An open file of a fixed size; where it became shorter, zeros follow."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._left = size

    def read(self, most: int) -> bytes:
        most = min(most, self._left)
        data = os.read(self._fd, most) if most else b''
        self._left -= most if not data else len(data)
        return data or bytes(most)


def _pack(work: Work, cwd: str, request: Request) -> None:
    path = os.path.normpath(path_of(request, cwd))
    top = os.lstat(path)
    if not (stat.S_ISREG(top.st_mode) or stat.S_ISDIR(top.st_mode) or stat.S_ISLNK(top.st_mode)):
        raise Wrong('bad_request', '%s: is no file or directory' % path)
    if stat.S_ISREG(top.st_mode):
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    elif stat.S_ISDIR(top.st_mode):
        os.scandir(path).close()
    name = os.path.basename(path) or '.'
    links: Dict[Tuple[int, int], str] = {}
    work.tell({})
    sink: Any = _Sink(work)
    archive = tarfile.open(mode='w|', fileobj=sink, format=tarfile.GNU_FORMAT, bufsize=_BUFFER_BYTES, **_NAMES)
    for source, inside in _walk(path, name):
        _add(archive, source, inside, links)
    archive.close()
    work.end()


def _walk(path: str, name: str) -> Iterator[Tuple[str, str]]:
    """A directory and all below it, each before its contents."""
    waiting: List[Tuple[str, str]] = [(path, name)]
    while waiting:
        source, inside = waiting.pop()
        yield source, inside
        try:
            if stat.S_ISDIR(os.lstat(source).st_mode):
                below = sorted(os.listdir(source), reverse=True)
                waiting += [(os.path.join(source, one), '%s/%s' % (inside, one)) for one in below]
        except FileNotFoundError:
            pass


def _add(archive: tarfile.TarFile, source: str, inside: str, links: Dict[Tuple[int, int], str]) -> None:
    info = tarfile.TarInfo(inside)
    fd = -1
    try:
        found = os.lstat(source)
        if stat.S_ISREG(found.st_mode):
            fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            found = os.fstat(fd)
            key = (found.st_dev, found.st_ino)
            if key in links:
                info.type, info.linkname = tarfile.LNKTYPE, links[key]
            else:
                info.size = found.st_size
                if found.st_nlink > 1:
                    links[key] = inside
        elif stat.S_ISDIR(found.st_mode):
            info.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(found.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(source)
        else:
            return
        info.mode = stat.S_IMODE(found.st_mode)
        info.uid, info.gid = found.st_uid, found.st_gid
        info.mtime = int(found.st_mtime)
        data: Any = _Padded(fd, info.size) if info.isreg() else None
        archive.addfile(info, data)
    except FileNotFoundError:
        pass  # removed meanwhile
    finally:
        if fd >= 0:
            os.close(fd)


# ---- unpacking -------------------------------------------------------------------------------------------------------
class _Body:
    """The body of the request, as a file to read."""

    def __init__(self, work: Work) -> None:
        self._pieces = work.body()
        self._kept = b''

    def read(self, most: int) -> bytes:
        while len(self._kept) < most:
            piece = next(self._pieces, b'')
            if not piece:
                break
            self._kept += piece
        data, self._kept = self._kept[:most], self._kept[most:]
        return data

    def drain(self) -> None:
        for _ in self._pieces:
            pass


def _unpack(work: Work, cwd: str, request: Request) -> None:
    path = os.path.realpath(path_of(request, cwd))
    os.makedirs(path, exist_ok=True)
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    body = _Body(work)
    modes: List[Tuple[List[str], tarfile.TarInfo]] = []
    try:
        source: Any = body
        archive = tarfile.open(mode='r|', fileobj=source, bufsize=_BUFFER_BYTES, **_NAMES)
        for info in archive:
            archive.members = []  # type: ignore[attr-defined]  # else it keeps every entry
            _extract(root, archive, info, modes)
    except tarfile.TarError as error:
        raise Wrong('bad_request', 'this is no tar archive: %s' % error) from None
    body.drain()
    for parts, info in reversed(modes):
        folder = _open_folder(root, parts, info.name)
        os.fchmod(folder, info.mode & 0o1777)
        os.utime(folder, (info.mtime, info.mtime))
        os.close(folder)
    work.tell({})


def _parts_of(name: str) -> List[str]:
    parts = [part for part in name.split('/') if part not in ('', '.')]
    if name.startswith('/') or '..' in parts or '\0' in name:
        raise Wrong('bad_request', 'the entry %s leads outside the directory' % name)
    return parts


def _open_folder(root: int, parts: List[str], name: str) -> int:
    """Opens a folder below the root, and makes what is missing. Follows no link."""
    fd = os.dup(root)
    for part in parts:
        try:
            try:
                os.mkdir(part, 0o755, dir_fd=fd)
            except FileExistsError:
                pass
            below = os.open(part, _FOLDER, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise Wrong('not_a_directory', 'the entry %s: %s is a link or a file' % (name, part)) from None
            raise
        finally:
            os.close(fd)
        fd = below
    return fd


def _extract(root: int, archive: tarfile.TarFile, info: tarfile.TarInfo, modes: List[Tuple[List[str], tarfile.TarInfo]]) -> None:
    parts = _parts_of(info.name)
    if not (info.isreg() or info.isdir() or info.issym() or info.islnk()):
        raise Wrong('bad_request', 'the entry %s is a device or a pipe' % info.name)
    if not parts:
        return
    if info.isdir():
        os.close(_open_folder(root, parts, info.name))
        modes.append((parts, info))
        return
    folder = _open_folder(root, parts[:-1], info.name)
    made = '.longshore-%s' % os.urandom(8).hex()
    try:
        if info.issym():
            os.symlink(info.linkname, made, dir_fd=folder)
        elif info.islnk():
            _link(root, info, made, folder)
        else:
            _write(archive, info, made, folder)
        try:
            os.rename(made, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            made = ''
        except IsADirectoryError:
            raise Wrong('is_a_directory', 'the entry %s: there is a directory in its place' % info.name) from None
    finally:
        if made:
            try:
                os.unlink(made, dir_fd=folder)
            except FileNotFoundError:
                pass
        os.close(folder)


def _link(root: int, info: tarfile.TarInfo, made: str, folder: int) -> None:
    target = _parts_of(info.linkname)
    if not target:
        raise Wrong('bad_request', 'the entry %s is a link to nothing' % info.name)
    beside = _open_folder(root, target[:-1], info.name)
    try:
        os.link(target[-1], made, src_dir_fd=beside, dst_dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        raise Wrong('bad_request', 'the entry %s is a link to %s, which is not there' % (info.name, info.linkname)) from None
    finally:
        os.close(beside)


def _write(archive: tarfile.TarFile, info: tarfile.TarInfo, made: str, folder: int) -> None:
    source = archive.extractfile(info)
    assert source is not None
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        while True:
            data = source.read(_BUFFER_BYTES)
            if not data:
                break
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        # Neither setuid nor setgid: who unpacks is not who packed.
        os.fchmod(fd, info.mode & 0o777)
        os.utime(fd, (info.mtime, info.mtime))
    finally:
        os.close(fd)


CALLS = {'pack': _pack, 'unpack': _unpack}
