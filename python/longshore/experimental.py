"""Names that the published packages call experimental."""

from __future__ import annotations

from .published import getter

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any

__all__ = ['Bot', 'BotLocation', 'BotTransition', 'Signal']

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

else:
    __getattr__ = getter(__name__, __all__)
