"""One request for a file of the volume, from its head to the end of its answer."""

from __future__ import annotations

import os
import socket

from ..runner.protocol import FrameError
from . import packs, parts, paths, ranges, tree, uploads
from .packs import etag_of, of_os_error
from .uploads import Uploads
from .wire import Cut, Out, Refusal, Wire

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from .ranges import Part
    from .uploads import Upload
    from .wire import Headers

def serve(connection: socket.socket, first: bytes, root: int) -> None:
    """Serves the request of a connection, and closes it. A transfer that fails half-way breaks off."""
    try:
        wire = Wire(connection, first)
        _answer(wire, wire.head(), root)
        # The scheduler ends the connection; until then it may still read.
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(30)
        while connection.recv(65536):
            pass
    except (Cut, FrameError, OSError, ValueError):
        pass
    finally:
        connection.close()


#: Calls on folders and entries: each answers with JSON.
CALLS = {
    'list': tree.list_entries,
    'measure': tree.measure,
    'remove': tree.remove,
    'move': tree.move,
    'state': packs.state,
    'begin': parts.begin,
    'complete': parts.complete,
    'abort': parts.abort,
}


def _answer(wire: Wire, head: Dict[str, Any], root: int) -> None:
    headers = {name: value for name, value in head.get('headers', [])}
    purpose = head['purpose']
    try:
        call = CALLS.get(purpose)
        if call is not None:
            return wire.answer_json(200, [('cache-control', 'no-store')], call(root, head))
        if purpose == 'pack':
            return packs.send_pack(wire, root, head)
        if purpose == 'unpack':
            return packs.receive_pack(wire, root, head)
        if purpose == 'part':
            return parts.receive(wire, root, head, headers)
        *folders, name = paths.parts_of(head['path'])
        if purpose == 'get':
            _download(wire, head['method'], headers, root, folders, name)
        elif head['method'] == 'PUT':
            _upload(wire, headers, bool(head.get('expectsContinue')), root, folders, name)
        else:
            _state(wire, 200, root, folders, name)
    except Refusal as refusal:
        wire.refuse(refusal, head.get('requestId', ''))
    except (BrokenPipeError, ConnectionError):
        raise Cut from None
    except OSError as error:
        wire.refuse(of_os_error(error), head.get('requestId', ''))


# ---- downloads -----------------------------------------------------------------------------------------------------
def _download(
    wire: Wire, method: str, headers: Dict[str, str], root: int, folders: List[bytes], name: bytes
) -> None:
    folder = paths.open_folder(root, folders, make=False)
    try:
        fd = paths.open_file(folder, name)
    finally:
        os.close(folder)
    try:
        found = os.fstat(fd)
        etag = etag_of(found)
        common: Headers = [('etag', etag), ('accept-ranges', 'bytes'), ('cache-control', 'private, no-transform')]
        if 'if-match' in headers and not ranges.names(headers['if-match'], etag, weak=False):
            raise Refusal(412, 'precondition_failed', 'If-Match names other bytes than the file has now', common)
        if 'if-none-match' in headers and ranges.names(headers['if-none-match'], etag, weak=True):
            wire.answer(304, common)
            return wire.end()
        size = found.st_size
        part = ranges.range_of(method, headers, etag, size)
        begin, end = part or (0, size)
        common += [('content-type', 'application/octet-stream'), ('content-length', str(end - begin))]
        if part is not None:
            common.append(('content-range', 'bytes %d-%d/%d' % (begin, end - 1, size)))
        wire.answer(200 if part is None else 206, common)
        if method == 'GET':
            _send(wire, fd, begin, end, etag)
        wire.end()
    finally:
        os.close(fd)


def _send(wire: Wire, fd: int, begin: int, end: int, etag: str) -> None:
    """Sends bytes of a file. A file that changes meanwhile is cut before its last bytes."""
    out = Out(wire)
    at = begin
    while at < end:
        try:
            count = out.read(fd, at, end - at)
        except OSError:
            raise Cut from None
        at += count
        if count == 0:
            raise Cut
    if etag_of(os.fstat(fd)) != etag:
        raise Cut
    out.flush()


# ---- uploads -------------------------------------------------------------------------------------------------------
def _state(wire: Wire, status: int, root: int, folders: List[bytes], name: bytes) -> None:
    """Answers how many bytes of an upload have arrived."""
    received, total, tags = 0, None, []
    try:
        folder = paths.open_folder(root, folders, make=False)
    except Refusal as refusal:
        if refusal.status != 404:
            raise
    else:
        store = Uploads(root, folder, name)
        try:
            uploads.require_free(folder, name)
            entry = store.newest() if store.open(make=False) else None
            if entry is not None:
                received, total = store.size_of(entry), uploads.total_of(entry)
            try:
                tags = [('etag', etag_of(paths.require_ordinary(folder, name)))]
            except Refusal:
                pass
        finally:
            store.close()
            os.close(folder)
    wire.answer(status, [*uploads.offset_headers(received, total), *tags, ('content-length', '0')])
    wire.end()


def _upload(
    wire: Wire, headers: Dict[str, str], waits: bool, root: int, folders: List[bytes], name: bytes
) -> None:
    part = ranges.part_of(headers)
    if part is not None and part.asks:
        return _state(wire, 202, root, folders, name)
    folder = paths.open_folder(root, folders, make=True)
    store = Uploads(root, folder, name)
    found: Optional[os.stat_result] = None
    try:
        uploads.require_free(folder, name)
        uploads.remove_old(folder, uploads.now())
        store.open(make=True)
        length = headers.get('content-length')
        upload = _opened(store, part, None if length is None else int(length))
        try:
            if waits:
                wire.wants_body()
            _receive(wire, store, upload, part)
            if upload.total is None or upload.received >= upload.total:
                found = store.finish(upload)
        finally:
            upload.close()
    finally:
        store.close()
        os.close(folder)
    # The answer comes last: its reader finds no folder of this upload, and may go on with the next part at once.
    if found is not None:
        return wire.answer_json(200, [('etag', etag_of(found))], {'size': found.st_size})
    wire.answer(202, [*uploads.offset_headers(upload.received, upload.total), ('content-length', '0')])
    wire.end()


def _opened(store: Uploads, part: Optional[Part], length: Optional[int]) -> Upload:
    if part is None:
        return store.begin(length, replace_running=True)
    if part.first == 0:
        return store.begin(part.total, replace_running=False)
    return store.go_on(part.total, part.first)


def _receive(wire: Wire, store: Uploads, upload: Upload, part: Optional[Part]) -> None:
    """Writes the body. The bytes of an upload whose size is not known are removed when it is cut off."""
    end = upload.total if part is None else part.end
    try:
        for data in wire.body():
            if end is not None and upload.received + len(data) > end:
                raise Refusal(400, 'upload_incomplete', 'more bytes came than the upload announced')
            upload.write(data)
        if end is not None and upload.received != end:
            text = 'the upload ended at byte %d, before byte %d' % (upload.received, end)
            raise Refusal(400, 'upload_incomplete', text)
    except BaseException:
        if upload.total is None:
            store.remove(upload.entry)
        raise
