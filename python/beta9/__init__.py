"""App files written for `beta9` run unchanged: its names, and those of `longshore`. `longshore.published` has the table."""

from longshore import __all__ as _own
from longshore.published import SERVED, UNSERVED, getter

__all__ = sorted({*_own, *SERVED, *UNSERVED})

__getattr__ = getter(__name__, __all__)


def __dir__() -> list:
    return list(__all__)
