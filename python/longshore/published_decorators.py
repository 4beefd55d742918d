"""
The decorators as the published packages have them. Their parameters may be given by position, in the published order.
Calls go to the file as it is, without a deployment. A function that is called on a person's machine runs in a
container. `serve` begins a development server.
"""

from __future__ import annotations

import os
from typing import Any, Dict, TypeVar, cast

from . import functions, handlers, web
from .definitions import QueueDepthAutoscaler
from .typed import P, R

D = TypeVar('D')

#: Values that the published packages send where an app file gives none.
_DEFAULTS: Dict[str, Dict[str, Any]] = {
    'endpoint': {'autoscaler': QueueDepthAutoscaler()},
    'asgi': {'autoscaler': QueueDepthAutoscaler()},
    'realtime': {'autoscaler': QueueDepthAutoscaler()},
    'function': {'retries': 3},
    'schedule': {'retries': 3},
}

_ORDERS: Dict[str, str] = {
    'endpoint': 'cpu memory app gpu gpu_count image timeout workers keep_warm_seconds max_pending_tasks on_start on_deploy volumes '
    'disks secrets env name authorized autoscaler callback_url task_policy checkpoint_enabled inputs outputs pool',
    'asgi': 'app cpu memory gpu gpu_count image timeout workers concurrent_requests keep_warm_seconds max_pending_tasks on_start '
    'on_deploy volumes disks secrets env name authorized autoscaler callback_url checkpoint_enabled pool',
    'realtime': 'cpu memory gpu gpu_count image timeout workers concurrent_requests keep_warm_seconds max_pending_tasks on_start '
    'on_deploy volumes disks secrets env name authorized autoscaler callback_url checkpoint_enabled pool',
    'function': 'app cpu memory gpu gpu_count image timeout retries callback_url volumes disks secrets env name task_policy on_deploy '
    'headless inputs outputs pool',
    'schedule': 'when app cpu memory gpu gpu_count image timeout retries callback_url volumes disks secrets env name on_deploy',
    'task_queue': 'app cpu memory gpu gpu_count image timeout retries workers keep_warm_seconds max_pending_tasks on_start on_deploy '
    'callback_url volumes disks secrets env name authorized autoscaler task_policy checkpoint_enabled retry_for inputs outputs pool',
}


class _Calls:
    """A call runs in a container. In a container it is a plain call, and while `longshore deploy` reads the file, none."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.remote(*args, **kwargs)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function in a container, and returns its result."""
        if os.environ.get('CONTAINER_ID'):
            return self.local(*args, **kwargs)  # type: ignore[attr-defined]
        return None if handlers.is_reading else super().remote(*args, **kwargs)  # type: ignore[misc]


class _Serves:
    """A handler with a development server."""

    def serve(self, timeout: int = 0, url_type: str = '') -> None:
        """As `longshore serve` does, until Ctrl-C. The parameters are accepted and have no meaning here."""
        from .undeployed import served

        if not os.environ.get('CONTAINER_ID') and not handlers.is_reading:
            served(self)  # type: ignore[arg-type]


class Function(_Calls, _Serves, functions.Function[P, R]):
    """A function of an app file that was written for the published packages."""


class Schedule(_Calls, functions.Schedule[P, R]):
    """A schedule of an app file that was written for the published packages."""


class Endpoint(_Serves, handlers.Endpoint[P, R]):
    """An endpoint of an app file that was written for the published packages."""


class TaskQueue(_Serves, handlers.TaskQueue[P, R]):
    """A task queue of an app file that was written for the published packages."""


class Asgi(_Serves, web.Asgi[P, R]):
    """An ASGI application of an app file that was written for the published packages."""


class Realtime(_Serves, web.Realtime[P, R]):
    """A WebSocket of an app file that was written for the published packages."""


_CLASSES: Dict[Any, Any] = {
    functions.Function: Function,
    functions.Schedule: Schedule,
    handlers.Endpoint: Endpoint,
    handlers.TaskQueue: TaskQueue,
    web.Asgi: Asgi,
    web.Realtime: Realtime,
}


def _published(name: str, plain: D) -> D:
    """The decorator with positional parameters. Type checkers see the parameters by name alone."""
    decorator: Any = plain
    order = _ORDERS[name].split()
    defaults = _DEFAULTS.get(name, {})

    def published(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not kwargs:
            return _of_file(decorator(**defaults)(args[0]))
        if len(args) > len(order):
            raise TypeError('%s() takes at most %d positional arguments' % (name, len(order)))
        given = dict(zip(order, args))
        for parameter in given:
            if parameter in kwargs:
                raise TypeError("%s() got multiple values for argument '%s'" % (name, parameter))
        chosen = {**given, **kwargs}
        missing = {parameter: value for parameter, value in defaults.items() if chosen.get(parameter) is None}
        decorate = decorator(**{**chosen, **missing})
        return lambda function: _of_file(decorate(function))

    published.__name__ = published.__qualname__ = name
    published.__doc__ = decorator.__doc__
    return cast(D, published)


def _of_file(handler: handlers.Handler[P, R]) -> handlers.Handler[P, R]:
    handler.of_file = True
    handler.__class__ = _CLASSES.get(type(handler), type(handler))
    return handler


asgi = _published('asgi', web.asgi)
endpoint = _published('endpoint', handlers.endpoint)
function = _published('function', functions.function)
realtime = _published('realtime', web.realtime)
schedule = _published('schedule', functions.schedule)
task_queue = _published('task_queue', handlers.task_queue)
