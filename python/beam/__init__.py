"""App files written for `beam` run unchanged: its names, and those of `longshore`. `longshore.published` has the table."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, List

    from longshore.published_names import *  # noqa: F403

from longshore import __all__ as _own
from longshore.published import SERVED, UNSERVED, getter

__all__ = sorted({*_own, *SERVED, *UNSERVED})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__ = getter(__name__, __all__)


def __dir__() -> List[str]:
    return list(__all__)
