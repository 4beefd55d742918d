"""`python3 -m longshore.runner`."""

import sys

# `-m` puts the working directory, which holds user code, before the standard library: a `queue.py` or `types.py` there
# would replace the library's. The directory is off the path while the runner imports its modules, and first again when
# it imports user code.
_code = sys.path.pop(0) if sys.path else ''

from .keeper import keep_output  # noqa: E402

keep_output()

from .main import main  # noqa: E402

sys.path.insert(0, _code)
main()
