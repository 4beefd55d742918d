"""Folders of a volume: listing, counting, removing and moving.

Must stay true: a link is an entry like any other, and is never followed. Each call ends within seconds: a long one
answers how far it came, and the caller asks again.
"""

from __future__ import annotations

import base64
import errno
import heapq
import itertools
import os
import stat
import time

from . import paths
from .wire import Refusal

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

#: Time after which a call answers with what it has done.
WORK_SECONDS = 15.0
#: Entries of an answer.
MOST_ENTRIES = 10_000
#: Names of a folder that are held at once.
_CHUNK_NAMES = 20_000
#: Names of a folder that are removed between two looks at it.
_REMOVE_NAMES = 1_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def kind_of(found: os.stat_result) -> str:
    if stat.S_ISREG(found.st_mode):
        return 'file'
    if stat.S_ISDIR(found.st_mode):
        return 'folder'
    return 'link' if stat.S_ISLNK(found.st_mode) else 'other'


def _entry(path: bytes, found: os.stat_result) -> Dict[str, Any]:
    kind = kind_of(found)
    entry: Dict[str, Any] = {
        'path': path.decode('utf-8', 'replace'),
        'kind': kind,
        'size': found.st_size if kind == 'file' else 0,
        'mtimeNs': str(found.st_mtime_ns),
        'executable': kind == 'file' and bool(found.st_mode & 0o100),
        'addressable': _is_addressable(path),
    }
    return entry


def _is_addressable(path: bytes) -> bool:
    try:
        path.decode('utf-8')
    except UnicodeDecodeError:
        return False
    return len(path) <= paths.MAX_PATH_BYTES


def _cursor(path: bytes) -> str:
    return base64.urlsafe_b64encode(path).decode('ascii')


def _after(cursor: str) -> Optional[List[bytes]]:
    if cursor == '':
        return None
    try:
        path = base64.b64decode(cursor, altchars=b'-_', validate=True)
    except ValueError:
        path = b''
    parts = path.split(b'/')
    if any(part in (b'', b'.', b'..') or b'\0' in part for part in parts):
        raise Refusal(400, 'invalid_cursor', 'query parameter cursor is not one of ours')
    return parts


def _names(fd: int, after: Optional[bytes]) -> Iterator[bytes]:
    """Names of a folder in order, without those of uploads; a large folder is looked through in turns."""
    while True:
        with os.scandir(fd) as found:
            names = (os.fsencode(one.name) for one in found)
            chunk = heapq.nsmallest(
                _CHUNK_NAMES,
                (
                    name
                    for name in names
                    if (after is None or name > after) and not name.startswith(paths.UPLOADS_PREFIX)
                ),
            )
        yield from chunk
        if len(chunk) < _CHUNK_NAMES:
            return
        after = chunk[-1]


