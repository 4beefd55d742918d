"""Results of tasks that were put, and the wait for their ends. Loaded at its first use."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, Optional
from urllib import parse

from .client import At, GatewayError, call

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0
#: Bound on the absence of a scheduler that restarts.
_SILENT_SECONDS = 60.0
#: Bound on concurrent calls of one `map`, waiting or running.
_AT_A_TIME = 32
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


def ended(task_id: str, at: Optional[At] = None, on_status: Optional[Callable[[Dict[str, Any]], Any]] = None) -> Dict[str, Any]:
    """Waits for a task's end, and returns the task as it is then. Every task ends, at the latest by its time to live.
    on_status: is told the task at each new status."""
    what = 'cannot read task %s' % task_id
    pause = _FIRST_WAIT_SECONDS
    workspace = ''
    silent_since: Optional[float] = None
    told = ''
    while True:
        try:
            workspace = workspace or str(call('/api/v1/workspace/current', what, at=at).get('external_id') or '')
            task = call('/api/v1/task/%s/%s' % (parse.quote(workspace, safe=''), parse.quote(task_id, safe='')), what, at=at)
            silent_since = None
            if on_status is not None and task.get('status') != told:
                told = str(task.get('status'))
                on_status(task)
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


def wait(task_id: str, at: Optional[At] = None) -> Any:
    """Waits for a task's end, and returns its handler's result. Raises TaskError when it did not complete."""
    return result_of(ended(task_id, at), task_id)


def in_order(put: Callable[[Any], str], inputs: Iterable[Any]) -> Iterator[Any]:
    """Yields the result of a task for each input. While the queue is full, first waits for an earlier task of this
    call."""
    under_way: Deque[str] = deque()
    for one in inputs:
        while True:
            if len(under_way) < _AT_A_TIME:
                try:
                    under_way.append(put(one))
                    break
                except GatewayError as problem:
                    if problem.status != 429 or not under_way:
                        raise
            yield wait(under_way.popleft())
    while under_way:
        yield wait(under_way.popleft())


def result_of(task: Dict[str, Any], task_id: str) -> Any:
    """The result of an ended task. Raises TaskError when it did not complete."""
    status, result = str(task.get('status')), task.get('result')
    if status == 'COMPLETE':
        return result
    said = result.get('error') if isinstance(result, dict) else None
    reason = said or task.get('failure_reason') or 'nothing is known of why'
    raise TaskError('task %s ended as %s: %s' % (task_id, status, reason), status, task_id)
