"""Longshore's app definitions: decorate a function, `longshore deploy app.py:function`, call it over HTTP.

    from longshore import Image, QueueDepthAutoscaler, endpoint

    @endpoint(name='hello', cpu=1, memory='512mi', image=Image(python_version='python3.11'))
    def handler(name: str = 'world'):
        return {'hello': name}

`task_queue` instead makes a queue: `handler.put(name='you')` returns at once, and the function runs when there is room.
`function` starts a container for each waiting call: `handler.remote(name='you')` waits for its result.
`schedule(when='@hourly')` runs it by itself. `asgi` serves a web application, `realtime` a WebSocket. `Pod` runs a
program of any image, with ports, and `Sandbox` makes a container for calls. `put`, `remote`, `invoke` and `get_task`
work in a handler as they do on your machine: a container calls its own installation.

On your machine the decorator records its parameters, and the function stays callable. In a container it checks nothing.
Names are loaded at their first use, because the runner imports this package on every cold start.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, List

    from .buckets import CloudBucket, CloudBucketConfig
    from .checks import DefinitionError
    from .client import GatewayError, NotDeployedError, get_task
    from . import env, schema
    from .definitions import Flow, GpuType, Image, Placement, Pool, PythonVersion, QueueDepthAutoscaler, Secret, TaskPolicy, Volume, Warm
    from .errors import SandboxConnectionError, SandboxFileSystemError, SandboxProcessError
    from .filling import fill_once
    from .functions import Function, Schedule, function, schedule
    from .handlers import Endpoint, TaskQueue, endpoint, task_queue
    from .handles import Client, Deployment, Task
    from .model_servers import LLM, TokenPressureAutoscaler
    from .output import Output, OutputError
    from .pods import Pod, PodInstance
    from .processes import SandboxProcess
    from .published import NotServedError
    from .recipes import ReadinessProbe
    from .results import TaskError
    from .sandboxes import Sandbox, SandboxInstance
    from .shared_state import Map, Queue, Signal
    from .task_context import Context, Interruption, context, interruption
    from .web import Asgi, Realtime, asgi, realtime

__version__ = '0.1.0'

#: Modules of the package that are names of it, too.
_MODULES = ('env', 'schema')
_HOMES = {
    'Asgi': 'web',
    'Client': 'handles',
    'CloudBucket': 'buckets',
    'CloudBucketConfig': 'buckets',
    'Context': 'task_context',
    'DefinitionError': 'checks',
    'Deployment': 'handles',
    'Endpoint': 'handlers',
    'Flow': 'definitions',
    'Function': 'functions',
    'GatewayError': 'client',
    'GpuType': 'definitions',
    'Image': 'definitions',
    'Interruption': 'task_context',
    'LLM': 'model_servers',
    'Map': 'shared_state',
    'NotDeployedError': 'client',
    'NotServedError': 'published',
    'Output': 'output',
    'OutputError': 'output',
    'Placement': 'definitions',
    'Pod': 'pods',
    'PodInstance': 'pods',
    'Pool': 'definitions',
    'PythonVersion': 'definitions',
    'Queue': 'shared_state',
    'QueueDepthAutoscaler': 'definitions',
    'ReadinessProbe': 'recipes',
    'Realtime': 'web',
    'Sandbox': 'sandboxes',
    'SandboxConnectionError': 'errors',
    'SandboxFileSystemError': 'errors',
    'SandboxInstance': 'sandboxes',
    'SandboxProcess': 'processes',
    'SandboxProcessError': 'errors',
    'Schedule': 'functions',
    'Secret': 'definitions',
    'Signal': 'shared_state',
    'Task': 'handles',
    'TaskError': 'results',
    'TaskPolicy': 'definitions',
    'TaskQueue': 'handlers',
    'TokenPressureAutoscaler': 'model_servers',
    'Volume': 'definitions',
    'Warm': 'definitions',
    'asgi': 'web',
    'context': 'task_context',
    'endpoint': 'handlers',
    'fill_once': 'filling',
    'function': 'functions',
    'get_task': 'client',
    'interruption': 'task_context',
    'realtime': 'web',
    'schedule': 'functions',
    'task_queue': 'handlers',
}

__all__ = [
    'Asgi',
    'Client',
    'CloudBucket',
    'CloudBucketConfig',
    'Context',
    'DefinitionError',
    'Deployment',
    'Endpoint',
    'Flow',
    'Function',
    'GatewayError',
    'GpuType',
    'Image',
    'Interruption',
    'LLM',
    'Map',
    'NotDeployedError',
    'NotServedError',
    'Output',
    'OutputError',
    'Placement',
    'Pod',
    'PodInstance',
    'Pool',
    'PythonVersion',
    'Queue',
    'QueueDepthAutoscaler',
    'ReadinessProbe',
    'Realtime',
    'Sandbox',
    'SandboxConnectionError',
    'SandboxFileSystemError',
    'SandboxInstance',
    'SandboxProcess',
    'SandboxProcessError',
    'Schedule',
    'Secret',
    'Signal',
    'Task',
    'TaskError',
    'TaskPolicy',
    'TaskQueue',
    'TokenPressureAutoscaler',
    'Volume',
    'Warm',
    'asgi',
    'context',
    'endpoint',
    'env',
    'fill_once',
    'function',
    'get_task',
    'interruption',
    'realtime',
    'schedule',
    'schema',
    'task_queue',
]


def __getattr__(name: str) -> Any:
    home = name if name in _MODULES else _HOMES.get(name)
    if home is None:
        raise AttributeError('module %r has no attribute %r' % (__name__, name))
    from importlib import import_module

    module = import_module('.' + home, __name__)
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(__all__)
