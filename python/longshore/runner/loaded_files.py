"""The files of the modules that a process has imported, as a development server's process reports them."""

from __future__ import annotations

import json
import os
import sys

from . import protocol

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Set

    from .spawning import Report

#: Bounds on what a process reports: apps have fewer modules of their own, and paths are short.
MOST_FILES = 5_000
MOST_PATH = 1_024
#: Paths in a frame, which has at most 1 MiB: a character may take six bytes.
_IN_A_FRAME = 100


class LoadedFiles:
    """Reports the files below the app's folder, and later those of modules that were imported meanwhile."""

    def __init__(self, report: Report, root: str) -> None:
        self._report = report
        self._root = os.path.join(os.path.realpath(root), '')
        self._modules = 0
        self._told: Set[str] = set()

    def tell(self) -> None:
        """Costs next to nothing where no module was imported since the last call."""
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        new = [path for path in files_below(self._root) if path not in self._told][: MOST_FILES - len(self._told)]
        self._told.update(new)
        for at in range(0, len(new) or 1, _IN_A_FRAME):
            self._report.tell(protocol.LOADED, {}, json.dumps(new[at : at + _IN_A_FRAME]).encode('ascii'))


def files_below(root: str) -> Set[str]:
    """The files of this process's modules that are below a folder (which ends with `/`), relative to it."""
    found: Set[str] = set()
    for module in list(sys.modules.values()):
        try:
            names = [getattr(module, '__file__', None), getattr(getattr(module, '__spec__', None), 'origin', None)]
        except Exception:  # an object of user code in the place of a module
            continue
        for name in names:
            path = _path_of(name)
            if path.startswith(root) and len(path) <= MOST_PATH:
                found.add(path[len(root) :])
    return found


def _path_of(name: object) -> str:
    """The file of a module; of one within an archive, the archive. Empty: it has none."""
    if not isinstance(name, str) or not name or '\0' in name:
        return ''
    path = os.path.realpath(name)
    while not os.path.exists(path):
        parent = os.path.dirname(path)
        if parent == path:
            return ''
        path = parent
    return '' if os.path.isdir(path) else path
