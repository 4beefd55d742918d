"""Files of a sandbox. Loaded at its first use."""

from __future__ import annotations

import io
import os
import re
import shutil
import time
from typing import IO, TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Union
from urllib import parse

from .client import GatewayError, opened
from .errors import SandboxFileSystemError
from .recipes import Aio

if TYPE_CHECKING:
    from .sandboxes import SandboxInstance

_PIECE_BYTES = 1 << 20
_PAUSE_SECONDS = 0.1


class _Values:
    """An object that is equal to another one with the same values."""

    __slots__: Tuple[str, ...] = ()

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        return '%s(%s)' % (type(self).__name__, ', '.join('%s=%r' % (name, getattr(self, name)) for name in self.__slots__))


class SandboxFileInfo(_Values):
    """A file or directory: size in bytes, mod_time in seconds since 1970, mode and permissions with the bits of
    chmod."""

    __slots__ = ('name', 'is_dir', 'size', 'mode', 'mod_time', 'permissions', 'owner', 'group')

    def __init__(self, name: str, is_dir: bool, size: int, mode: int, mod_time: int, permissions: int, owner: str, group: str) -> None:
        self.name = name
        self.is_dir = is_dir
        self.size = size
        self.mode = mode
        self.mod_time = mod_time
        self.permissions = permissions
        self.owner = owner
        self.group = group


class SandboxFilePosition(_Values):
    """A place in a file; line and column begin with 1."""

    __slots__ = ('line', 'column')

    def __init__(self, line: int, column: int) -> None:
        self.line = line
        self.column = column


class SandboxFileSearchRange(_Values):
    __slots__ = ('start', 'end')

    def __init__(self, start: SandboxFilePosition, end: SandboxFilePosition) -> None:
        self.start = start
        self.end = end


class SandboxFileSearchMatch(_Values):
    """A match: its range, and the line in `content`."""

    __slots__ = ('range', 'content')

    def __init__(self, range: SandboxFileSearchRange, content: str) -> None:
        self.range = range
        self.content = content


class SandboxFileSearchResult(_Values):
    """A file with matches."""

    __slots__ = ('path', 'matches')

    def __init__(self, path: str, matches: List[SandboxFileSearchMatch]) -> None:
        self.path = path
        self.matches = matches


