"""`longshore.env`, by the name that app files use."""

from longshore.env import *  # noqa: F403
from longshore.env import __all__  # noqa: F401