def _look(folder: int, name: bytes) -> Optional[os.stat_result]:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _open_below(folder: int, name: bytes) -> Optional[int]:
    """Opens a folder; None: a container put something else in its place."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def _walk(base: int, after: Optional[List[bytes]], deep: bool) -> Iterator[Tuple[bytes, os.stat_result]]:
    """The entries below a folder: each folder before what is in it, names in order, behind the path `after`."""
    open_folders: List[int] = []
    stack: List[Tuple[int, bytes, Iterator[bytes]]] = []

    def enter(fd: int, prefix: bytes, rest: Optional[List[bytes]]) -> None:
        stack.append((fd, prefix, _names(fd, rest[0] if rest else None)))
        if rest and deep:
            below = _open_below(fd, rest[0])
            if below is not None:
                open_folders.append(below)
                enter(below, prefix + rest[0] + b'/', rest[1:])

    try:
        enter(base, b'', after)
        while stack:
            fd, prefix, names = stack[-1]
            name = next(names, None)
            if name is None:
                stack.pop()
                if fd != base:
                    os.close(open_folders.pop())
                continue
            found = _look(fd, name)
            if found is None:
                continue
            yield prefix + name, found
            if deep and stat.S_ISDIR(found.st_mode):
                below = _open_below(fd, name)
                if below is not None:
                    open_folders.append(below)
                    enter(below, prefix + name + b'/', None)
    finally:
        for fd in open_folders:
            os.close(fd)


class _Place:
    """The folder that has a name, and the facts of the entry there."""

    def __init__(self, root: int, parts: List[bytes], make: bool = False) -> None:
        *folders, self.name = parts
        self.folder = paths.open_folder(root, folders, make)
        self.found = _look(self.folder, self.name)

    def close(self) -> None:
        os.close(self.folder)


# ---- listing and counting ------------------------------------------------------------------------------------------
def list_entries(root: int, head: Dict[str, Any]) -> Dict[str, Any]:
    """A page of the entries of a folder; all below it with `recursive`. A path that is no folder is its own entry."""
    parts = paths.folder_parts_of(head['path'])
    limit = max(1, min(int(head.get('limit', MOST_ENTRIES)), MOST_ENTRIES))
    after = _after(head.get('cursor', ''))
    if parts:
        place = _Place(root, parts)
        try:
            if place.found is None:
                raise paths.not_found()
            if not stat.S_ISDIR(place.found.st_mode):
                return {'kind': kind_of(place.found), 'entries': [_entry(place.name, place.found)], 'next': ''}
        finally:
            place.close()
    entries: List[Dict[str, Any]] = []
    last = b''
    until = time.monotonic() + WORK_SECONDS
    base = paths.open_folder(root, parts, make=False)
    walk = _walk(base, after, bool(head.get('recursive')))
    try:
        for path, found in walk:
            if len(entries) >= limit or (entries and time.monotonic() > until):
                return {'kind': 'folder', 'entries': entries, 'next': _cursor(last)}
            entries.append(_entry(path, found))
            last = path
    finally:
        walk.close()  # type: ignore[attr-defined]
        os.close(base)
    return {'kind': 'folder', 'entries': entries, 'next': ''}


def measure(root: int, head: Dict[str, Any]) -> Dict[str, Any]:
    """Bytes and numbers of files and folders from `cursor` on, as far as the time allows."""
    parts = paths.folder_parts_of(head['path'])
    after = _after(head.get('cursor', ''))
    sums = {'bytes': 0, 'diskBytes': 0, 'files': 0, 'folders': 0, 'others': 0}

    def add(found: os.stat_result) -> None:
        kind = kind_of(found)
        sums['files' if kind == 'file' else 'folders' if kind == 'folder' else 'others'] += 1
        sums['bytes'] += found.st_size if kind == 'file' else 0
        sums['diskBytes'] += found.st_blocks * 512

    if parts:
        place = _Place(root, parts)
        place.close()
        if place.found is None:
            raise paths.not_found()
        if not stat.S_ISDIR(place.found.st_mode):
            add(place.found)
            return {**sums, 'next': ''}
    last = b''
    until = time.monotonic() + WORK_SECONDS
    base = paths.open_folder(root, parts, make=False)
    walk = _walk(base, after, True)
    try:
        for path, found in walk:
            if last and time.monotonic() > until:
                return {**sums, 'next': _cursor(last)}
            add(found)
            last = path
    finally:
        walk.close()  # type: ignore[attr-defined]
        os.close(base)
    return {**sums, 'next': ''}


# ---- removing ------------------------------------------------------------------------------------------------------
def remove(root: int, head: Dict[str, Any]) -> Dict[str, Any]:
    """Removes an entry; a folder with all in it where `recursive` is set. The root of the volume itself stays."""
    parts = paths.folder_parts_of(head['path'])
    recursive = bool(head.get('recursive'))
    removing = _Removing()
    if not parts:
        if not recursive:
            raise Refusal(400, 'invalid_query', 'path must name an entry of the volume, unless recursive is set')
        return removing.answer(root)
    place = _Place(root, parts)
    try:
        if place.found is None:
            raise paths.not_found()
        if not stat.S_ISDIR(place.found.st_mode):
            os.unlink(place.name, dir_fd=place.folder)
            return {'removed': 1, 'complete': True}
        if not recursive:
            return _remove_folder(place)
        folder = _open_below(place.folder, place.name)
        if folder is None:
            raise paths.irregular(place.name)
        try:
            answer = removing.answer(folder)
        finally:
            os.close(folder)
        if answer['complete']:
            os.rmdir(place.name, dir_fd=place.folder)
            answer['removed'] += 1
        return answer
    finally:
        place.close()


def _remove_folder(place: _Place) -> Dict[str, Any]:
    try:
        os.rmdir(place.name, dir_fd=place.folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        text = 'the folder is not empty: set recursive to remove it with all in it'
        raise Refusal(409, 'volume_folder_not_empty', text) from None
    return {'removed': 1, 'complete': True}


class _Removing:
    """Removes what is in a folder, for as long as a call may take."""

    def __init__(self) -> None:
        self.count = 0
        self._until = time.monotonic() + WORK_SECONDS

    def answer(self, folder: int) -> Dict[str, Any]:
        complete = self.empty(folder)
        return {'removed': self.count, 'complete': complete}

    def empty(self, folder: int) -> bool:
        """Empties a folder. Returns whether it is empty."""
        # Each open folder, its own name, and the folders in it that are still to be removed.
        stack: List[Tuple[int, bytes, List[bytes]]] = [(os.dup(folder), b'', [])]
        try:
            while time.monotonic() < self._until:
                fd, name, below = stack[-1]
                if below:
                    inner = below.pop()
                    opened = _open_below(fd, inner)
                    if opened is not None:
                        stack.append((opened, inner, []))
                elif not self._remove_names(fd, below) and not below:
                    if len(stack) == 1:
                        return True
                    stack.pop()
                    os.close(fd)
                    self._rmdir(stack[-1][0], name)
            return False
        finally:
            for fd, _name, _below in stack:
                os.close(fd)

    def _remove_names(self, fd: int, below: List[bytes]) -> bool:
        """Removes some of the names, and notes folders. Returns whether there were any."""
        with os.scandir(fd) as found:
            some = list(itertools.islice(found, _REMOVE_NAMES))
        for one in some:
            name = os.fsencode(one.name)
            if one.is_dir(follow_symlinks=False):
                below.append(name)
                continue
            try:
                os.unlink(name, dir_fd=fd)
                self.count += 1
            except (FileNotFoundError, IsADirectoryError):
                # A container was faster; the next look sees what is there now.
                pass
        return bool(some)

    def _rmdir(self, fd: int, name: bytes) -> None:
        try:
            os.rmdir(name, dir_fd=fd)
            self.count += 1
        except FileNotFoundError:
            pass
        except OSError as error:
            # A container may have put a new file there, which the next look removes.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise


# ---- moving --------------------------------------------------------------------------------------------------------
def move(root: int, head: Dict[str, Any]) -> Dict[str, Any]:
    """Gives an entry another path. An ordinary file in its way is replaced only with `replace`; a folder never."""
    source, target = paths.parts_of(head['from'], 'from'), paths.parts_of(head['to'], 'to')
    place = _Place(root, source)
    try:
        if place.found is None:
            raise paths.not_found()
        if source == target:
            return {'kind': kind_of(place.found)}
        if target[: len(source)] == source:
            raise Refusal(400, 'invalid_query', 'to must not lie within from')
        other = _Place(root, target, make=True)
        try:
            if other.found is not None:
                _require_replaceable(place, other, bool(head.get('replace')))
            os.rename(place.name, other.name, src_dir_fd=place.folder, dst_dir_fd=other.folder)
        finally:
            other.close()
        return {'kind': kind_of(place.found)}
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise _in_the_way(target[-1]) from None
    except OSError as error:
        # A container may have moved folders since the check.
        if error.errno == errno.ENOTEMPTY:
            raise _in_the_way(target[-1]) from None
        if error.errno == errno.EINVAL:
            raise Refusal(400, 'invalid_query', 'to must not lie within from') from None
        raise
    finally:
        place.close()


def _require_replaceable(place: _Place, other: _Place, replace: bool) -> None:
    assert place.found is not None and other.found is not None
    both_files = stat.S_ISREG(place.found.st_mode) and stat.S_ISREG(other.found.st_mode)
    if not (replace and both_files):
        raise _in_the_way(other.name)


def _in_the_way(name: bytes) -> Refusal:
    text = 'the volume has an entry of that path already: %s'
    return Refusal(409, 'volume_file_exists', text % name.decode('utf-8', 'replace'))
