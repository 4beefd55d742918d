"""App files written for `beta9` run unchanged: its names, given by `longshore`."""

from longshore import *  # noqa: F403
from longshore import __all__  # noqa: F401
