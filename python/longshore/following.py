"""The printed output of a task, shown while a program waits for the task. Loaded at its first use."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable, Dict, Optional, TextIO
from urllib import parse

from .client import GatewayError, call, workspace_of

#: Lines of one look.
_LINES = 1000
#: The last lines of a task may be stored a moment after its end.
_LATE_SECONDS = 0.3


def follower(task_id: str, out: Optional[TextIO] = None) -> Optional[Callable[[Dict[str, Any]], None]]:
    """
    Shows lines on stderr where that is a terminal of a person's machine; None elsewhere. The result is called with the
    task at each look at it.
    """
    out = out or sys.stderr
    if os.environ.get('CONTAINER_ID') or not out.isatty():
        return None
    seen = 0

    def show() -> None:
        nonlocal seen
        query = parse.urlencode({'task_id': task_id, 'after_seq': seen, 'limit': _LINES})
        try:
            what = 'cannot read the output of task %s' % task_id
            lines = call('/api/v1/logs/%s?%s' % (workspace_of(what), query), what).get('logs') or []
        except GatewayError:
            return  # `longshore logs --task` shows it later
        for line in lines:
            seen = max(seen, int(line.get('seq_num') or 0))
            print(line.get('message', ''), file=out)

    def look(task: Dict[str, Any]) -> None:
        if task.get('status') == 'PENDING':
            return
        show()
        if task.get('status') != 'RUNNING':
            time.sleep(_LATE_SECONDS)
            show()

    return look
