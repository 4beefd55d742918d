"""Files of a volume by their paths, opened part by part.

Must stay true: no link is followed at any part, and nothing but a directory or an ordinary file is opened. Containers
may change the volume at the same time, so every check is made on what was opened.
"""

from __future__ import annotations

import errno
import os
import stat

from .wire import Refusal

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import List, Optional

MAX_PATH_BYTES = 4096
MAX_NAME_BYTES = 255
#: Folders of uploads that are not complete; no address leads there.
UPLOADS_PREFIX = b'.longshore-upload-'

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def folder_parts_of(path: str) -> List[bytes]:
    """The names in a path of a folder; none for the volume's root, the empty path."""
    return [] if path == '' else parts_of(path)


def parts_of(path: str, field: str = 'path') -> List[bytes]:
    """The names in a path; raises Refusal for a path that no file may have."""
    try:
        parts = path.encode('utf-8').split(b'/')
    except UnicodeEncodeError:
        raise Refusal(400, 'invalid_query', '%s must be Unicode text' % field) from None
    fits = len(path.encode('utf-8')) <= MAX_PATH_BYTES and all(len(part) <= MAX_NAME_BYTES for part in parts)
    good = all(
        part not in (b'', b'.', b'..') and b'\0' not in part and not part.startswith(UPLOADS_PREFIX) for part in parts
    )
    if not fits or not good:
        raise Refusal(400, 'invalid_query', '%s must name a file of the volume' % field)
    return parts


def not_found() -> Refusal:
    return Refusal(404, 'volume_file_not_found', 'the volume has no such file')


def irregular(name: bytes) -> Refusal:
    text = 'not an ordinary file of the volume, or a link or a file on the way: %s'
    return Refusal(409, 'volume_file_irregular', text % name.decode('utf-8', 'replace'))


def open_folder(root: int, parts: List[bytes], make: bool, below: Optional[int] = None) -> int:
    """Opens the folder of these names; with `make`, missing ones are made with the owner and mode of the volume.

    `below`: the folder that the names begin at, where that is not the volume's root.
    """
    folder = os.dup(root if below is None else below)
    try:
        for part in parts:
            below = _below(root, folder, part, make)
            os.close(folder)
            folder = below
    except BaseException:
        os.close(folder)
        raise
    return folder


def _below(root: int, folder: int, part: bytes, make: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise not_found() from None
    except OSError as error:
        raise _of_name(error, part) from None
    made = True
    try:
        os.mkdir(part, 0o700, dir_fd=folder)
    except FileExistsError:
        made = False
    try:
        below = os.open(part, _FOLDER, dir_fd=folder)
    except OSError as error:
        raise _of_name(error, part) from None
    if made:
        give(root, below, stat.S_IMODE(os.fstat(root).st_mode))
    return below


def give(root: int, fd: int, mode: int) -> None:
    """Gives a new file or folder to the owner of the volume."""
    owner = os.fstat(root)
    try:
        os.fchown(fd, owner.st_uid, owner.st_gid)
    except PermissionError:
        # A server of network files may keep every file with one user of its own.
        pass
    os.fchmod(fd, mode)


def open_file(folder: int, name: bytes) -> int:
    """Opens an ordinary file for reading."""
    # A device or a pipe is not even opened: that alone may have an effect.
    require_ordinary(folder, name)
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        raise not_found() from None
    except OSError as error:
        raise _of_name(error, name) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise irregular(name)
    return fd


def require_ordinary(folder: int, name: bytes) -> os.stat_result:
    """Raises Refusal unless the name is an ordinary file's."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        raise not_found() from None
    if not stat.S_ISREG(found.st_mode):
        raise irregular(name)
    return found


def _of_name(error: OSError, name: bytes) -> Exception:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR):
        return irregular(name)
    return not_found() if error.errno == errno.ENOENT else error
