"""The facts that a handler can know about its task. Imported on every cold start, so its imports must cost little."""

from __future__ import annotations

import threading
import time

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Optional


class Context:
    """
    Facts of the running task. A handler with a parameter named `context` gets one; `longshore.context` has the same
    attributes.

    task_id, container_id, stub_id: ids.
    stub_type: the handler's kind, such as `endpoint/deployment`.
    timeout: seconds that this task may take; 0: no limit.
    python_version: as the handler's image says it.
    callback_url: address that is told how the task ended; '': none.
    workers: processes of the container that serve.
    on_start_value: result of `on_start`, the same for the whole container.
    """

    __slots__ = (
        'container_id',
        'stub_id',
        'stub_type',
        'task_id',
        'timeout',
        'python_version',
        'callback_url',
        'workers',
        'on_start_value',
    )

    def __init__(
        self,
        container_id: str = '',
        stub_id: str = '',
        stub_type: str = '',
        task_id: str = '',
        timeout: float = 0,
        python_version: str = '',
        callback_url: str = '',
        workers: int = 1,
        on_start_value: Any = None,
    ) -> None:
        self.container_id = container_id
        self.stub_id = stub_id
        self.stub_type = stub_type
        self.task_id = task_id
        self.timeout = timeout
        self.python_version = python_version
        self.callback_url = callback_url
        self.workers = workers
        self.on_start_value = on_start_value

    def __repr__(self) -> str:
        return 'Context(task_id=%r, container_id=%r)' % (self.task_id, self.container_id)


class _CurrentContext:
    """The `Context` of the running task, for code that was not handed it. Raises RuntimeError where no task runs."""

    #: The runner sets this.
    _source: Any = None

    def __getattr__(self, name: str) -> Any:
        if name not in Context.__slots__:
            raise AttributeError('context has no attribute %r' % name)
        source = _CurrentContext._source
        found = source() if source is not None else None
        if found is None:
            raise RuntimeError('context.%s: no task is running here' % name)
        return getattr(found, name)


class Interruption:
    """
    Tells a handler that its container ends soon for another one, so that it can save its work. Used like a
    `threading.Event`. Only a container of an `interruptible` app is interrupted, or of any app by an operator's
    `longshore container preempt`.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._until: Optional[float] = None

    def is_set(self) -> bool:
        """Whether the container ends soon. It may become false again: then the container stays after all."""
        return self._event.is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """
        Waits until the container is interrupted.

        timeout: seconds; None: for ever. A thread that waits so should be a daemon.
        """
        return self._event.wait(timeout)

    def seconds_left(self) -> Optional[float]:
        """Seconds until a running task of a queue is cancelled and put back; None: the container is not interrupted."""
        until = self._until
        return None if until is None else max(0.0, until - time.monotonic())

    def _tell(self, notice: float) -> None:
        """The runner has heard how long tasks have still; 0: the container stays."""
        if notice <= 0:
            self._event.clear()
            self._until = None
            return
        until = time.monotonic() + notice
        self._until = until if self._until is None else min(self._until, until)
        self._event.set()


#: Of this container.
interruption = Interruption()

if TYPE_CHECKING:
    context = Context()
else:
    context = _CurrentContext()
