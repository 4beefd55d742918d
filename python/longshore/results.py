"""Results of tasks that were put, and the wait for their ends. Loaded at its first use."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Optional, Sequence
from urllib import parse

from .client import At, GatewayError, call, workspace_of
from .runner.inputs import ENCODING, PICKLED_KEYS

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0
#: Bound on the absence of a scheduler that restarts.
_SILENT_SECONDS = 60.0
#: Bound on calls of one `map` that are put and not yielded.
_AT_A_TIME = 1000
#: Results after which calls that found no room are tried again, where so many are left.
_TRY_AFTER = 16
#: Bound on a request that follows a full queue.
_AFTER_FULL = 64
#: Statuses of a queue, or of a scheduler, that has no room now.
_NO_ROOM = (429, 503)
#: Kinds whose results may be pickled.
_PICKLED = ('function', 'schedule')
#: Statuses that are final.
OVER = ('COMPLETE', 'ERROR', 'CANCELLED', 'TIMEOUT', 'EXPIRED')


class TaskError(RuntimeError):
    """A task that did not end as COMPLETE: `status` is its end, `task_id` its id."""

    #: For app files that read the exit code of a command; a failed task has none here.
    exit_code = 1
    #: Printed output is in `longshore logs`.
    output = ''

    def __init__(self, text: str, status: str, task_id: str) -> None:
        super().__init__(text)
        self.status = status
        self.task_id = task_id


def ended(
    task_id: str,
    at: Optional[At] = None,
    on_status: Optional[Callable[[Dict[str, Any]], Any]] = None,
    on_look: Optional[Callable[[Dict[str, Any]], Any]] = None,
) -> Dict[str, Any]:
    """Waits for a task's end, and returns the task as it is then. Every task ends, at the latest by its time to live.
    on_status: is told the task at each new status. on_look: at each look at it."""
    what = 'cannot read task %s' % task_id
    pause = _FIRST_WAIT_SECONDS
    silent_since: Optional[float] = None
    told = ''
    while True:
        try:
            path = '/api/v1/task/%s/%s' % (workspace_of(what, at), parse.quote(task_id, safe=''))
            task = call(path, what, at=at)
            silent_since = None
            if on_status is not None and task.get('status') != told:
                told = str(task.get('status'))
                on_status(task)
            if on_look is not None:
                on_look(task)
            if task.get('status') in OVER:
                return task
        except GatewayError as problem:
            # A refusal is final; a scheduler that does not answer may return.
            if 400 <= problem.status < 500 and problem.status != 429:
                raise
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > _SILENT_SECONDS:
                raise
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_WAIT_SECONDS)


def wait(task_id: str, at: Optional[At] = None, shows_output: bool = False) -> Any:
    """Waits for a task's end, and returns its handler's result. Raises TaskError when it did not complete.
    shows_output: a terminal sees what the task prints."""
    follow = None
    if shows_output:
        from .following import follower  # not paid by map

        follow = follower(task_id)
    return result_of(ended(task_id, at, on_look=follow), task_id)


class _Slot:
    """An input of `map`, and its task once it is put."""

    __slots__ = ('call', 'task_id')

    def __init__(self, call: Sequence[Any]) -> None:
        self.call = call
        self.task_id: Optional[str] = None


def in_order(put_many: Callable[[Sequence[Sequence[Any]]], List[Optional[str]]], inputs: Iterable[Any]) -> Iterator[Any]:
    """
    Yields the result of a task for each input, in their order. `put_many` puts as many calls as it may, and is asked
    again for the others after results of earlier ones.
    """
    source = iter(inputs)
    slots: Deque[_Slot] = deque()
    is_over = False
    # Number of results after which further calls are tried; 0: now.
    until = 0
    most = _AT_A_TIME
    while True:
        while not is_over and len(slots) < _AT_A_TIME:
            try:
                slots.append(_Slot(positional(next(source))))
            except StopIteration:
                is_over = True
        if not slots:
            return
        waiting = [slot for slot in slots if slot.task_id is None]
        if waiting and (until <= 0 or len(waiting) == len(slots)):
            until = _put(put_many, waiting, len(slots) > len(waiting), most)
            # Behind a full queue, further requests are small: most of their calls would find no room.
            most = _AFTER_FULL if until > 0 else _AT_A_TIME
        first = next((slot for slot in slots if slot.task_id is not None), None)
        if first is None:
            raise GatewayError('no call of map was taken', 429)
        if slots[0] is not first:
            # The queue took a later call than the first, which waits for room.
            ended(str(first.task_id))
            until = 0
            continue
        slots.popleft()
        until -= 1
        yield wait(str(first.task_id))


def _put(
    put_many: Callable[[Sequence[Sequence[Any]]], List[Optional[str]]], waiting: List[_Slot], has_others: bool, most: int
) -> int:
    """Puts calls, at most so many in a request, until all are put or there is no room. Returns after how many results
    it is worth another try. Raises GatewayError when nothing can be put and there is nothing to wait for."""
    at = 0
    while at < len(waiting):
        try:
            ids = put_many([slot.call for slot in waiting[at : at + most]])
        except GatewayError as problem:
            if problem.status not in _NO_ROOM or (at == 0 and not has_others):
                raise
            return min(_TRY_AFTER, max(1, len(waiting) - at))
        for slot, task_id in zip(waiting[at:], ids):
            slot.task_id = task_id
        if None in ids:
            return min(_TRY_AFTER, ids.count(None))
        at += len(ids)
    return 0


def positional(one: Any) -> List[Any]:
    """The positional inputs of one call of `map`: a tuple or a list has several."""
    return list(one) if isinstance(one, (tuple, list)) else [one]


def result_of(task: Dict[str, Any], task_id: str) -> Any:
    """The result of an ended task. Raises TaskError when it did not complete."""
    status, result = str(task.get('status')), task.get('result')
    if status == 'COMPLETE':
        return _read(result) if str((task.get('stub') or {}).get('type')).partition('/')[0] in _PICKLED else result
    said = result.get('error') if isinstance(result, dict) else None
    reason = said or task.get('failure_reason') or 'nothing is known of why'
    raise TaskError('task %s ended as %s: %s' % (task_id, status, reason), status, task_id)


def _read(result: Any) -> Any:
    """The value of a function's result, which its runner may have pickled. The runner never passes on a handler's own
    object of this form."""
    if not isinstance(result, dict) or set(result) != PICKLED_KEYS or result['encoding'] != ENCODING:
        return result
    from .values import unpickled  # not paid where results are JSON

    return unpickled(str(result['base64']))
