"""Longshore's app definitions: decorate a function, `longshore deploy app.py:function`, call it over HTTP.

    from longshore import Image, QueueDepthAutoscaler, endpoint

    @endpoint(name='hello', cpu=1, memory='512mi', image=Image(python_version='python3.11'))
    def handler(name: str = 'world'):
        return {'hello': name}

On your machine the decorator records what was asked for, and the function stays callable. In a container it does nothing at all. The
names are loaded when they are first used, because the runner imports this package on every cold start.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, List

    from .definitions import (
        DefinitionError,
        Endpoint,
        Image,
        PythonVersion,
        QueueDepthAutoscaler,
        Volume,
        endpoint,
    )
    from .task_context import Context, context

__version__ = '0.1.0'

_HOMES = {
    'DefinitionError': 'definitions',
    'Endpoint': 'definitions',
    'Image': 'definitions',
    'PythonVersion': 'definitions',
    'QueueDepthAutoscaler': 'definitions',
    'Volume': 'definitions',
    'endpoint': 'definitions',
    'Context': 'task_context',
    'context': 'task_context',
}

__all__ = [
    'Context',
    'DefinitionError',
    'Endpoint',
    'Image',
    'PythonVersion',
    'QueueDepthAutoscaler',
    'Volume',
    'context',
    'endpoint',
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
