"""Uploads whose parts come side by side and in any order, as clients of object stores send them.

All parts are written to one file, at their own offsets. Behind the bytes of the whole, that file has one byte for each
part, which is set once the part has come as a whole. Must stay true: a file gets its name only when every part of it
has come. A part that comes again brings the same bytes, so it may be written while an earlier try still ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time

from . import paths, uploads
from .uploads import Uploads
from .wire import Refusal

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .wire import Wire

MOST_PARTS = 10_000
#: Uploads of one file that are not complete; the oldest go.
MOST_UPLOADS = 8
#: Time for the last part to end before its upload is completed.
_LOCK_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_ARRIVED = b'\1'

_KEY = re.compile(r'[0-9a-f]{16}')
_ENTRY = re.compile(rb'p[0-9]{1,15}-[0-9]{1,15}-[0-9a-f]{16}')


class _Whole:
    """An upload as its parts name it: how many bytes it has, and how many of them are in a part."""

    def __init__(self, upload: Any) -> None:
        key, total, size = (upload.get(name) for name in ('key', 'total', 'partBytes'))
        good = isinstance(total, int) and isinstance(size, int) and 0 <= total < 10**15 and 1 <= size < 10**15
        if not good or not isinstance(key, str) or _KEY.fullmatch(key) is None:
            raise _unknown()
        self.total: int = total
        self._size: int = size
        self.count = -(-total // size)
        if self.count > MOST_PARTS:
            raise Refusal(400, 'invalid_query', 'an upload has at most %d parts' % MOST_PARTS)
        self.entry = b'p%d-%d-%s' % (total, size, key.encode('ascii'))

    def first(self, number: Any) -> int:
        """The first byte of a part; parts are counted from 1."""
        if not isinstance(number, int) or not 1 <= number <= self.count:
            raise Refusal(400, 'invalid_query', 'this upload has the parts 1 to %d' % self.count)
        return (number - 1) * self._size

    def end(self, number: int) -> int:
        return min(self.total, number * self._size)


class _Place:
    """The folder of a file, and the uploads to the file's name."""

    def __init__(self, root: int, path: str, make: bool) -> None:
        *names, self.name = paths.parts_of(path)
        self.folder = paths.open_folder(root, names, make)
        self.store = Uploads(root, self.folder, self.name)
        try:
            self.is_there = self.store.open(make)
        except BaseException:
            os.close(self.folder)
            raise

    def close(self) -> None:
        self.store.close()
        os.close(self.folder)

    def open(self, whole: _Whole) -> int:
        fd = self.store.open_entry(whole.entry) if self.is_there else None
        if fd is None:
            raise _unknown()
        return fd


def begin(root: int, head: Dict[str, Any]) -> Dict[str, Any]:
    """Makes the file that the parts are written to."""
    whole = _Whole(head['upload'])
    place = _Place(root, head['path'], make=True)
    try:
        uploads.require_free(place.folder, place.name)
        uploads.remove_old(place.folder, uploads.now())
        _make_room(place.store)
        fd = place.store.create(whole.entry)
        try:
            os.ftruncate(fd, whole.total + whole.count)
        except OSError as error:
            place.store.remove(whole.entry)
            if error.errno == errno.EFBIG:
                raise Refusal(400, 'invalid_query', 'the volume takes no file of %d bytes' % whole.total) from None
            raise
        finally:
            os.close(fd)
    finally:
        place.close()
    return {'parts': whole.count}


def _make_room(store: Uploads) -> None:
    found = [entry for entry in store.names() if _ENTRY.fullmatch(entry)]
    while len(found) >= MOST_UPLOADS:
        oldest = min(found, key=store.changed_at)
        found.remove(oldest)
        store.remove(oldest)


def receive(wire: Wire, root: int, head: Dict[str, Any], headers: Dict[str, str]) -> None:
    """Writes one part, and answers with its tag."""
    whole = _Whole(head['upload'])
    number = head.get('number')
    at, end = whole.first(number), whole.end(head['number'])
    length = headers.get('content-length')
    if length is not None and int(length) != end - at:
        raise Refusal(400, 'upload_incomplete', 'part %s has %d bytes, and %s were announced' % (number, end - at, length))
    place = _Place(root, head['path'], make=False)
    try:
        fd = place.open(whole)
        try:
            # Parts share the lock; an upload is completed when nobody has it.
            fcntl.flock(fd, fcntl.LOCK_SH)
            if head.get('expectsContinue'):
                wire.wants_body()
            flushed = at
            for data in wire.body():
                if at + len(data) > end:
                    raise Refusal(400, 'upload_incomplete', 'more bytes came than the part has')
                _write(fd, data, at)
                at += len(data)
                if at - flushed >= uploads.FLUSH_BYTES:
                    os.posix_fadvise(fd, flushed, at - flushed, os.POSIX_FADV_DONTNEED)
                    flushed = at
            if at != end:
                raise Refusal(400, 'upload_incomplete', 'the part ended %d bytes before its end' % (end - at))
            if os.fstat(fd).st_nlink == 0:
                raise _unknown()
            _write(fd, memoryview(_ARRIVED), whole.total + head['number'] - 1)
        finally:
            os.close(fd)
    finally:
        place.close()
    wire.answer(200, [('etag', '"%s-%d"' % (head['upload']['key'], number)), ('content-length', '0')])
    wire.end()


def _write(fd: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data = data[written:]
        at += written


def complete(root: int, head: Dict[str, Any]) -> Dict[str, Any]:
    """Gives the upload its name. Refuses while parts of it are missing."""
    whole = _Whole(head['upload'])
    place = _Place(root, head['path'], make=False)
    try:
        fd = place.open(whole)
        try:
            _lock(fd)
            missing = _missing(fd, whole)
            if missing:
                some = ', '.join(map(str, missing[:5])) + (', …' if len(missing) > 5 else '')
                raise Refusal(409, 'upload_incomplete', 'parts of the upload have not come: %s' % some)
            os.ftruncate(fd, whole.total)
            os.fdatasync(fd)
            place.store.name(whole.entry, fd)
        finally:
            os.close(fd)
    finally:
        place.close()
    return {'size': whole.total}


def _lock(fd: int) -> None:
    """Waits for parts that end; their sender may have given them up."""
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise Refusal(409, 'upload_in_progress', 'a part of the upload is still coming') from None
            time.sleep(_LOOK_SECONDS)
            continue
        if os.fstat(fd).st_nlink == 0:
            raise _unknown()
        return


def _missing(fd: int, whole: _Whole) -> List[int]:
    marks = os.pread(fd, whole.count, whole.total)
    marks += bytes(whole.count - len(marks))
    return [at + 1 for at in range(whole.count) if marks[at : at + 1] != _ARRIVED]


def abort(root: int, head: Dict[str, Any]) -> Dict[str, Any]:
    """Removes an upload. An upload that is not there counts as removed."""
    whole = _Whole(head['upload'])
    place: Optional[_Place] = None
    try:
        place = _Place(root, head['path'], make=False)
        if place.is_there:
            place.store.remove(whole.entry)
    except Refusal as refusal:
        if refusal.status != 404:
            raise
    finally:
        if place is not None:
            place.close()
    return {}


def _unknown() -> Refusal:
    text = 'there is no such upload: it was completed or ended, or a day has passed since its last byte'
    return Refusal(404, 'upload_not_found', text)
