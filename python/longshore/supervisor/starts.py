"""Starts of programs that name an id: one that is repeated under its id is answered with the first one's program.

Must stay true: at most one program starts for an id that is known, also when starts come at once. A start that failed is
forgotten. Ids are bounded in number and age; those whose program is being started are kept.
"""

from __future__ import annotations

import time
from collections import OrderedDict

from .wrongs import Wrong

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    Told = Callable[[int, Optional[Wrong]], object]

MOST_STARTS = 1000
KEPT_SECONDS = 600.0
_MOST_ID = 300


def id_of(request: Dict[str, Any]) -> str:
    """The id under which a request may be repeated; empty: none. Raises Wrong."""
    value = request.get('id')
    if value is None:
        return ''
    if not isinstance(value, str) or len(value) > _MOST_ID:
        raise Wrong('bad_request', 'id must be a text of at most %d characters' % _MOST_ID)
    return value


class _Begun:
    def __init__(self) -> None:
        self.at = time.monotonic()
        #: The program's; 0: it is being started.
        self.pid = 0
        self.waiting: List[Told] = []


class Starts:
    def __init__(self) -> None:
        self._by_id: 'OrderedDict[str, _Begun]' = OrderedDict()

    def begin(self, name: str, told: Told) -> bool:
        """Whether this start is the first one of its id. Any other's `told` gets what the first one came to."""
        begun = self._by_id.get(name)
        if begun is None:
            self._by_id[name] = _Begun()
            self._trim()
            return True
        if begun.pid:
            told(begun.pid, None)
        else:
            begun.waiting.append(told)
        return False

    def done(self, name: str, pid: int, wrong: Optional[Wrong]) -> None:
        """A start has come to its program, or to why there is none."""
        begun = self._by_id.get(name)
        if begun is None:
            return
        waiting, begun.waiting = begun.waiting, []
        begun.pid = pid
        if wrong is not None:
            del self._by_id[name]
        for told in waiting:
            told(pid, wrong)

    def _trim(self) -> None:
        since = time.monotonic() - KEPT_SECONDS
        for name, begun in list(self._by_id.items()):
            if len(self._by_id) <= MOST_STARTS and begun.at >= since:
                return
            if begun.pid:
                del self._by_id[name]