class SandboxFileSystem:
    """`sandbox.fs`: files of a sandbox. Relative paths are below its working directory. Files may have any size.
    Methods raise SandboxFileSystemError when the sandbox refuses, and GatewayError when the installation does not
    answer."""

    def __init__(self, sandbox_instance: SandboxInstance) -> None:
        self._sandbox = sandbox_instance

    def upload_file(self, local_path: str, sandbox_path: str) -> None:
        """Copies a file of this machine. A file that is there is replaced at once, missing directories are made."""
        with open(local_path, 'rb') as file:
            self._put(sandbox_path, file, os.fstat(file.fileno()).st_size, 0)

    def write_bytes(self, sandbox_path: str, data: Union[bytes, IO[bytes]], mode: int = 0o644) -> None:
        """Writes a file. data: bytes, or an open binary file, which is read to its end. mode: as of chmod."""
        if isinstance(data, (bytes, bytearray, memoryview)):
            self._put(sandbox_path, io.BytesIO(data), len(data), mode)
            return
        if not hasattr(data, 'seekable'):
            raise SandboxFileSystemError('cannot write %s: data must be bytes, or a file open for reading bytes' % sandbox_path)
        if data.seekable():
            at = data.tell()
            size = data.seek(0, os.SEEK_END) - at
            data.seek(at)
            self._put(sandbox_path, data, size, mode)
            return
        import tempfile

        with tempfile.TemporaryFile() as file:
            shutil.copyfileobj(data, file, _PIECE_BYTES)
            size = file.tell()
            file.seek(0)
            self._put(sandbox_path, file, size, mode)

    def write_text(self, sandbox_path: str, text: str, encoding: str = 'utf-8', mode: int = 0o644) -> None:
        """Writes a text into a file; missing directories are made. mode: as of chmod."""
        self.write_bytes(sandbox_path, text.encode(encoding), mode)

    def download_file(self, sandbox_path: str, local_path: str) -> None:
        """Copies a file to this machine. A copy that fails leaves no file."""
        part = '%s.%s.part' % (local_path, os.urandom(4).hex())
        try:
            with self._opened('GET', sandbox_path) as answer, open(part, 'wb') as file:
                _copied(answer, file, sandbox_path)
            os.replace(part, local_path)
        finally:
            if os.path.exists(part):
                os.remove(part)

    def read_bytes(self, sandbox_path: str) -> bytes:
        """The bytes of a file, all in memory."""
        whole = io.BytesIO()
        with self._opened('GET', sandbox_path) as answer:
            _copied(answer, whole, sandbox_path)
        return whole.getvalue()

    def read_text(self, sandbox_path: str, encoding: str = 'utf-8') -> str:
        """The text of a file. Raises UnicodeDecodeError, where its bytes are no text in that encoding."""
        return self.read_bytes(sandbox_path).decode(encoding)

    def stat_file(self, sandbox_path: str) -> SandboxFileInfo:
        """Facts about a file or a directory."""
        found = self._ask('GET', '/files/stat', 'read', sandbox_path)
        return _info(found.get('fileInfo') or {})

    def wait_for(self, sandbox_path: str, timeout: float = 60, *, size: Optional[int] = None) -> SandboxFileInfo:
        """Waits until a file is there, and has the size in bytes that is given. Raises TimeoutError."""
        until = time.monotonic() + timeout
        while True:
            try:
                info = self.stat_file(sandbox_path)
                if size is None or info.size == size:
                    return info
            except SandboxFileSystemError as problem:
                refused = problem
                # Directories on the way may be missing, too.
                if not re.search(r'no such file|not found|does not exist', str(refused), re.IGNORECASE):
                    raise
            if time.monotonic() >= until:
                raise TimeoutError('%s was not in %s within %s s' % (sandbox_path, self._sandbox.container_id, timeout))
            time.sleep(_PAUSE_SECONDS)

    def list_files(self, sandbox_path: str) -> List[SandboxFileInfo]:
        """Files and directories in a directory, by name."""
        return [_info(one) for one in self._ask('GET', '/files', 'list', sandbox_path).get('files') or []]

    def create_directory(self, sandbox_path: str) -> None:
        """Makes a directory, and those above it that are missing."""
        self._ask('POST', '/directories', 'make directory', sandbox_path, {'mode': 0o755})

    def delete_directory(self, sandbox_path: str) -> None:
        """Removes a directory and everything in it."""
        self._ask('DELETE', '/directories/' + parse.quote(sandbox_path, safe=''), 'remove', sandbox_path)

    def delete_file(self, sandbox_path: str) -> None:
        """Removes a file."""
        self._ask('DELETE', '/files/' + parse.quote(sandbox_path, safe=''), 'remove', sandbox_path)

    def remove(self, sandbox_path: str) -> None:
        """Removes a file, or a directory with everything in it."""
        if self.stat_file(sandbox_path).is_dir:
            self.delete_directory(sandbox_path)
        else:
            self.delete_file(sandbox_path)

    def find_in_files(self, sandbox_path: str, pattern: str) -> List[SandboxFileSearchResult]:
        """Matches of a regular expression, within lines, in the text files below a directory: at most 10,000."""
        found = self._ask('POST', '/files/find', 'search', sandbox_path, {'pattern': pattern})
        return [_result(one) for one in found.get('results') or []]

    def replace_in_files(self, sandbox_path: str, old_string: str, new_string: str, *, regex: bool = False) -> None:
        """Replaces a text, within lines, in the text files below a directory. regex: `old_string` is a regular
        expression; `new_string` is always put in as it is."""
        given = {'pattern': old_string if regex else re.escape(old_string), 'newString': new_string}
        self._ask('POST', '/files/replace', 'replace text in', sandbox_path, given)

    def _ask(self, method: str, route: str, verb: str, path: str, more: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        what = 'cannot %s %s' % (verb, path)
        body = None if method in ('GET', 'DELETE') else dict(more or {}, containerPath=path)
        query = '?' + parse.urlencode({'containerPath': path}) if method == 'GET' else ''
        return self._sandbox.ask(method, route + query, what, body, SandboxFileSystemError)

    def _put(self, path: str, file: IO[bytes], size: int, mode: int) -> None:
        with self._opened('PUT', path, file, size, mode) as answer:
            answer.read()

    def _opened(self, method: str, path: str, body: Any = None, size: int = 0, mode: int = 0) -> Any:
        what = 'cannot %s %s' % ('read' if method == 'GET' else 'write', path)
        query = parse.urlencode(dict({'path': path}, **({'mode': '%o' % mode} if mode else {})))
        route = '/api/v1/gateway/containers/%s/files?%s' % (parse.quote(self._sandbox.container_id, safe=''), query)
        try:
            return opened(method, route, what, self._sandbox.at, body, size)
        except GatewayError as problem:
            if problem.status in (0, 401):
                raise
            raise SandboxFileSystemError(str(problem)) from problem

    @property
    def aio(self) -> Any:
        """The same methods as coroutines."""
        return Aio(self)


def _copied(answer: Any, file: IO[bytes], path: str) -> None:
    """Copies an answer. Raises SandboxFileSystemError when the connection ended before the file did."""
    from http.client import HTTPException

    size = answer.headers.get('Content-Length', '')
    try:
        shutil.copyfileobj(answer, file, _PIECE_BYTES)
    except (OSError, HTTPException) as problem:
        raise SandboxFileSystemError('cannot read %s: the connection ended (%s)' % (path, problem)) from problem
    if size.isdigit() and file.tell() != int(size):
        raise SandboxFileSystemError('cannot read %s: the connection ended after %d of %s bytes' % (path, file.tell(), size))


def _info(one: Mapping[str, Any]) -> SandboxFileInfo:
    numbers = {name: int(one.get(key) or 0) for name, key in (('size', 'size'), ('mode', 'mode'), ('mod_time', 'modTime'))}
    permissions = int(one.get('permissions') or one.get('mode') or 0)
    return SandboxFileInfo(
        name=str(one.get('name') or ''),
        is_dir=one.get('isDir') is True,
        permissions=permissions,
        owner=str(one.get('owner') or ''),
        group=str(one.get('group') or ''),
        **numbers,
    )


def _result(one: Mapping[str, Any]) -> SandboxFileSearchResult:
    matches = []
    for match in one.get('matches') or []:
        places = [match['range'][name] for name in ('start', 'end')]
        start, end = (SandboxFilePosition(int(place['line']), int(place['column'])) for place in places)
        matches.append(SandboxFileSearchMatch(SandboxFileSearchRange(start, end), str(match.get('content') or '')))
    return SandboxFileSearchResult(str(one.get('path') or ''), matches)
