"""Names of the published packages `beta9` and `beam-client`, and what becomes of each here.

The shims `beam` and `beta9` give all of them. A name that Longshore does not serve can be imported: an app file often
imports more than it uses. Using such a name raises NotServedError, which names the way out.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, NoReturn, Tuple

#: Names that the module serves, with the module they are in and their name there; '': the module itself.
SERVED: Dict[str, Tuple[str, str]] = {
    'Client': ('handles', 'Client'),
    'CloudBucket': ('buckets', 'CloudBucket'),
    'CloudBucketConfig': ('buckets', 'CloudBucketConfig'),
    'Deployment': ('handles', 'Deployment'),
    'GpuType': ('definitions', 'GpuType'),
    'Image': ('definitions', 'Image'),
    'ImageBuildError': ('errors', 'ImageBuildError'),
    'Map': ('shared_state', 'Map'),
    'Output': ('output', 'Output'),
    'Pod': ('published_pods', 'Pod'),
    'PodInstance': ('pods', 'PodInstance'),
    'Pool': ('definitions', 'Pool'),
    'PythonVersion': ('definitions', 'PythonVersion'),
    'Queue': ('shared_state', 'Queue'),
    'QueueDepthAutoscaler': ('definitions', 'QueueDepthAutoscaler'),
    'RemoteExecutionError': ('results', 'TaskError'),
    'Sandbox': ('published_pods', 'Sandbox'),
    'SandboxConnectionError': ('errors', 'SandboxConnectionError'),
    'SandboxFileInfo': ('sandbox_files', 'SandboxFileInfo'),
    'SandboxFilePosition': ('sandbox_files', 'SandboxFilePosition'),
    'SandboxFileSearchMatch': ('sandbox_files', 'SandboxFileSearchMatch'),
    'SandboxFileSearchRange': ('sandbox_files', 'SandboxFileSearchRange'),
    'SandboxFileSearchResult': ('sandbox_files', 'SandboxFileSearchResult'),
    'SandboxFileSystem': ('sandbox_files', 'SandboxFileSystem'),
    'SandboxFileSystemError': ('errors', 'SandboxFileSystemError'),
    'SandboxInstance': ('sandboxes', 'SandboxInstance'),
    'SandboxProcess': ('processes', 'SandboxProcess'),
    'SandboxProcessError': ('errors', 'SandboxProcessError'),
    'SandboxProcessManager': ('processes', 'SandboxProcessManager'),
    'SandboxProcessResponse': ('processes', 'SandboxProcessResponse'),
    'SandboxProcessStream': ('processes', 'SandboxProcessStream'),
    'Secret': ('definitions', 'Secret'),
    'Task': ('handles', 'Task'),
    'TaskPolicy': ('definitions', 'TaskPolicy'),
    'Volume': ('definitions', 'Volume'),
    'asgi': ('published_decorators', 'asgi'),
    'endpoint': ('published_decorators', 'endpoint'),
    'env': ('env', ''),
    'experimental': ('experimental', ''),
    'function': ('published_decorators', 'function'),
    'integrations': ('integrations', ''),
    'realtime': ('published_decorators', 'realtime'),
    'schedule': ('published_decorators', 'schedule'),
    'schema': ('schema', ''),
    'task_queue': ('published_decorators', 'task_queue'),
}

_BOT = 'bots are not served; a task queue and a Map hold the steps and the state of such an app'
_VLLM = 'this integration is not served; Pod(serving=LLM(…)) runs `vllm serve`, as examples/llm_vllm does'
_SERVING = 'served models and databases are not part of app definitions here'

#: Names that can be imported and not used, with the reason and the way out.
UNSERVED: Dict[str, str] = {
    'Bot': _BOT,
    'BotContext': _BOT,
    'BotEventType': _BOT,
    'BotLocation': _BOT,
    'BotTransition': _BOT,
    'Container': 'containers are listed by `longshore container list`, and their output is in `longshore logs`',
    'DatabaseServingConfig': _SERVING,
    'DurableDisk': 'disks are not served; Volume(…) keeps files',
    'Gpu': _SERVING,
    'MCPServer': 'this integration is not served; an @asgi function may return the application of an MCP library',
    'MCPServerArgs': 'this integration is not served; an @asgi function may return the application of an MCP library',
    'ManagedEndpoint': _SERVING,
    'Service': 'services are not served; Pod(…) runs a program of any image, with ports',
    'ServingConfig': _SERVING,
    'VLLM': _VLLM,
    'VLLMArgs': _VLLM,
    'VM': 'virtual machines are not served',
}


class NotServedError(NotImplementedError):
    """A name of the published packages was used that Longshore does not serve; the text says which and why."""


class _NotServed(type):
    """The class of a name that is not served: making, subclassing or asking anything of it raises NotServedError."""

    def __new__(mcs, name: str, bases: Tuple[Any, ...], members: Dict[str, Any]) -> Any:
        for base in bases:
            _refuse(base)
        return super().__new__(mcs, name, bases, members)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        _refuse(cls)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        _refuse(cls)


def _refuse(cls: Any) -> NoReturn:
    raise NotServedError('%s: %s' % (cls.__name__, UNSERVED.get(cls.__name__, 'is not served')))


_made: Dict[str, Any] = {}


def find(name: str) -> Any:
    """The value of a published name. Raises KeyError for any other."""
    if name in SERVED:
        from importlib import import_module

        module_name, attribute = SERVED[name]
        module = import_module('.' + module_name, 'longshore')
        return getattr(module, attribute) if attribute else module
    if name not in UNSERVED:
        raise KeyError(name)
    if name not in _made:
        _made[name] = _NotServed(name, (), {'__module__': 'longshore', '__doc__': UNSERVED[name]})
    return _made[name]


def getter(module_name: str, own: List[str]) -> Any:
    """The `__getattr__` of a module that gives published names and names of `longshore`."""

    def __getattr__(name: str) -> Any:
        if name in own:
            import sys

            try:
                value = find(name)
            except KeyError:
                import longshore

                value = getattr(longshore, name)
            setattr(sys.modules[module_name], name, value)
            return value
        raise AttributeError('module %r has no attribute %r' % (module_name, name))

    return __getattr__
