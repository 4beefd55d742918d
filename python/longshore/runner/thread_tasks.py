"""Threads that a handler starts print for its task, where several tasks run in the process.

A new thread has no context of its own. Copying the handler's whole context into it would change what the app's own
context variables hold there, so only the task is remembered, at the thread. A thread of an executor works for many
tasks, so each call that is submitted brings its own. Nothing is imported here that an app has not imported.
"""

from __future__ import annotations

import sys
import threading
from _thread import get_ident

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .task import Task

_EXECUTORS = 'concurrent.futures.thread'


class _State:
    #: The task of the running code, by its context.
    current: Callable[[], Optional[Task]] = staticmethod(lambda: None)  # type: ignore[assignment]
    follows_executors = False


def install(current: Callable[[], Optional[Task]]) -> None:
    """Begins to remember the tasks of threads. current: gives the task of the running code."""
    _State.current = staticmethod(current)  # type: ignore[assignment]
    start = threading.Thread.start
    if getattr(start, 'follows_tasks', False):
        return

    def begin(thread: Any) -> None:
        thread.__dict__['_longshore_task'] = here()
        # Their first thread is the sign that executors are there.
        if not _State.follows_executors and getattr(getattr(thread, '_target', None), '__module__', '') == _EXECUTORS:
            _follow_executors()
        start(thread)

    begin.follows_tasks = True  # type: ignore[attr-defined]
    threading.Thread.start = begin  # type: ignore[method-assign]


def here() -> Optional[Task]:
    """The task for which this code runs, in its own thread or in one that it started; None: none that still runs."""
    task = _State.current() or _of_thread()
    return None if task is None or task.is_over else task


def _of_thread() -> Optional[Task]:
    # `threading.current_thread` would make an object for a thread of C code.
    thread = threading._active.get(get_ident())  # type: ignore[attr-defined]
    return None if thread is None else thread.__dict__.get('_longshore_task')


def _follow_executors() -> None:
    _State.follows_executors = True
    executor = sys.modules[_EXECUTORS].ThreadPoolExecutor
    submit = executor.submit

    def submit_for_task(self: Any, fn: Any, /, *args: Any, **keywords: Any) -> Any:
        return submit(self, _Call(fn, here()), *args, **keywords)

    submit_for_task.__doc__ = submit.__doc__
    executor.submit = submit_for_task


class _Call:
    """A submitted call, with the task that submitted it."""

    __slots__ = ('function', 'task')

    def __init__(self, function: Any, task: Optional[Task]) -> None:
        self.function = function
        self.task = task

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        thread = threading.current_thread()
        before = thread.__dict__.get('_longshore_task')
        thread.__dict__['_longshore_task'] = self.task
        try:
            return self.function(*args, **keywords)
        finally:
            thread.__dict__['_longshore_task'] = before
