"""Packs: many files, or parts of large ones, in one request, each with the sha256 of its bytes.

A pack is a sequence of records. A record is a line of JSON, the bytes that the line announces (`length`), and a line of
JSON with their `sha256`. A line without `length` has neither. docs/volumes.md describes the fields.
Must stay true: no file gets its name before all its bytes have come and were verified.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections import OrderedDict

from . import paths, uploads
from .uploads import Uploads
from .wire import Cut, Out, Refusal

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

    from .wire import Wire

#: Bytes of a record of a download; a larger file comes as several.
RECORD_BYTES = 16 * 1024 * 1024
CONTENT_TYPE = 'application/x-longshore-pack'
#: Files up to this size are verified before anything of them is written.
_SMALL_BYTES = 1024 * 1024
_MOST_LINE_BYTES = 64 * 1024
_MOST_ASKED_BYTES = 4 * 1024 * 1024
#: Files of several records in one pack.
_MOST_UPLOADS = 10_000
_MOST_TOLD = 100
_MOST_FOLDERS = 64
_KEY = re.compile(r'[0-9a-f]{16}')


class _Folders:
    """Folders below one folder, kept open for the files that follow."""

    def __init__(self, root: int, base: int, make: bool) -> None:
        self._root = root
        self._base = base
        self._make = make
        self._open: OrderedDict[Tuple[bytes, ...], int] = OrderedDict()

    def of(self, parts: List[bytes]) -> int:
        """The folder of these names; it stays open until further ones are asked for."""
        if not parts:
            return self._base
        key = tuple(parts)
        fd = self._open.pop(key, -1)
        if fd < 0:
            fd = paths.open_folder(self._root, parts, self._make, below=self._base)
        self._open[key] = fd
        if len(self._open) > _MOST_FOLDERS:
            os.close(self._open.popitem(last=False)[1])
        return fd

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        os.close(self._base)


def of_os_error(error: OSError) -> Refusal:
    """The refusal for an error of the disk."""
    text = os.strerror(error.errno or 0)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Refusal(507, 'disk_full', 'the volume has no room: %s' % text)
    if error.errno == errno.EROFS:
        return Refusal(503, 'disk_read_only', 'the volume cannot be written: %s' % text)
    return Refusal(502, 'volume_failed', 'the volume did not read or write the file: %s' % text)


def etag_of(found: os.stat_result) -> str:
    return '"%x-%x-%x"' % (found.st_ino, found.st_size, found.st_mtime_ns)


def _number(record: Dict[str, Any], name: str) -> int:
    value = record.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**15:
        raise ValueError(name)
    return value


# ---- reading -------------------------------------------------------------------------------------------------------
def send_pack(wire: Wire, root: int, head: Dict[str, Any]) -> None:
    """Answers with the files that the lines of the body name."""
    asked = bytearray()
    for data in wire.body():
        asked += data
        if len(asked) > _MOST_ASKED_BYTES:
            raise Refusal(413, 'body_too_large', 'a pack is asked for with at most %d bytes' % _MOST_ASKED_BYTES)
    try:
        items = [json.loads(line) for line in bytes(asked).split(b'\n') if line]
        wanted = [(str(item['path']), _number(item, 'from'), item.get('etag')) for item in items]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Refusal(422, 'invalid_body', 'the body must be lines of JSON, each with a path') from None
    parts = paths.folder_parts_of(head['path'])
    folders = _Folders(root, paths.open_folder(root, parts, make=False), make=False)
    try:
        wire.answer(200, [('content-type', CONTENT_TYPE), ('cache-control', 'no-store')])
        out = Out(wire)
        for path, begin, etag in wanted:
            try:
                _send_file(out, folders, path, begin, etag)
            except Refusal as refusal:
                out.line({'path': path, 'error': {'code': refusal.code, 'message': refusal.message}})
            except OSError:
                raise Cut from None
        out.flush()
        wire.end()
    finally:
        folders.close()


def _send_file(out: Out, folders: _Folders, path: str, begin: int, wanted: Optional[str]) -> None:
    *names, name = paths.parts_of(path)
    try:
        fd = paths.open_file(folders.of(names), name)
    except OSError as error:
        raise of_os_error(error) from None
    try:
        found = os.fstat(fd)
        etag = etag_of(found)
        if (wanted is not None and wanted != etag) or begin > found.st_size:
            raise _changed()
        at = begin
        while True:
            length = min(RECORD_BYTES, found.st_size - at)
            out.line(
                {
                    'path': path,
                    'size': found.st_size,
                    'etag': etag,
                    'mtimeNs': str(found.st_mtime_ns),
                    'executable': bool(found.st_mode & 0o100),
                    'from': at,
                    'length': length,
                }
            )
            digest, is_whole = _send_bytes(out, fd, at, length)
            at += length
            if not is_whole or etag_of(os.fstat(fd)) != etag:
                refusal = _changed()
                return out.line({'error': {'code': refusal.code, 'message': refusal.message}})
            out.line({'sha256': digest})
            if at >= found.st_size:
                return None
    finally:
        os.close(fd)


def _send_bytes(out: Out, fd: int, begin: int, length: int) -> Tuple[str, bool]:
    """Sends as many bytes as announced; zeros where the file has become shorter."""
    digest = hashlib.sha256()
    at, end = begin, begin + length
    while at < end:
        try:
            count = out.read(fd, at, end - at, digest)
        except OSError:
            raise Cut from None
        if count == 0:
            out.write(bytes(end - at))
            return '', False
        at += count
    return digest.hexdigest(), True


def _changed() -> Refusal:
    return Refusal(409, 'volume_file_changed', 'the file was changed meanwhile')


# ---- writing -------------------------------------------------------------------------------------------------------
class _In:
    """The request's body as lines and runs of bytes."""

    def __init__(self, wire: Wire) -> None:
        self._pieces = wire.body()
        #: Bytes of a piece, or a copy of them once a line was looked for there.
        self._buffer: Union[bytes, memoryview] = b''
        self._at = 0

    def line(self) -> Optional[Dict[str, Any]]:
        """The next line as an object; None: the body is at its end."""
        buffer, at = self._buffer, self._at
        if not isinstance(buffer, bytes):
            buffer, at = bytes(buffer[at:]), 0
        while True:
            end = buffer.find(b'\n', at)
            if end >= 0:
                break
            if len(buffer) - at > _MOST_LINE_BYTES:
                raise _bad_pack()
            piece = next(self._pieces, None)
            if piece is None:
                if at < len(buffer):
                    raise _bad_pack()
                return None
            buffer, at = buffer[at:] + piece, 0
        self._buffer, self._at = buffer, end + 1
        try:
            value = json.loads(buffer[at:end])
        except (ValueError, RecursionError):
            raise _bad_pack() from None
        if not isinstance(value, dict):
            raise _bad_pack()
        return value

    def take(self, count: int) -> Iterator[memoryview]:
        """The next bytes, in the runs in which they come. A run holds until the next one is asked for."""
        while count > 0:
            if self._at >= len(self._buffer):
                piece = next(self._pieces, None)
                if piece is None:
                    raise _bad_pack()
                self._buffer, self._at = piece, 0
            run = memoryview(self._buffer)[self._at : self._at + count]
            self._at += len(run)
            count -= len(run)
            yield run


