"""Files that containers share and that are fetched once: `fill_once`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Any, Callable, Union


def fill_once(path: Union[str, 'os.PathLike[str]'], fill: Callable[[str], Any]) -> str:
    """
    Gives `path`, a folder, filled: by this call, by one before, or by another container of the machine meanwhile.

        fill_once('/models/phi', lambda folder: snapshot_download('microsoft/phi-2', local_dir=folder))

    `fill` is called with an empty folder beside `path`. The folder gets its name when `fill` has returned and its files
    are on the disk. So a filler that fails or is killed leaves nothing half. Callers take turns by a lock beside it, so
    `fill` runs once. `path` belongs in a `Volume`, best with `driver='cache'`.
    """
    import fcntl

    path = os.path.abspath(os.fspath(path))
    if os.path.isdir(path):
        return path
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    # Every user of an image may read the file, and that is enough for its lock. The file stays: a lock is of a file.
    lock = os.open(os.path.join(parent, '.fill-%s.lock' % name), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _take(lock, path)
        try:
            if not os.path.lexists(path):
                _fill(path, parent, name, fill)
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
    finally:
        os.close(lock)
    return path


def _take(lock: int, path: str) -> None:
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print('longshore: another container fills %s; this one waits for it' % path, file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def _fill(path: str, parent: str, name: str, fill: Callable[[str], Any]) -> None:
    prefix = '.fill-%s-' % name
    # The lock is ours, so whoever left these is gone.
    for left in os.listdir(parent):
        if left.startswith(prefix):
            shutil.rmtree(os.path.join(parent, left), ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        os.chmod(folder, 0o755)
        fill(folder)
        _sync(folder)
        os.rename(folder, path)
        _sync_folder(parent)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _sync(folder: str) -> None:
    """Has every file on the disk: a name must not outlive its bytes in a power failure."""
    for where, _folders, files in os.walk(folder):
        for file in files:
            full = os.path.join(where, file)
            if not os.path.isfile(full) or os.path.islink(full):
                continue
            opened = os.open(full, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
        _sync_folder(where)


def _sync_folder(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
