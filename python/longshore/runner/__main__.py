"""`python3 -m longshore.runner`."""

import sys

# `-m` puts the working directory, which holds the user's code, before the standard library: their `queue.py` or `types.py` would
# become ours. It is out of the way while the runner imports what it needs, and first again when user code is imported.
_code = sys.path.pop(0) if sys.path else ''

from .main import main  # noqa: E402

sys.path.insert(0, _code)
main()
