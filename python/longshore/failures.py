"""
Tracebacks of failed calls as a person reads them: the program's own line, without frames of this module, and behind it
what the container of the task printed last. Loaded when the first call fails.
"""

from __future__ import annotations

import os
import sys
import time
import types
from typing import Any, List, Optional, TypeVar
from urllib import parse

E = TypeVar('E', bound=BaseException)
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_BEGIN = 'Traceback (most recent call last):'
#: Words between the tracebacks of exceptions that caused each other.
_CAUSES = ('During handling of the above exception', 'The above exception was the direct cause')
#: Lines of a container that are read, and shown.
_READ = 500
_SHOWN = 60
#: The last lines of a task may be stored a moment after its end.
_LOOKS = 3
_LATE_SECONDS = 0.3

_before: Any = None


def shallow(failure: E) -> E:
    """The failure without the frames below its caller, which raises it. Python leaves the caller's own."""
    return failure.with_traceback(None)


def follow() -> None:
    """From now on a failure that nobody catches is shown without frames of this module."""
    global _before
    if _before is None and not os.environ.get('CONTAINER_ID'):
        _before, sys.excepthook = sys.excepthook, _hook


def _hook(kind: Any, value: Any, trace: Any) -> None:
    from .client import GatewayError
    from .results import TaskError

    if isinstance(value, (GatewayError, TaskError)):
        trace = _without_own(trace) or trace
        value.__traceback__ = trace
    _before(kind, value, trace)
    if isinstance(value, TaskError) and value.status == 'ERROR' and _BEGIN not in str(value) and not value.was_shown:
        lines = _printed_last(value)
        if lines:
            print('\nin its container (`longshore logs --task %s`):\n%s' % (value.task_id, '\n'.join(lines)), file=sys.stderr)
        else:
            print('\nwhat it printed: `longshore logs --task %s`' % value.task_id, file=sys.stderr)


def _without_own(trace: Any) -> Any:
    """The traceback without frames of this module; None: it has no others."""
    frames: List[Any] = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_HERE):
            frames.append(trace)
        trace = trace.tb_next
    for one in reversed(frames):
        trace = types.TracebackType(trace, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return trace


def _printed_last(failure: Any) -> List[str]:
    """The traceback that the task printed at its end; empty: none is there, or it may not be read."""
    from .client import GatewayError, call, workspace_of

    what = 'cannot read the output of task %s' % failure.task_id
    try:
        path = '/api/v1/logs/%s?%s' % (workspace_of(what, failure._at), parse.urlencode({'task_id': failure.task_id, 'limit': _READ}))
        for look in range(_LOOKS):
            found = _traceback([str(line.get('message', '')) for line in call(path, what, at=failure._at).get('logs') or []])
            if found or look == _LOOKS - 1:
                return found
            time.sleep(_LATE_SECONDS)
    except GatewayError:
        pass  # the failure is told already
    return []


def _traceback(lines: List[str]) -> List[str]:
    """The last traceback of these lines, with those of its causes."""
    begin: Optional[int] = None
    for at in range(len(lines) - 1, -1, -1):
        if lines[at] == _BEGIN:
            begin = at
            if not any(line.startswith(_CAUSES) for line in lines[max(0, at - 3) : at]):
                break
    if begin is None:
        return []
    found = lines[begin:]
    return found if len(found) <= _SHOWN else ['…', *found[-_SHOWN:]]
