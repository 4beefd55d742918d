"""
Ctrl-C while a program waits for tasks: what it waits for is cancelled, as by `longshore run`, and the program ends with
one line instead of a traceback. A second Ctrl-C leaves at once. Loaded at its first use.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, List, Optional, Sequence, TypeVar

from .client import At, GatewayError, call

T = TypeVar('T')
#: Tasks of one request.
_AT_ONCE = 100


#: Attribute of an interrupt whose consequence was said on stderr. A class of its own would change the exit code.
_TOLD = '_longshore_told'
#: Tasks whose coroutines were cancelled: a Ctrl-C in an event loop ends as a plain KeyboardInterrupt.
_of_coroutines: List[str] = []


def waited(wait: Callable[[], T], task_ids: Callable[[], Sequence[str]], at: Optional[At] = None) -> T:
    """The result of `wait`, which waits for tasks that this program has put. Ctrl-C cancels those of `task_ids`."""
    try:
        return wait()
    except KeyboardInterrupt as interrupt:
        if _is_told(interrupt) or os.environ.get('CONTAINER_ID'):
            raise
        _stop(list(task_ids()), at)
        raise _told() from None


def watched(wait: Callable[[], T], what_next: str) -> T:
    """The result of `wait`, which waits for something that is not this program's to cancel, or ends by itself."""
    try:
        return wait()
    except KeyboardInterrupt as interrupt:
        if _is_told(interrupt) or os.environ.get('CONTAINER_ID'):
            raise
        _say(what_next)
        raise _told() from None


def cancelled(task_ids: Sequence[str], at: Optional[At] = None) -> None:
    """Cancels tasks; those that have ended stay as they are. Raises GatewayError."""
    for first in range(0, len(task_ids), _AT_ONCE):
        some = [str(one) for one in task_ids[first : first + _AT_ONCE]]
        what = 'cannot cancel %s' % named(some)
        found = call('/api/v1/gateway/tasks/stop', what, json.dumps({'taskIds': some}).encode('utf-8'), at=at)
        if found.get('ok') is not True:
            raise GatewayError('%s: %s' % (what, found.get('errMsg') or 'it was refused'))


def of_coroutine(task_id: str, at: Optional[At] = None) -> None:
    """Cancels the task of a coroutine that was cancelled, as an event loop does at Ctrl-C."""
    _keep_quiet()
    _of_coroutines.append(task_id)
    cancelled([task_id], at)


def named(task_ids: Sequence[str]) -> str:
    return 'task %s' % task_ids[0] if len(task_ids) == 1 else '%d tasks' % len(task_ids)


def _told() -> KeyboardInterrupt:
    _keep_quiet()
    interrupt = KeyboardInterrupt()
    setattr(interrupt, _TOLD, True)
    return interrupt


def _is_told(interrupt: Any) -> bool:
    return getattr(interrupt, _TOLD, False) is True


def _stop(task_ids: List[str], at: Optional[At]) -> None:
    if not task_ids:
        _say('stopped')
        return
    goes_on = '`longshore task stop %s`' % ' '.join(task_ids[:1] + (['…'] if len(task_ids) > 1 else []))
    try:
        cancelled(task_ids, at)
        _say('stopped: %s' % was_cancelled(task_ids))
    except GatewayError as problem:
        _say('%s; %s cancels what goes on' % (problem, goes_on))
    except KeyboardInterrupt:
        _say('left at once: %s cancels what goes on' % goes_on)


def was_cancelled(task_ids: Sequence[str]) -> str:
    return '%s %s cancelled' % (named(task_ids), 'was' if len(task_ids) == 1 else 'were')


def _say(text: str) -> None:
    # The terminal has shown ^C on this line.
    print(('\n' if sys.stderr.isatty() else '') + text, file=sys.stderr, flush=True)


_before: Any = None


def _keep_quiet() -> None:
    """From now on an interrupt that nobody catches ends the program without a traceback."""
    global _before
    if _before is None:
        _before, sys.excepthook = sys.excepthook, _hook


def _hook(kind: Any, value: Any, trace: Any) -> None:
    if _is_told(value):
        return
    if isinstance(value, KeyboardInterrupt) and _of_coroutines:
        _say('stopped: %s' % was_cancelled(_of_coroutines))
        return
    _before(kind, value, trace)
