"""Longshore's app definitions: decorate a function, `longshore deploy app.py:function`, call it over HTTP.

    from longshore import Image, QueueDepthAutoscaler, endpoint

    @endpoint(name='hello', cpu=1, memory='512mi', image=Image(python_version='python3.11'))
    def handler(name: str = 'world'):
        return {'hello': name}

`task_queue` in its place makes a queue: `handler.put(name='you')` returns at once, and the function runs when there is room.

On your machine the decorator records what was asked for, and the function stays callable. In a container it checks nothing. The
names are loaded when they are first used, because the runner imports this package on every cold start.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, List

    from .checks import DefinitionError
    from .client import GatewayError
    from .definitions import Image, PythonVersion, QueueDepthAutoscaler, Volume
    from .handlers import Endpoint, TaskQueue, endpoint, task_queue
    from .task_context import Context, context

__version__ = '0.1.0'

_HOMES = {
    'DefinitionError': 'checks',
    'Endpoint': 'handlers',
    'GatewayError': 'client',
    'Image': 'definitions',
    'PythonVersion': 'definitions',
    'QueueDepthAutoscaler': 'definitions',
    'TaskQueue': 'handlers',
    'Volume': 'definitions',
    'endpoint': 'handlers',
    'task_queue': 'handlers',
    'Context': 'task_context',
    'context': 'task_context',
}

__all__ = [
    'Context',
    'DefinitionError',
    'Endpoint',
    'GatewayError',
    'Image',
    'PythonVersion',
    'QueueDepthAutoscaler',
    'TaskQueue',
    'Volume',
    'context',
    'endpoint',
    'task_queue',
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError('module %r has no attribute %r' % (__name__, name))
    from importlib import import_module

    value = getattr(import_module('.' + home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(__all__)
