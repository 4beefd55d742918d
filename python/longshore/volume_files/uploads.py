"""Uploads that may be cut off and go on.

The bytes lie in a folder beside the file, in a file whose name begins with the size of the whole. The file is renamed
when it is whole. Must stay true: a file has its earlier bytes, or is absent, until the last byte has arrived. One
request at a time writes an upload, by a lock that ends with its process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import time

from . import paths
from .paths import UPLOADS_PREFIX
from .wire import Refusal

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple, Union

#: Time after its last byte for which an upload that was cut off is kept.
LIFE_SECONDS = 86_400
#: Time for an upload to make its file, once it has made its folder.
_BEGIN_SECONDS = 60
#: Bound on the names of a folder that are looked through for old uploads.
_MOST_NAMES = 10_000
#: Bytes after which their way to the disk begins, beside the next ones, so that the end of an upload waits for few.
FLUSH_BYTES = 32 * 1024 * 1024

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ENTRY = re.compile(rb'([0-9]{1,15}|x)-[0-9a-f]{16}')


def uploads_name(name: bytes) -> bytes:
    return UPLOADS_PREFIX + hashlib.sha256(name).hexdigest()[:32].encode('ascii')


class Upload:
    """The open file of one upload, locked. `total` is None while the size of the whole is not known."""

    def __init__(self, entry: bytes, fd: int) -> None:
        self.entry = entry
        self.fd = fd
        self.total = total_of(entry)
        self.received = os.fstat(fd).st_size
        self._unflushed = 0

    def write(self, data: Union[bytes, memoryview]) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self.fd, view, self.received)
            self.received += written
            self._unflushed += written
            view = view[written:]
        if self._unflushed >= FLUSH_BYTES:
            # This begins the writing, and waits for nothing; `fdatasync` would wait for the file system's journal.
            begin = self.received - self._unflushed
            os.posix_fadvise(self.fd, begin, self._unflushed, os.POSIX_FADV_DONTNEED)
            self._unflushed = 0

    def drop(self, first: int) -> None:
        """Drops the bytes behind that one."""
        os.ftruncate(self.fd, first)
        self.received = first

    def flush(self) -> None:
        """Returns when all bytes are on the disk."""
        try:
            os.fdatasync(self.fd)
        except OSError:
            # The kernel tells it once, and takes the bytes for written: they have to come again.
            self.drop(0)
            raise

    def close(self) -> None:
        os.close(self.fd)


def total_of(entry: bytes) -> Optional[int]:
    text = entry.split(b'-')[0]
    return None if text == b'x' else int(text)


class Uploads:
    """The uploads to one name of a folder."""

    def __init__(self, root: int, folder: int, name: bytes) -> None:
        self._root = root
        self._folder = folder
        self._name = name
        self._own = uploads_name(name)
        self._fd = -1

    def open(self, make: bool) -> bool:
        """Opens the folder of this name's uploads. Returns whether there is one."""
        while True:
            if make:
                try:
                    os.mkdir(self._own, 0o700, dir_fd=self._folder)
                except FileExistsError:
                    pass
            try:
                self._fd = os.open(self._own, _FOLDER, dir_fd=self._folder)
                return True
            except FileNotFoundError:
                # With `make`: another request has found the folder empty, and removed it.
                if not make:
                    return False

    def close(self) -> None:
        """Removes the folder if nothing is in it."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        try:
            os.rmdir(self._own, dir_fd=self._folder)
        except OSError:
            pass

    def names(self) -> List[bytes]:
        return [os.fsencode(name) for name in os.listdir(self._fd)]

    def entries(self) -> List[bytes]:
        return [one for one in self.names() if _ENTRY.fullmatch(one)]

    def changed_at(self, entry: bytes) -> int:
        found = self._stat(entry)
        return 0 if found is None else found.st_mtime_ns

    def newest(self) -> Optional[bytes]:
        """The upload that may go on; None: there is none, or only such of unknown size."""
        found = [(self._stat(entry), entry) for entry in self.entries() if total_of(entry) is not None]
        there = [(seen.st_mtime_ns, entry) for seen, entry in found if seen is not None]
        return max(there)[1] if there else None

    def size_of(self, entry: bytes) -> int:
        found = self._stat(entry)
        return 0 if found is None else found.st_size

    def _stat(self, entry: bytes) -> Optional[os.stat_result]:
        try:
            found = os.stat(entry, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found if stat.S_ISREG(found.st_mode) else None

    def begin(self, total: Optional[int], replace_running: bool) -> Upload:
        """Begins an upload anew. Raises Refusal while another request sends one, unless that one may be replaced."""
        for entry in self.entries():
            if not replace_running:
                self._lock(entry).close()
            self.remove(entry)
        entry = b'%s-%s' % (b'x' if total is None else b'%d' % total, os.urandom(8).hex().encode('ascii'))
        fd = self.create(entry)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return Upload(entry, fd)

    def create(self, entry: bytes) -> int:
        """Makes the file of a new upload, and opens it."""
        while True:
            try:
                return os.open(entry, _NEW, 0o600, dir_fd=self._fd)
            except FileNotFoundError:
                # Another request has found the folder empty, and removed it.
                os.close(self._fd)
                self._fd = -1
                self.open(make=True)

    def open_entry(self, entry: bytes) -> Optional[int]:
        """Opens the file of an upload; None: there is none."""
        try:
            return os.open(entry, _OLD, dir_fd=self._fd)
        except FileNotFoundError:
            return None

    def go_on(self, total: int, first: int) -> Upload:
        """Opens the upload that a part continues."""
        entry = self.newest()
        if entry is None or total_of(entry) != total:
            raise _mismatch(0 if entry is None else self.size_of(entry), None if entry is None else total_of(entry))
        upload = self._lock(entry)
        if upload.received != first:
            upload.close()
            raise _mismatch(upload.received, total)
        return upload

    def part(self, total: int, key: str, first: int) -> Upload:
        """Opens the upload of that key, for a part that begins at `first`; bytes behind it are dropped.

        The key says which bytes the sender means, so a part never joins bytes of another state of its file.
        """
        entry = b'%d-%s' % (total, key.encode('ascii'))
        if first == 0:
            for other in self.entries():
                if other != entry:
                    self._lock(other).close()
                    self.remove(other)
            try:
                os.close(os.open(entry, _NEW, 0o600, dir_fd=self._fd))
            except FileExistsError:
                pass
        elif entry not in self.entries():
            raise _mismatch(0, None)
        upload = self._lock(entry)
        if upload.received < first:
            upload.close()
            raise _mismatch(upload.received, total)
        upload.drop(first)
        return upload

    def received(self, total: int, key: str) -> int:
        """Bytes that have come of the upload of that key."""
        return self.size_of(b'%d-%s' % (total, key.encode('ascii')))

    def _lock(self, entry: bytes) -> Upload:
        fd = self.open_entry(entry)
        if fd is None:
            raise _in_progress()
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise paths.irregular(self._name)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _in_progress() from None
            if os.fstat(fd).st_nlink == 0:
                raise _in_progress()
            return Upload(entry, fd)
        except BaseException:
            os.close(fd)
            raise

    def remove(self, entry: bytes) -> None:
        try:
            os.unlink(entry, dir_fd=self._fd)
        except FileNotFoundError:
            pass

    def finish(self, upload: Upload, mode: int = 0o644, mtime_ns: int = 0) -> os.stat_result:
        """Gives the whole upload its name. Returns the facts of the file. `mtime_ns`: its time of change, unless 0."""
        upload.flush()
        return self.name(upload.entry, upload.fd, mode, mtime_ns)

    def name(self, entry: bytes, fd: int, mode: int = 0o644, mtime_ns: int = 0) -> os.stat_result:
        """Gives a file whose bytes are on the disk its name. Returns its facts."""
        paths.give(self._root, fd, mode)
        if mtime_ns != 0:
            os.utime(fd, ns=(mtime_ns, mtime_ns))
        require_free(self._folder, self._name)
        try:
            os.rename(entry, self._name, src_dir_fd=self._fd, dst_dir_fd=self._folder)
        except FileNotFoundError:
            # A newer whole upload took this one's place.
            raise _in_progress() from None
        except (IsADirectoryError, NotADirectoryError):
            raise paths.irregular(self._name) from None
        os.fsync(self._folder)
        return os.fstat(fd)


def require_free(folder: int, name: bytes) -> None:
    """Raises Refusal where the name is taken by something that an upload may not replace."""
    try:
        paths.require_ordinary(folder, name)
    except Refusal as refusal:
        if refusal.status != 404:
            raise


def remove_old(folder: int, now: float) -> None:
    """Removes uploads of a folder that were cut off long ago."""
    for own in _upload_folders(folder):
        try:
            fd = os.open(own, _FOLDER, dir_fd=folder)
        except OSError:
            continue
        try:
            # An upload that has just begun may not have its file yet.
            is_left = now - os.fstat(fd).st_mtime > _BEGIN_SECONDS
            for entry in map(os.fsencode, os.listdir(fd)):
                seen = os.stat(entry, dir_fd=fd, follow_symlinks=False)
                if now - seen.st_mtime > LIFE_SECONDS:
                    os.unlink(entry, dir_fd=fd)
                    is_left = True
            if is_left:
                os.rmdir(own, dir_fd=folder)
        except OSError:
            pass
        finally:
            os.close(fd)


def _upload_folders(folder: int) -> Iterator[bytes]:
    with os.scandir(folder) as names:
        for at, one in enumerate(names):
            if at >= _MOST_NAMES:
                return
            name = os.fsencode(one.name)
            if name.startswith(UPLOADS_PREFIX):
                yield name


def offset_headers(received: int, total: Optional[int]) -> List[Tuple[str, str]]:
    headers = [('upload-offset', str(received)), ('cache-control', 'no-store')]
    return headers if total is None else [*headers, ('upload-length', str(total))]


def _mismatch(received: int, total: Optional[int]) -> Refusal:
    text = '%d bytes have arrived: the next part must begin there and name the same total' % received
    return Refusal(409, 'upload_offset_mismatch', text, offset_headers(received, total))


def _in_progress() -> Refusal:
    return Refusal(409, 'upload_in_progress', 'another request is sending this upload', [('retry-after', '5')])


def now() -> float:
    return time.time()
