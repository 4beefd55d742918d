"""Decides which changed files have a development server load its app anew (pure). Other files only travel."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import AbstractSet, Iterable


def reloading_path(paths: Iterable[str], loaded: AbstractSet[str], is_broken: bool) -> str:
    """
    The first of the changed paths for which the app has to be loaded anew; empty: none.

    `loaded` has the files of the program's modules. Both are relative to the app's folder. While the last start stands
    as failed, any file may be the one that it lacked.
    """
    for path in paths:
        if is_broken or path in loaded or is_own_python(path):
            return path
        # The removal of a folder is told by its path alone.
        below = path + '/'
        if any(file.startswith(below) for file in loaded):
            return path
    return ''


def is_own_python(path: str) -> bool:
    """
    Whether the path is a Python file of the app. Backup and swap files of editors are none (`.#app.py`, `app.py~`,
    `.ipynb_checkpoints/app-checkpoint.py`).
    """
    return path.endswith('.py') and not any(part.startswith('.') for part in path.split('/'))
