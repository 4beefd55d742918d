"""Files and directories by their names: facts, lists, making, moving, removing."""

from __future__ import annotations

import errno
import heapq
import json
import os
import stat
import time

from .work import MOST_ANSWER_BYTES, number_of, path_of
from .wrongs import Wrong

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator

    from .work import Request, Work

MOST_ENTRIES = 10_000
#: Time for a list: less than the bound on an answer.
_LIST_SECONDS = 8.0
_MOST_NAMES_BYTES = 1024 * 1024


class Names:
    """Names of users and groups from the container's own files; its libraries are not asked."""

    def __init__(self) -> None:
        self._users = _names('/etc/passwd')
        self._groups = _names('/etc/group')

    def user(self, number: int) -> str:
        return self._users.get(number, str(number))

    def group(self, number: int) -> str:
        return self._groups.get(number, str(number))


def entry_of(path: str, names: Names) -> Dict[str, Any]:
    """The facts of a file: of a link itself, but whether it leads to a directory."""
    found = os.lstat(path)
    is_link = stat.S_ISLNK(found.st_mode)
    return {
        'name': os.path.basename(path.rstrip('/')) or '/',
        'isDir': os.path.isdir(path) if is_link else stat.S_ISDIR(found.st_mode),
        'isLink': is_link,
        'size': found.st_size,
        'mode': stat.S_IMODE(found.st_mode),
        'modTimeMs': found.st_mtime_ns // 1_000_000,
        'permissions': stat.filemode(found.st_mode),
        'owner': names.user(found.st_uid),
        'group': names.group(found.st_gid),
    }


def _stat(work: Work, cwd: str, request: Request) -> None:
    work.tell({'entry': entry_of(path_of(request, cwd), Names())})


def _list(work: Work, cwd: str, request: Request) -> None:
    path = path_of(request, cwd)
    until = time.monotonic() + _LIST_SECONDS
    names = Names()
    found = heapq.nsmallest(MOST_ENTRIES + 1, _names_in(path, until))
    more = len(found) > MOST_ENTRIES or time.monotonic() > until
    entries, size = [], 0
    for name in found[:MOST_ENTRIES]:
        try:
            entry = entry_of(os.path.join(path, name), names)
        except FileNotFoundError:
            continue
        size += len(json.dumps(entry)) + 2
        if size > MOST_ANSWER_BYTES - 1024 or time.monotonic() > until:
            more = True
            break
        entries.append(entry)
    work.tell({'entries': entries, 'more': more})


def _names_in(path: str, until: float) -> Iterator[str]:
    with os.scandir(path) as found:
        for at, one in enumerate(found):
            if at % 1000 == 999 and time.monotonic() > until:
                return
            yield one.name


def _mkdir(work: Work, cwd: str, request: Request) -> None:
    path = path_of(request, cwd)
    mode = None if request.get('mode') is None else number_of(request, 'mode', 0, 0, 0o7777)
    if request.get('parents') is True:
        os.makedirs(os.path.dirname(path.rstrip('/')) or '/', exist_ok=True)
    try:
        os.mkdir(path)
        if mode is not None:
            os.chmod(path, mode)
    except FileExistsError:
        if request.get('parents') is not True or not os.path.isdir(path):
            raise
    work.tell({})


def _move(work: Work, cwd: str, request: Request) -> None:
    path, new = path_of(request, cwd), path_of(request, cwd, 'newPath')
    try:
        os.rename(path, new)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise Wrong('bad_request', '%s cannot become a part of itself' % path) from None
        if error.errno != errno.EXDEV:
            error.filename = path if not os.path.lexists(path) else new
            raise
        _move_across(path, new)
    work.tell({})


def _move_across(path: str, new: str) -> None:
    """To another file system, such as a volume: copied beside its place first."""
    import shutil

    if os.path.isdir(new):
        raise Wrong('exists', '%s is there already' % new)
    made = temporary_beside(new)
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.copytree(path, made, symlinks=True)
        else:
            shutil.copy2(path, made, follow_symlinks=False)
        os.rename(made, new)
    except BaseException:
        _remove_all(made)
        raise
    _remove_all(path)


def _remove(work: Work, cwd: str, request: Request) -> None:
    path = path_of(request, cwd)
    if os.path.realpath(path) == '/':
        raise Wrong('bad_request', 'the root of the container is not removed')
    path = path.rstrip('/')
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
    elif request.get('recursive') is True:
        import shutil

        shutil.rmtree(path)
    else:
        os.rmdir(path)
    work.tell({})


def _remove_all(path: str) -> None:
    import shutil

    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def temporary_beside(path: str) -> str:
    """A name in the same directory, for what takes that path's place once it is whole."""
    return os.path.join(os.path.dirname(path), '.longshore-%s' % os.urandom(8).hex())


def _names(path: str) -> Dict[int, str]:
    found: Dict[int, str] = {}
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            lines = file.read(_MOST_NAMES_BYTES).split('\n')
    except OSError:
        lines = []
    for line in lines:
        parts = line.split(':')
        if len(parts) > 2 and parts[2].isdigit():
            found.setdefault(int(parts[2]), parts[0])
    return found


CALLS: 'Dict[str, Callable[[Work, str, Request], None]]' = {
    'stat': _stat,
    'list': _list,
    'mkdir': _mkdir,
    'move': _move,
    'remove': _remove,
}
