"""Results of tasks that were put, and the wait for their ends. Loaded at its first use."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional
from urllib import parse

from .client import At, GatewayError, call, workspace_of
from .failures import follow
from .interrupts import of_coroutine, waited
from .runner.inputs import ENCODING, PICKLED_KEYS

if TYPE_CHECKING:
    from .handles import Task

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 2.0
#: Bound on the absence of a scheduler that restarts.
_SILENT_SECONDS = 60.0
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

    def __init__(self, text: str, status: str, task_id: str, at: Optional[At] = None) -> None:
        super().__init__(text)
        self.status = status
        self.task_id = task_id
        self._at = at
        #: A terminal has shown what the task printed.
        self.was_shown = False
        follow()

    def __reduce__(self) -> Any:
        return TaskError, (str(self), self.status, self.task_id)

    @property
    def task(self) -> Task:
        """The handle of the task: `failure.task.rerun()` runs it again."""
        from .handles import Task

        return Task(self.task_id, self._at)


def ended(
    task_id: str,
    at: Optional[At] = None,
    on_status: Optional[Callable[[Dict[str, Any]], Any]] = None,
    on_look: Optional[Callable[[Dict[str, Any]], Any]] = None,
    sleep: Callable[[float], Any] = time.sleep,
) -> Dict[str, Any]:
    """Waits for a task's end, and returns the task as it is then. Every task ends, at the latest by its time to live.
    on_status: is told the task at each new status. on_look: at each look at it. sleep: waits between two looks."""
    reader = Reader(at)
    told = ''
    for pause in pauses():
        task = reader.read(task_id)
        if task is not None and on_status is not None and task.get('status') != told:
            told = str(task.get('status'))
            on_status(task)
        if task is not None and on_look is not None:
            on_look(task)
        if task is not None and task.get('status') in OVER:
            return task
        sleep(pause)
    raise AssertionError('pauses have no end')


def pauses() -> Iterator[float]:
    """Pauses between looks at a task, which grow."""
    pause = _FIRST_WAIT_SECONDS
    while True:
        yield pause
        pause = min(pause * 1.5, _LONGEST_WAIT_SECONDS)


class Reader:
    """Reads tasks of an installation, whose scheduler may be away for a while."""

    def __init__(self, at: Optional[At] = None) -> None:
        self._at = at
        self._silent_since: Optional[float] = None

    def read(self, task_id: str) -> Optional[Dict[str, Any]]:
        """The task as it is now; None: nobody answered, and it is worth another try. Raises GatewayError."""
        what = 'cannot read task %s' % task_id
        try:
            path = '/api/v1/task/%s/%s' % (workspace_of(what, self._at), parse.quote(task_id, safe=''))
            task = call(path, what, at=self._at)
        except GatewayError as problem:
            # A refusal is final; a scheduler that does not answer may return.
            if 400 <= problem.status < 500 and problem.status != 429:
                raise
            self._silent_since = self._silent_since or time.monotonic()
            if time.monotonic() - self._silent_since > _SILENT_SECONDS:
                raise
            return None
        self._silent_since = None
        return task


def wait(task_id: str, at: Optional[At] = None, shows_output: bool = False, sleep: Callable[[float], Any] = time.sleep) -> Any:
    """Waits for a task's end, and returns its handler's result. Raises TaskError when it did not complete. Ctrl-C cancels
    the task. shows_output: a terminal sees what the task prints."""
    shows = None
    if shows_output:
        from .following import follower  # not paid by map

        shows = follower(task_id)
    task = waited(lambda: ended(task_id, at, on_look=shows, sleep=sleep), lambda: [task_id], at)
    try:
        return result_of(task, task_id, at)
    except TaskError as failure:
        failure.was_shown = shows is not None
        raise


class CallInThread:
    """A call that a thread makes and waits for, until another thread gives it up. Its task is cancelled then."""

    def __init__(self, put: Callable[[], Any]) -> None:
        self._put = put
        self._given_up = threading.Event()

    def run(self) -> Any:
        """The result. Raises TaskError when the task did not complete."""
        if self._given_up.is_set():
            return None
        task = self._put()
        try:
            return wait(task, shows_output=True, sleep=self._sleep)
        except _GivenUp:
            of_coroutine(str(task))
            return None

    def give_up(self) -> None:
        self._given_up.set()

    def _sleep(self, seconds: float) -> None:
        if self._given_up.wait(seconds):
            raise _GivenUp


class _GivenUp(Exception):
    """Nobody waits for the result."""


def result_of(task: Dict[str, Any], task_id: str, at: Optional[At] = None) -> Any:
    """The result of an ended task. Raises TaskError when it did not complete."""
    status, result = str(task.get('status')), task.get('result')
    if status == 'COMPLETE':
        return _read(result) if str((task.get('stub') or {}).get('type')).partition('/')[0] in _PICKLED else result
    said = result.get('error') if isinstance(result, dict) else None
    reason = said or task.get('failure_reason') or 'nothing is known of why'
    raise TaskError('task %s ended as %s: %s' % (task_id, status, reason), status, task_id, at)


def _read(result: Any) -> Any:
    """The value of a function's result, which its runner may have pickled. The runner never passes on a handler's own
    object of this form."""
    if not isinstance(result, dict) or set(result) != PICKLED_KEYS or result['encoding'] != ENCODING:
        return result
    from .values import unpickled  # not paid where results are JSON

    return unpickled(str(result['base64']))
