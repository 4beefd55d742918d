"""`longshore.schema`, by the name that app files use."""

from longshore.schema import *  # noqa: F403
from longshore.schema import __all__  # noqa: F401
