"""Names that the published packages call experimental."""

from __future__ import annotations

from .published import getter

__all__ = ['Bot', 'BotLocation', 'BotTransition', 'Signal']

__getattr__ = getter(__name__, __all__)
