"""Patterns in the files below a path: found, and replaced."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds enums (4 ms)
import json
import os
import re
import stat

from .entries import temporary_beside
from .files import open_file
from .work import MOST_ANSWER_BYTES, number_of, path_of, text_of
from .wrongs import Wrong

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

    from .work import Request, Work

MOST_MATCHES = 10_000
MOST_FILES = 100_000
MOST_FILE_BYTES = 10 * 1024 * 1024
#: Time for a search: less than the bound on an answer.
SECONDS = 8.0
#: Bound on the line that is shown with a match.
_MOST_LINE = 1000


class _TimeOver(BaseException):
    """The alarm: also a pattern that takes for ever is left."""


class _Search:
    def __init__(self, request: Request, new: Optional[str]) -> None:
        try:
            self._pattern = re.compile(text_of(request, 'pattern'))
        except (re.error, OverflowError, RecursionError) as error:
            raise Wrong('bad_request', 'pattern: %s' % error) from None
        self._most = min(number_of(request, 'most', MOST_MATCHES, 1), MOST_MATCHES)
        self._new = new
        self._count = 0
        self._size = 0
        self.results: List[Dict[str, Any]] = []
        self.more = False

    def run(self, path: str) -> None:
        signal.signal(signal.SIGALRM, _ring)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            for at, file in enumerate(_files(path)):
                if at >= MOST_FILES or self.more:
                    self.more = True
                    break
                self._look_at(file)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except _TimeOver:
            self.more = True

    def _look_at(self, path: str) -> None:
        try:
            fd = open_file(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, Wrong):
            return
        with open(fd, 'rb') as file:
            found = os.fstat(fd)
            data = file.read(MOST_FILE_BYTES + 1)
        if len(data) > MOST_FILE_BYTES or b'\0' in data:
            return
        try:
            text = data.decode('utf-8')
        except UnicodeDecodeError:
            return
        matches: List[Dict[str, Any]] = []
        lines = text.split('\n')
        for number, line in enumerate(lines):
            carriage = line.endswith('\r')
            bare = line[:-1] if carriage else line
            for match in self._pattern.finditer(bare):
                if self._count + len(matches) >= self._most:
                    self.more = True
                    break
                matches.append(_match(number + 1, match, bare))
            else:
                if self._new is not None and matches:
                    lines[number] = self._pattern.sub(lambda _match: str(self._new), bare) + ('\r' if carriage else '')
                continue
            break
        if not matches:
            return
        result = {'path': path, 'matches': matches}
        self._size += len(json.dumps(result)) + 2
        if self._size > MOST_ANSWER_BYTES - 1024 or (self.more and self._new is not None):
            self.more = True  # a file that is not told whole is not changed
            return
        if self._new is not None:
            _replace(path, '\n'.join(lines), found)
        self._count += len(matches)
        self.results.append(result)


def _match(line: int, match: Any, content: str) -> Dict[str, Any]:
    begin, end = match.span()
    place = {'start': {'line': line, 'column': begin + 1}, 'end': {'line': line, 'column': end + 1}}
    return {'range': place, 'content': content[:_MOST_LINE]}


def _replace(path: str, text: str, found: os.stat_result) -> None:
    made = temporary_beside(path)
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, 'wb') as file:
            file.write(text.encode('utf-8'))
            try:
                os.fchown(fd, found.st_uid, found.st_gid)
            except OSError:
                pass
            os.fchmod(fd, stat.S_IMODE(found.st_mode))
        os.rename(made, path)
    except BaseException:
        if os.path.lexists(made):
            os.unlink(made)
        raise


def _files(path: str) -> Iterator[str]:
    """The ordinary files below a path, by name. No link is followed."""
    if not stat.S_ISDIR(os.stat(path).st_mode):
        yield os.path.realpath(path)
        return
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda one: one.name)
        except OSError:
            if folder == path:
                raise
            continue
        waiting += [one.path for one in reversed(entries) if one.is_dir(follow_symlinks=False)]
        for one in entries:
            if one.is_file(follow_symlinks=False):
                yield one.path


def _ring(_number: int, _frame: object) -> None:
    raise _TimeOver


def _find(work: Work, cwd: str, request: Request) -> None:
    _run(work, cwd, request, None)


def _replace_all(work: Work, cwd: str, request: Request) -> None:
    _run(work, cwd, request, text_of(request, 'newString'))


def _run(work: Work, cwd: str, request: Request, new: Optional[str]) -> None:
    search = _Search(request, new)
    search.run(path_of(request, cwd))
    work.tell({'results': search.results, 'more': search.more})


CALLS = {'find': _find, 'replace': _replace_all}
