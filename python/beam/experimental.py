"""`longshore.experimental`, by the name that app files use."""

from longshore.experimental import *  # noqa: F403
from longshore.experimental import __all__  # noqa: F401
