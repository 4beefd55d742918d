"""What an app file says about a handler: `endpoint` and the things it takes. `longshore deploy` reads it through `describe`.

Bad values raise DefinitionError and name the parameter. Inside a container (CONTAINER_ID is set) decorators check and record nothing.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from .quantities import cpu_millicores, memory_mib

_PYTHON_VERSION = re.compile(r'(python|micromamba)?3(\.([0-9]+))?')
_ENV_NAME = re.compile(r'[A-Za-z_][A-Za-z0-9_]*')


class DefinitionError(ValueError):
    """A parameter that cannot be used; the text begins with its name."""


class PythonVersion:
    """Names for `Image(python_version=…)`."""

    Python3 = 'python3'
    Python38 = 'python3.8'
    Python39 = 'python3.9'
    Python310 = 'python3.10'
    Python311 = 'python3.11'
    Python312 = 'python3.12'
    Python313 = 'python3.13'
    Python314 = 'python3.14'


class Image:
    """The container image: a Python version, and what is installed on top of it."""

    def __init__(
        self,
        python_version: str = 'python3',
        python_packages: Union[Sequence[str], str] = (),
        commands: Sequence[str] = (),
        base_image: str = '',
    ) -> None:
        self.python_version = _python_version(python_version)
        self.python_packages = _packages(python_packages)
        self.commands = _texts('commands', commands)
        self.base_image = _text('base_image', base_image)

    def add_python_packages(self, packages: Union[Sequence[str], str]) -> 'Image':
        """More packages, or the path of a requirements file."""
        self.python_packages += _packages(packages)
        return self

    def add_commands(self, commands: Sequence[str]) -> 'Image':
        """More shell commands, run while the image is built."""
        self.commands += _texts('commands', commands)
        return self

    def described(self) -> Dict[str, Any]:
        return {
            'pythonVersion': self.python_version,
            'pythonPackages': self.python_packages,
            'commands': self.commands,
            'baseImage': self.base_image,
        }


class QueueDepthAutoscaler:
    """One container for every `tasks_per_container` tasks that wait or run, between the two bounds."""

    def __init__(self, min_containers: int = 0, max_containers: int = 1, tasks_per_container: int = 1) -> None:
        self.min_containers = _whole('min_containers', min_containers, 0)
        self.max_containers = _whole('max_containers', max_containers, 1)
        self.tasks_per_container = _whole('tasks_per_container', tasks_per_container, 1)
        if self.min_containers > self.max_containers:
            raise DefinitionError('min_containers: %d is more than max_containers (%d)' % (min_containers, max_containers))

    def described(self) -> Dict[str, Any]:
        return {
            'type': 'queue_depth',
            'maxContainers': self.max_containers,
            'tasksPerContainer': self.tasks_per_container,
            'minContainers': self.min_containers,
        }


class Volume:
    """A directory that outlives containers, seen in them at `/volumes/{mount_path}`."""

    def __init__(self, name: str, mount_path: str) -> None:
        self.name = _text('name', name, empty=False)
        self.mount_path = _text('mount_path', mount_path, empty=False)

    def described(self) -> Dict[str, Any]:
        return {'name': self.name, 'mountPath': self.mount_path}


class Endpoint:
    """A decorated function: callable as before, with what was asked for beside it."""

    def __init__(self, function: Callable[..., Any], stub_type: str, options: Dict[str, Any]) -> None:
        self.__longshore_function__ = function
        self.stub_type = stub_type
        self.options = options
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__longshore_function__(*args, **kwargs)

    def local(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function here, in this process."""
        return self.__longshore_function__(*args, **kwargs)

    def described(self, handler: str, on_start: str) -> Dict[str, Any]:
        """The fields of a stub request; `handler` and `on_start` are `module:function`."""
        described = dict(self.options)
        described.pop('onStartFunction', None)
        name = described['name'] or self.__longshore_function__.__name__
        described.update(stubType=self.stub_type, name=name, handler=handler, onStart=on_start, appName=described['appName'] or name)
        return described


