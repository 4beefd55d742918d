"""Threads that a handler starts print for its task, where several tasks run in the process.

A new thread has no context of its own. Copying the handler's whole context into it would change what the app's own
context variables hold there, so only the task is remembered, at the thread. A thread of an executor or of a pool works
for many tasks, so each call that is submitted brings its own. Nothing is imported here that an app has not imported.

Must stay true: what the app does with threads works as without this, also its mistakes.
"""

from __future__ import annotations

import sys
import threading

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .task import Task

_EXECUTORS = 'concurrent.futures.thread'
_POOLS = 'multiprocessing.pool'
#: Methods of a pool of threads that take a function; its others call these.
_POOL_CALLS = ('apply_async', '_map_async', 'imap', 'imap_unordered')


class _State:
    #: The task of the running code, by its context.
    current: Callable[[], Optional[Task]] = staticmethod(lambda: None)  # type: ignore[assignment]


def install(current: Callable[[], Optional[Task]]) -> None:
    """Begins to remember the tasks of threads. current: gives the task of the running code."""
    _State.current = staticmethod(current)  # type: ignore[assignment]
    start = threading.Thread.start
    if getattr(start, 'follows_tasks', False):
        return

    def begin(self: Any) -> None:
        if isinstance(self, threading.Thread):
            self.__dict__['_longshore_task'] = here()
            # Their first thread is the sign that executors or pools are there, which a handler may import late.
            _follow(getattr(getattr(self, '_target', None), '__module__', ''))
        start(self)

    threading.Thread.start = _like(start, begin)  # type: ignore[method-assign]


def here() -> Optional[Task]:
    """The task for which this code runs, in its own thread or in one that it started; None: none that still runs."""
    task = running()
    return None if task is None or task.is_over else task


def running() -> Optional[Task]:
    """As `here`. A task that is over counts where the context of the code says it."""
    current = _State.current()
    # `threading.current_thread` would make an object for a thread of C code. Libraries may replace `get_ident`.
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    own = {} if thread is None else thread.__dict__
    call = own.get('_longshore_call')
    # The context of a thread may be that of the task that started the thread.
    if current is not None and (call is None or current is not call.inherited):
        return current
    task = call.task if call is not None else own.get('_longshore_task')
    return None if task is None or task.is_over else task


def _like(method: Any, own: Any) -> Any:
    """The method in place of another, by whose names it goes."""
    for name in ('__name__', '__qualname__', '__module__', '__doc__'):
        setattr(own, name, getattr(method, name))
    own.__wrapped__ = method
    own.follows_tasks = True
    return own


def follow_imported() -> None:
    """Follows executors and pools whose modules the app has imported. Call it once the app is loaded: at the sign of the
    first thread, another call may already be on its way to that thread."""
    for module in (_EXECUTORS, _POOLS):
        if module in sys.modules:
            _follow(module)


def _follow(module: Any) -> None:
    if module == _EXECUTORS:
        _wrap(sys.modules[_EXECUTORS].ThreadPoolExecutor, 'submit')
    elif module == _POOLS:
        for name in _POOL_CALLS:
            _wrap(sys.modules[_POOLS].ThreadPool, name)


def _wrap(owner: Any, name: str) -> None:
    """Calls by this method, whose first argument is a function, bring their task along."""
    method = getattr(owner, name, None)
    if method is None or getattr(method, 'follows_tasks', False):
        return

    def submit(*args: Any, **keywords: Any) -> Any:
        # Without a function the method itself says so. A pool of interpreters pickles its calls.
        if len(args) < 2 or any(one.__name__ == 'InterpreterPoolExecutor' for one in type(args[0]).__mro__):
            return method(*args, **keywords)
        return method(args[0], _Call(args[1], here()), *args[2:], **keywords)

    setattr(owner, name, _like(method, submit))


class _Call:
    """A submitted call, with the task that submitted it, and the task of the context in which it runs."""

    __slots__ = ('_function', 'task', 'inherited')

    def __init__(self, function: Any, task: Optional[Task]) -> None:
        self._function = function
        self.task = task
        self.inherited: Optional[Task] = None

    def __call__(self, /, *args: Any, **keywords: Any) -> Any:
        own = threading.current_thread().__dict__
        before = own.get('_longshore_call')
        # A pool calls it for each item of a `map`, in several threads: nothing of a call is kept in the submitted one.
        call = _Call(None, self.task)
        call.inherited = _State.current()
        own['_longshore_call'] = call
        try:
            return self._function(*args, **keywords)
        finally:
            own['_longshore_call'] = before
