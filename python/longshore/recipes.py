"""Stubs of pods and sandboxes, and the calls that make containers of them. Loaded at its first use."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Type
from urllib import parse

from .checks import DefinitionError, flag, instance, sequence, text, texts, whole
from .client import At, GatewayError, call, exchange, installation
from .handlers import checked_options

if TYPE_CHECKING:
    from .handles import Client

#: Bound on the wait for a container to run. The scheduler waits ten minutes.
_RUNNING_SECONDS = 640
_MOST_PORTS = 20
#: Parameters of decorators that have no meaning for a program of any kind.
_OTHERS: Dict[str, Any] = dict(
    on_start=None, workers=1, worker_mode=None, max_pending_tasks=100, timeout=0, retries=0, callback_url='', tracebacks=False
)
_NO_ENGINE = 'docker_enabled: a container has no Docker Engine of its own'
_NO_MACHINES = 'use_vm: virtual machines are not served'
#: Fields of a definition that say which image is built.
_BUILT = ('pythonPackages', 'systemPackages', 'commands', 'buildSteps', 'envVars')


class ReadinessProbe:
    """
    Tells when a pod takes calls. Without a probe, a pod is ready once its first port takes connections.

    path: is asked by HTTP; a status from 200 to 399 is ready. Without it, and without `command`, a connection is.
    port: of the probe; 0: the first of the pod's ports.
    command: a program and its arguments instead; exit code 0 is ready.
    interval_seconds: between tries.
    timeout_seconds: of one try.

    Raises DefinitionError, which names the parameter.
    """

    def __init__(self, path: str = '', port: int = 0, command: Any = (), interval_seconds: float = 1, timeout_seconds: float = 5) -> None:
        self.path = text('path', path)
        self.port = whole('port', port, 0)
        self.command = texts('command', command)
        self.interval_seconds = _seconds('interval_seconds', interval_seconds)
        self.timeout_seconds = _seconds('timeout_seconds', timeout_seconds)
        if self.command and (self.path or self.port):
            raise DefinitionError('command: excludes path and port')

    def described(self) -> Dict[str, Any]:
        return {
            'type': 'command' if self.command else 'http' if self.path else 'tcp',
            'port': self.port,
            'path': self.path,
            'command': self.command,
            'intervalSeconds': self.interval_seconds,
            'timeoutSeconds': self.timeout_seconds,
        }


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 3600:
        raise DefinitionError('%s: must be a number of seconds from 0 to 3600, not %r' % (name, value))
    return value


def recipe(given: Dict[str, Any]) -> Dict[str, Any]:
    """The fields of a stub request for the parameters of a pod or a sandbox."""
    if given.get('docker_enabled'):
        raise DefinitionError(_NO_ENGINE)
    if given.get('use_vm'):
        raise DefinitionError(_NO_MACHINES)
    options = checked_options({**_OTHERS, 'stop_after_disconnect': False, 'start_timeout': None, 'min_cuda': None, 'gpu_link': None, 'placement': None, 'priority': None, 'autoscaler': None, **given}, {}, None)
    if options.get('blockNetwork') and options.get('allowList'):
        raise DefinitionError('allow_list: excludes block_network')
    options['entrypoint'] = entrypoint_of(given.get('entrypoint'))
    options['ports'] = _ports(given.get('ports'))
    probe = given.get('readiness_probe')
    if probe is not None:
        options['readinessProbe'] = instance('readiness_probe', probe, ReadinessProbe).described()
    served = _serving(given)
    if served is not None:
        options['serving'] = served
    if flag('tcp', given.get('tcp', False)):
        options['tcp'] = True
    return options


def _serving(given: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """The settings of a model server; None: it is none. Protocols of other platforms mean nothing."""
    serving = given.get('serving')
    if serving is None and given.get('serving_protocol') != 'openai':
        return None
    from .model_servers import LLM

    return LLM().described() if serving is None else instance('serving', serving, LLM).described()


def entrypoint_of(value: Any) -> List[str]:
    """The program and its arguments. An empty argument is one, too."""
    return [text('entrypoint', one) for one in sequence('entrypoint', value or ())]


def _ports(value: Any) -> List[int]:
    listed = [value] if isinstance(value, int) else sequence('ports', value or ())
    ports = [whole('ports', one, 1) for one in listed]
    if len(ports) > _MOST_PORTS:
        raise DefinitionError('ports: must be at most %d, not %d' % (_MOST_PORTS, len(ports)))
    for port in ports:
        if port > 65535 or ports.count(port) > 1:
            raise DefinitionError('ports: must be different numbers from 1 to 65535, not %r' % (value,))
    return ports


def where(client: Optional[Client], what: str) -> At:
    """The installation of a client, else the current one."""
    at: Optional[At] = getattr(client, '_at', None)
    if at is None and os.environ.get('CONTAINER_ID'):
        raise GatewayError(
            '%s: the credential of a container makes none and reaches none: give client=Client(token, api_url=…), with a '
            'token of the workspace from a secret' % what
        )
    return at or installation()


class Stubs:
    """The stubs of one definition, each made once."""

    def __init__(self) -> None:
        self._made: Dict[str, str] = {}
        #: Threads of a program that use one definition make its stub once.
        self._lock = threading.Lock()

    def id_of(self, definition: Dict[str, Any], root: str, what: str, at: At) -> str:
        """The id of the stub of a definition. root: folder whose files are in the container; '': none. Raises
        GatewayError."""
        key = json.dumps([definition, root, at])
        with self._lock:
            if key not in self._made:
                self._made[key] = _stub_of(definition, root, what, at)
            return self._made[key]


def _stub_of(definition: Dict[str, Any], root: str, what: str, at: At) -> str:
    image_id = None if root else _image_of(definition, what, at)
    if image_id is None:
        from .undeployed import prepared_definition  # which runs the command line

        return prepared_definition(definition, root, what, at)
    volumes = [_volume_of(volume, what, at) for volume in definition['volumes']]
    body = dict(definition, imageId=image_id, volumes=volumes, objectId='')
    found = call('/api/v1/gateway/stubs', what, _json(body), at=at)
    if found.get('ok') is not True:
        raise GatewayError('%s: %s' % (what, found.get('errMsg') or 'its stub was refused'))
    return str(found.get('stubId'))


def _image_of(definition: Dict[str, Any], what: str, at: At) -> Optional[str]:
    """The id of the image; None: it must be built first."""
    image = definition['image']
    base = str(image.get('baseImage') or '')
    if image.get('dockerfile'):
        return None
    if not any(image.get(name) for name in _BUILT) and not image['pythonVersion'].startswith('micromamba'):
        return base
    body = {
        **{name: image.get(name) or [] for name in _BUILT},
        'pythonVersion': image['pythonVersion'],
        'existingImageUri': base,
        'gpu': image.get('gpu', ''),
        'machineGpu': definition['gpu'],
        'pool': (definition.get('pool') or {}).get('name', ''),
    }
    found = call('/api/v1/gateway/images/verify-build', '%s: the image' % what, _json(body), at=at)
    return str(found.get('imageId')) if found.get('exists') is True else None


def _volume_of(volume: Dict[str, Any], what: str, at: At) -> Dict[str, Any]:
    if volume.get('config'):
        return {'id': '', 'mountPath': volume['mountPath'], 'config': volume['config']}
    wanted = {'name': volume['name'], 'driver': volume.get('driver', '')}
    found = call('/api/v1/gateway/volumes', '%s: volume %s' % (what, volume['name']), _json(wanted), at=at)
    made = found.get('volume') or {}
    if not made.get('id'):
        raise GatewayError('%s: volume %s: %s' % (what, volume['name'], found.get('error') or found.get('errMsg') or 'it has no id'))
    return {'id': made['id'], 'mountPath': volume['mountPath']}


def create(stub_id: str, what: str, at: At) -> str:
    """Makes a container of the stub, and returns its id at once. Raises SandboxConnectionError when it is refused."""
    from .errors import SandboxConnectionError

    found = asked('POST', '/api/v1/gateway/pods', what, at, {'stubId': stub_id}, SandboxConnectionError)
    return str(found.get('containerId'))


def connect(container_id: str, what: str, at: At) -> str:
    """Waits until a container runs, at most ten minutes, and returns the id of its stub. Raises SandboxConnectionError
    with the reason when it does not start."""
    from .errors import SandboxConnectionError

    path = '%s/connect' % container_path(container_id)
    return str(asked('POST', path, what, at, {}, SandboxConnectionError, _RUNNING_SECONDS).get('stubId') or '')


def container_path(container_id: str) -> str:
    return '/api/v1/gateway/pods/%s' % parse.quote(container_id, safe='')


def asked(
    method: str,
    path: str,
    what: str,
    at: At,
    body: Optional[Dict[str, Any]] = None,
    kind: Type[Exception] = GatewayError,
    seconds: float = 60,
) -> Dict[str, Any]:
    """The answer of an operation. kind: the exception of one that is refused, or that makes no sense."""
    try:
        status, data = exchange(method, path, what, None if body is None else _json(body), 'application/json', seconds, at)
    except GatewayError as problem:
        if problem.status not in (400, 422):
            raise
        raise kind(str(problem)) from None
    try:
        found = json.loads(data.decode('utf-8'))
    except ValueError:
        found = {}
    if status == 404 or found.get('ok') is not True:
        raise kind('%s: %s' % (what, found.get('errorMsg') or found.get('errMsg') or found.get('message') or 'it was refused'))
    return dict(found)


def calling_module() -> str:
    """The module of the innermost caller outside this package."""
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get('__name__')).partition('.')[0] == __package__:
        frame = frame.f_back
    return str(frame.f_globals.get('__name__')) if frame is not None else ''


def _json(value: Any) -> bytes:
    return json.dumps(value).encode('utf-8')


class Aio:
    """The methods of an object as coroutines, which run beside other work of an event loop. Other attributes are as
    they are, and what has `aio` itself is given in that form."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        if name.startswith('_'):
            raise AttributeError(name)
        value = getattr(self._of, name)
        if not callable(value):
            return _asynchronous(value)

        async def called(*args: Any, **kwargs: Any) -> Any:
            return _asynchronous(await _beside(lambda: value(*args, **kwargs)))

        return called

    async def __aiter__(self) -> Any:
        items = iter(self._of)
        try:
            while True:
                found = await _beside(lambda: next(items, None))
                if found is None:
                    return
                yield found
        finally:
            items.close()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await _beside(self._of.terminate)


async def _beside(work: Callable[[], Any]) -> Any:
    import asyncio

    return await asyncio.get_running_loop().run_in_executor(None, work)


def _asynchronous(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _asynchronous(one) for key, one in value.items()}
    return Aio(value) if hasattr(type(value), 'aio') else value