def endpoint(
    function: Optional[Callable[..., Any]] = None,
    *,
    name: Optional[str] = None,
    app: str = '',
    cpu: Union[int, float, str] = 1.0,
    memory: Union[int, float, str] = 128,
    gpu: Union[str, Sequence[str], None] = '',
    gpu_count: int = 0,
    image: Optional[Image] = None,
    on_start: Union[Callable[..., Any], str, None] = None,
    workers: int = 1,
    concurrent_requests: int = 1,
    keep_warm_seconds: float = 180,
    max_pending_tasks: int = 100,
    timeout: Optional[int] = 180,
    autoscaler: Optional[QueueDepthAutoscaler] = None,
    env: Optional[Mapping[str, str]] = None,
    secrets: Optional[Sequence[str]] = None,
    volumes: Optional[Sequence[Volume]] = None,
    authorized: bool = True,
    callback_url: Optional[str] = '',
    tracebacks: bool = False,
) -> Any:
    """
    An HTTP endpoint: a request is a JSON object of keyword inputs, the answer is what the function returns.

    cpu: cores, or `'500m'`. memory: MiB, or text with a unit (`'2gi'`). gpu: a model or several, in the order of preference.
    on_start: a function (or `'module:function'`), run once for a container; its value is `context.on_start_value`.
    workers: processes in a container. concurrent_requests: tasks that each of them serves side by side.
    keep_warm_seconds: how long an idle container is spared; negative: it is never removed for being idle.
    timeout: seconds that a task may take. tracebacks: callers see the handler's tracebacks.
    """
    if os.environ.get('CONTAINER_ID'):
        options: Dict[str, Any] = {}
    else:
        options = {
            'name': _text('name', name or ''),
            'appName': _text('app', app or ''),
            'cpu': _quantity(cpu_millicores, cpu),
            'memory': _quantity(memory_mib, memory),
            'gpu': _gpu(gpu),
            'gpuCount': _whole('gpu_count', gpu_count, 0),
            'image': _of('image', image or Image(), Image).described(),
            'onStartFunction': _on_start(on_start),
            'workers': _whole('workers', workers, 1),
            'concurrentRequests': _whole('concurrent_requests', concurrent_requests, 1),
            'keepWarmSeconds': _number('keep_warm_seconds', keep_warm_seconds),
            'maxPendingTasks': _whole('max_pending_tasks', max_pending_tasks, 1),
            'timeout': _number('timeout', 0 if timeout is None else timeout),
            'retries': 0,
            'autoscaler': _of('autoscaler', autoscaler or QueueDepthAutoscaler(), QueueDepthAutoscaler).described(),
            'env': _env(env),
            'secrets': [{'name': secret} for secret in _texts('secrets', secrets or ())],
            'volumes': [_of('volumes', volume, Volume).described() for volume in _sequence('volumes', volumes or ())],
            'authorized': _flag('authorized', authorized),
            'callbackUrl': _text('callback_url', callback_url or ''),
        }
        options['pythonVersion'] = options['image']['pythonVersion']
        options['extra'] = '{"tracebacks":true}' if _flag('tracebacks', tracebacks) else '{}'

    def decorate(decorated: Callable[..., Any]) -> Endpoint:
        if not callable(decorated):
            raise DefinitionError('endpoint: decorates a function, not %r' % (decorated,))
        return Endpoint(decorated, 'endpoint', options)

    return decorate if function is None else decorate(function)


def _text(name: str, value: Any, empty: bool = True) -> str:
    if not isinstance(value, str) or not (value or empty):
        raise DefinitionError('%s: must be text%s, not %r' % (name, '' if empty else ' that is not empty', value))
    return value


def _sequence(name: str, value: Any) -> List[Any]:
    if not isinstance(value, (list, tuple)):
        raise DefinitionError('%s: must be a list, not %r' % (name, value))
    return list(value)


def _texts(name: str, value: Any) -> List[str]:
    return [_text(name, item, empty=False) for item in _sequence(name, value)]


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DefinitionError('%s: must be a whole number of at least %d, not %r' % (name, least, value))
    return value


def _number(name: str, value: Any) -> Union[int, float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == float('inf'):
        raise DefinitionError('%s: must be a number of seconds, not %r' % (name, value))
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise DefinitionError('%s: must be True or False, not %r' % (name, value))
    return value


def _of(name: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise DefinitionError('%s: must be %s(…), not %r' % (name, kind.__name__, value))
    return value


def _quantity(parse: Callable[[Any], int], value: Any) -> int:
    try:
        return parse(value)
    except ValueError as error:
        raise DefinitionError(str(error)) from None


def _gpu(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ','.join(_texts('gpu', value))
    return _text('gpu', value or '')


def _on_start(value: Any) -> Any:
    if value is not None and not isinstance(value, str) and not callable(value):
        raise DefinitionError("on_start: must be a function or 'module:function', not %r" % (value,))
    return value


def _env(value: Any) -> List[str]:
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        value = dict(_pair(item) for item in value)
    if not isinstance(value, Mapping):
        raise DefinitionError('env: must be a mapping of names to values, not %r' % (value,))
    for name in value:
        if not isinstance(name, str) or _ENV_NAME.fullmatch(name) is None:
            raise DefinitionError('env: %r is not the name of a variable' % (name,))
    return ['%s=%s' % (name, text) for name, text in value.items()]


def _pair(item: Any) -> List[str]:
    if not isinstance(item, str) or '=' not in item:
        raise DefinitionError("env: must be 'NAME=value', not %r" % (item,))
    return item.split('=', 1)


def _python_version(value: Any) -> str:
    match = _PYTHON_VERSION.fullmatch(value) if isinstance(value, str) else None
    minor = match.group(3) if match is not None else None
    if match is None or (minor is not None and not 8 <= int(minor) <= 14):
        raise DefinitionError('python_version: must be python3 or python3.8 to python3.14, not %r' % (value,))
    return match.group(0) if match.group(1) else 'python' + match.group(0)


def _packages(value: Any) -> List[str]:
    if not isinstance(value, str):
        return _texts('python_packages', value)
    if os.environ.get('CONTAINER_ID'):
        return []
    try:
        with open(value, encoding='utf-8') as file:
            lines = [line.split(' #')[0].strip() for line in file]
    except OSError as error:
        raise DefinitionError('python_packages: cannot read %s: %s' % (value, error.strerror)) from None
    return [line for line in lines if line and not line.startswith('#')]