def _bad_pack() -> Refusal:
    return Refusal(422, 'invalid_body', 'the body must be a pack: lines of JSON, with the bytes that they announce')


def receive_pack(wire: Wire, root: int, head: Dict[str, Any]) -> None:
    """Writes the files of a pack, and answers how many, and which could not be written."""
    parts = paths.folder_parts_of(head['path'])
    base = paths.open_folder(root, parts, make=True)
    room = head.get('room')
    receiving = _Receiving(root, base, room if isinstance(room, int) else None)
    try:
        uploads.remove_old(base, uploads.now())
        if head.get('expectsContinue'):
            wire.wants_body()
        body = _In(wire)
        while True:
            record = body.line()
            if record is None:
                break
            receiving.take(record, body)
    finally:
        receiving.close()
    # The answer comes last: its reader finds no folder of files on their way.
    wire.answer_json(200, [('cache-control', 'no-store')], receiving.answer())


class _Receiving:
    """The files of one pack."""

    def __init__(self, root: int, base: int, room: Optional[int]) -> None:
        self._root = root
        #: Bytes that files may still have; None: any number.
        self._room = room
        #: Files of several records: why each was refused for want of room; None: it fits.
        self._uploads: Dict[Any, Optional[Refusal]] = {}
        self._folders = _Folders(root, base, make=True)
        self._temporary = _Temporary(base)
        #: The large file whose next part is expected.
        self._open: Optional[_OpenFile] = None
        owner = os.fstat(root)
        self._owner = (owner.st_uid, owner.st_gid)
        self._files = 0
        self._bytes = 0
        self._failed: List[Dict[str, str]] = []
        self._failures = 0

    def answer(self) -> Dict[str, Any]:
        return {'files': self._files, 'bytes': self._bytes, 'failures': self._failures, 'failed': self._failed}

    def close(self) -> None:
        self._leave()
        self._temporary.close()
        self._folders.close()

    def _leave(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def take(self, record: Dict[str, Any], body: _In) -> None:
        path = record.get('path')
        try:
            length = _number(record, 'length')
            size, first = _number(record, 'size'), _number(record, 'from')
            mtime_ns = int(str(record.get('mtimeNs', 0)))
        except ValueError:
            raise _bad_pack() from None
        if not isinstance(path, str) or first + length > size or abs(mtime_ns) >= 2**63:
            raise _bad_pack()
        #: Bytes that still have to be read, with the line behind them.
        pending = length if 'length' in record else None
        #: The file that several records bring; None: this one brings a whole file, or a folder.
        upload = (path, size, str(record.get('key'))) if pending is not None and length < size else None
        # A file that does not fit is told once, however many records it has.
        is_told = self._uploads.get(upload) is not None
        try:
            *names, name = paths.parts_of(path)
            if self._open is not None and not self._open.expects(record):
                self._leave()
            if pending is None:
                if record.get('kind') != 'folder':
                    raise _bad_pack()
                self._folders.of([*names, name])
                return
            facts = (bool(record.get('executable')), mtime_ns)
            self._take_room(upload, size - first)
            folder = self._folders.of(names)
            if first == 0 and length == size <= _SMALL_BYTES:
                taken = bytearray()
                for run in body.take(length):
                    taken += run
                pending = None
                _verify(hashlib.sha256(taken).hexdigest(), body)
                self._write_small(folder, name, taken, facts)
                self._files += 1
                self._bytes += size
            else:
                key = record.get('key')
                if not isinstance(key, str) or _KEY.fullmatch(key) is None:
                    raise _bad_pack()
                left = _Left(body, length)
                pending = None
                try:
                    if self._open is None:
                        self._open = _OpenFile(self._root, folder, name, record)
                    is_whole = self._open.take(left, facts)
                except BaseException:
                    self._leave()
                    raise
                finally:
                    left.finish()
                if is_whole:
                    self._leave()
                    self._files += 1
                self._bytes += left.length
        except Refusal as refusal:
            if refusal.code == 'invalid_body':
                raise
            self._fail(path, refusal, body, pending, is_told)
        except OSError as error:
            self._fail(path, of_os_error(error), body, pending, is_told)

    def _take_room(self, upload: Any, needed: int) -> None:
        """Counts a file, with its first record. Raises Refusal where it does not fit, for each of its records."""
        if self._room is None:
            return
        if upload not in self._uploads:
            if len(self._uploads) >= _MOST_UPLOADS:
                raise _bad_pack()
            refusal = None
            if needed > self._room:
                text = 'the limit bytes.volumes of this workspace leaves room for %d bytes, and this file needs %d' % (self._room, needed)
                refusal = Refusal(507, 'volume_quota_reached', text)
            else:
                self._room -= needed
            if upload is not None:
                self._uploads[upload] = refusal
        else:
            refusal = self._uploads[upload]
        if refusal is not None:
            raise refusal

    def _fail(self, path: str, refusal: Refusal, body: _In, pending: Optional[int], is_told: bool) -> None:
        if pending is not None:
            for _run in body.take(pending):
                pass
            body.line()
        if is_told:
            return
        self._failures += 1
        if len(self._failed) < _MOST_TOLD:
            self._failed.append({'path': path[:5000], 'code': refusal.code, 'message': refusal.message})

    def _write_small(self, folder: int, name: bytes, data: bytearray, facts: Tuple[bool, int]) -> None:
        uploads.require_free(folder, name)
        entry, fd = self._temporary.open()
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            self._finish(fd, facts)
            os.rename(entry, name, src_dir_fd=self._temporary.fd, dst_dir_fd=folder)
        except BaseException as error:
            self._temporary.remove(entry)
            if isinstance(error, (IsADirectoryError, NotADirectoryError)):
                raise paths.irregular(name) from None
            raise
        finally:
            os.close(fd)

    def _finish(self, fd: int, facts: Tuple[bool, int]) -> None:
        executable, mtime_ns = facts
        try:
            os.fchown(fd, *self._owner)
        except PermissionError:
            # A server of network files may keep every file with one user of its own.
            pass
        os.fchmod(fd, 0o755 if executable else 0o644)
        if mtime_ns != 0:
            os.utime(fd, ns=(mtime_ns, mtime_ns))


class _OpenFile:
    """A large file that comes in parts; it stays open for the parts that follow in the same pack."""

    def __init__(self, root: int, folder: int, name: bytes, record: Dict[str, Any]) -> None:
        """`folder` must stay open as long as this."""
        self._whole = _whole_of(record)
        self._store = Uploads(root, folder, name)
        try:
            uploads.require_free(folder, name)
            self._store.open(make=True)
            self._upload = self._store.part(record['size'], record['key'], _number(record, 'from'))
        except BaseException:
            self._store.close()
            raise

    def expects(self, record: Dict[str, Any]) -> bool:
        """Whether the record is the next part of this file."""
        return self._whole == _whole_of(record) and record.get('from') == self._upload.received

    def take(self, left: _Left, facts: Tuple[bool, int]) -> bool:
        """Writes a part. Returns whether the file is whole now, and has its name."""
        upload = self._upload
        first = upload.received
        digest = hashlib.sha256()
        try:
            for run in left.runs():
                digest.update(run)
                upload.write(run)
            left.verify(digest.hexdigest())
        except Refusal:
            upload.drop(first)
            raise
        if upload.total is None or upload.received < upload.total:
            return False
        self._store.finish(upload, 0o755 if facts[0] else 0o644, facts[1])
        return True

    def close(self) -> None:
        self._upload.close()
        self._store.close()


def _whole_of(record: Dict[str, Any]) -> Tuple[Any, Any, Any]:
    return record.get('path'), record.get('size'), record.get('key')


class _Left:
    """The bytes of a record and the line behind them, which must be read whatever becomes of the file."""

    def __init__(self, body: _In, length: int) -> None:
        self._body = body
        self._runs = body.take(length)
        self._is_verified = False
        self.length = length

    def runs(self) -> Iterator[memoryview]:
        return self._runs

    def verify(self, digest: str) -> None:
        self._is_verified = True
        _verify(digest, self._body)

    def finish(self) -> None:
        if self._is_verified:
            return
        for _run in self._runs:
            pass
        self._body.line()


def _verify(digest: str, body: _In) -> None:
    trailer = body.line()
    if trailer is None:
        raise _bad_pack()
    if trailer.get('sha256') != digest:
        raise Refusal(409, 'checksum_mismatch', 'the bytes that came have another sha256 than was sent with them')


class _Temporary:
    """A folder for files without their names, made when the first one needs it."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._name = b''
        self.fd = -1

    def open(self) -> Tuple[bytes, int]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        for _ in range(3):
            if self.fd < 0:
                self._make()
            entry = b'x-' + os.urandom(8).hex().encode('ascii')
            try:
                return entry, os.open(entry, flags, 0o600, dir_fd=self.fd)
            except FileNotFoundError:
                # An upload that looks for old ones removed the empty folder.
                self.close()
        raise Refusal(502, 'volume_failed', 'the volume did not keep a folder for files on their way')

    def _make(self) -> None:
        name = paths.UPLOADS_PREFIX + b'pack-' + os.urandom(8).hex().encode('ascii')
        os.mkdir(name, 0o700, dir_fd=self._base)
        self._name = name
        self.fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._base)

    def remove(self, entry: bytes) -> None:
        try:
            os.unlink(entry, dir_fd=self.fd)
        except OSError:
            pass

    def close(self) -> None:
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        try:
            os.rmdir(self._name, dir_fd=self._base)
        except OSError:
            pass


def state(root: int, head: Dict[str, Any]) -> Dict[str, Any]:
    """How many bytes of an upload in parts have come."""
    *names, name = paths.parts_of(head['path'])
    key = str(head.get('key', ''))
    if _KEY.fullmatch(key) is None:
        raise Refusal(400, 'invalid_query', 'query parameter key must be 16 hex digits')
    try:
        folder = paths.open_folder(root, names, make=False)
    except Refusal as refusal:
        if refusal.status != 404:
            raise
        return {'received': 0}
    store = Uploads(root, folder, name)
    try:
        return {'received': store.received(int(head.get('size', 0)), key) if store.open(make=False) else 0}
    finally:
        store.close()
        os.close(folder)
