"""`longshore.integrations`, by the name that app files use."""

from longshore.integrations import *  # noqa: F403
from longshore.integrations import __all__  # noqa: F401
