"""The printed output of a task, shown while a program waits for the task. Loaded at its first use."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable, Dict, Optional, TextIO
from urllib import parse

from .client import GatewayError, call, workspace_of

#: A program tells what its task waits for after this time, and then each change.
_WAITING_SECONDS = 2.0
_ASK_EVERY_SECONDS = 5.0
#: What a container waits for while its image is pulled or made; the first detail says how far that is.
_IMAGE = 'its image'
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
    waiting = _Waiting(task_id, out)

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
            waiting.look(task)
            return
        show()
        if task.get('status') != 'RUNNING':
            time.sleep(_LATE_SECONDS)
            show()

    return look


class _Waiting:
    """Says what a task waits for, such as the image of its container, when it has waited for some seconds."""

    def __init__(self, task_id: str, out: TextIO) -> None:
        self._task_id = task_id
        self._out = out
        self._next = time.monotonic() + _WAITING_SECONDS
        self._said = ''

    def look(self, task: Dict[str, Any]) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _ASK_EVERY_SECONDS
        try:
            text = self._reason(str((task.get('stub') or {}).get('external_id') or ''))
        except GatewayError:
            return
        if text and text != self._said:
            self._said = text
            print('waiting: %s' % text, file=self._out)

    def _reason(self, stub_id: str) -> str:
        what = 'cannot read what task %s waits for' % self._task_id
        containers = call('/api/v1/gateway/containers', what).get('containers') or []
        coming = [one for one in containers if one.get('stubId') == stub_id and one.get('status') == 'PENDING']
        about = str(coming[0].get('containerId')) if coming else self._task_id
        found = call('/api/v1/explain/%s/%s' % (workspace_of(what), parse.quote(about, safe='')), what)
        details = found.get('details') or []
        if details and found.get('waits_for') == _IMAGE:
            return str(details[0])
        return '; '.join([str(found.get('summary') or '')] + [str(one) for one in details[:1]])
