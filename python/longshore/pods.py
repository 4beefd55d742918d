"""`Pod`: a program of any image in containers, with ports. Loaded at its first use."""

from __future__ import annotations

import os
import time
from copy import copy
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union
from urllib import parse

from . import handlers
from .checks import DefinitionError
from .client import At, GatewayError, call
from .definitions import Image, Placement, Pool, QueueDepthAutoscaler, Secret, Volume
from .handlers import Definition
from .recipes import ReadinessProbe, Stubs, asked, calling_module, container_path, create, entrypoint_of, recipe, where

if TYPE_CHECKING:
    from .handles import Client

#: Statuses of a container that has not ended.
_ALIVE = ('PENDING', 'RUNNING', 'STOPPING')


class Pod(Definition):
    """
    A program in a container of any image, reached by its ports. `longshore deploy app.py:pod` deploys one that is a
    variable of an app file; `create()` makes a single container without a deployment.

        site = Pod(entrypoint=['python3', '-m', 'http.server', '8000'], ports=[8000])

    The files of the folder from which this module was imported are in the container, at /mnt/code. Parameters as
    `endpoint`'s, and:

    entrypoint: the program and its arguments; empty: the image's own.
    ports: on which it listens (HTTP, WebSockets), at most 20; a single one may be a number.
    readiness_probe: a `ReadinessProbe`; None: it is ready once its first port takes connections.
    keep_warm_seconds: of a deployment, how long an idle container is spared; of a container that `create` made, after
    how many seconds without use it stops. Negative: never.
    authorized: callers need a token; None: True.
    concurrent_requests: connections that a container takes at once.
    timeout: seconds that a call may take; 0: as long as it takes.
    client: a `Client` of another installation than the current one, for `create`.
    serving: an `LLM`, where the program serves a model; it is ready by its engine's routes then.
    serving_protocol: `'openai'` means `serving=LLM()`.
    tcp, checkpoint_enabled, app_kind: accepted for app files of other platforms; so is checkpoint_readiness_….
    disks, docker_enabled, use_vm: refused.

    Raises DefinitionError, which names the parameter.
    """

    stub_type = 'pod/deployment'
    decorator = 'Pod'
    _authorized = True

    def __init__(
        self,
        app: str = '',
        entrypoint: Sequence[str] = (),
        ports: Union[Sequence[int], int, None] = (),
        name: Optional[str] = None,
        cpu: Union[int, float, str] = 1.0,
        memory: Union[int, float, str] = 128,
        gpu: Union[str, Sequence[str], None] = '',
        gpu_count: int = 0,
        image: Optional[Image] = None,
        volumes: Optional[Sequence[Volume]] = None,
        disks: Optional[Sequence[Any]] = None,
        secrets: Optional[Sequence[Union[str, Secret]]] = None,
        env: Union[Mapping[str, str], Sequence[str], None] = None,
        keep_warm_seconds: float = 600,
        authorized: Optional[bool] = None,
        tcp: bool = False,
        block_network: bool = False,
        allow_list: Optional[Sequence[str]] = None,
        docker_enabled: bool = False,
        use_vm: bool = False,
        pool: Union[str, Pool, None] = None,
        checkpoint_enabled: bool = False,
        checkpoint_readiness_path: Optional[str] = None,
        checkpoint_readiness_port: Optional[int] = None,
        checkpoint_readiness_timeout: int = 600,
        checkpoint_readiness_interval: int = 1,
        app_kind: str = '',
        serving_protocol: str = '',
        serving: Any = None,
        *,
        readiness_probe: Optional[ReadinessProbe] = None,
        autoscaler: Optional[QueueDepthAutoscaler] = None,
        concurrent_requests: int = 256,
        timeout: Optional[int] = 0,
        stop_after_disconnect: Union[bool, int] = False,
        start_timeout: Optional[int] = None,
        min_cuda: Optional[str] = None,
        gpu_link: Optional[str] = None,
        placement: Optional[Placement] = None,
        priority: Optional[str] = None,
        client: Optional[Client] = None,
    ) -> None:
        # Read again by `create`, until which the image may change for others.
        given = {**locals(), 'image': copy(image), 'authorized': self._authorized if authorized is None else authorized}
        self.__module__ = calling_module()
        self._given = given
        self._client = client
        self._stubs = Stubs()
        self.options = {'name': name or ''} if os.environ.get('CONTAINER_ID') else recipe(given)

    def create(self, entrypoint: Sequence[str] = ()) -> PodInstance:
        """
        Makes one container, and returns its handle before it runs. entrypoint: another program than the pod's. The
        container ends with its program, by `terminate`, or after `keep_warm_seconds` without use; it is not started
        again. Raises GatewayError, and SandboxConnectionError when the container is refused.
        """
        refuse_reading('Pod')
        name = self.deployment_name or 'pod'
        what = 'cannot create %s' % name
        at = where(self._client, what)
        options = dict(recipe(self._given), stubType='pod', name=name)
        options['appName'] = options['appName'] or name
        if entrypoint:
            options['entrypoint'] = entrypoint_of(entrypoint)
        from .undeployed import folder_of

        stub_id = self._stubs.id_of(fields_of(options), folder_of(self.__module__), what, at)
        return PodInstance(create(stub_id, what, at), stub_id, options['ports'], at)


def fields_of(options: Dict[str, Any]) -> Dict[str, Any]:
    """The options without what is no field of a stub."""
    return {name: value for name, value in options.items() if name not in ('onStartFunction', 'onDeployFunction', 'schemas')}


def refuse_reading(name: str) -> None:
    if handlers.is_reading:
        raise DefinitionError("create: makes a container of the %s while the file is read; put it below if __name__ == '__main__':" % name)


class PodInstance:
    """A container that `Pod.create` made: `container_id`, `stub_id`, and `url` of its first port."""

    def __init__(self, container_id: str, stub_id: str, ports: List[int], at: At) -> None:
        self.container_id = container_id
        self.stub_id = stub_id
        self.ok = True
        self.error_msg = ''
        #: Exit code of the container; None: it has not ended, as far as `status` or `wait` saw, or nobody knows it.
        self.exit_code: Optional[int] = None
        self._at = at
        self._ports = ports

    def __repr__(self) -> str:
        return 'PodInstance(%r)' % self.container_id

    def __enter__(self) -> PodInstance:
        return self

    def __exit__(self, *_: Any) -> None:
        self.terminate()

    @property
    def url(self) -> str:
        """Address of the first port, once the container runs: waits at most a minute. '' where the pod has no port."""
        return self.urls().get(self._ports[0], '') if self._ports else ''

    def urls(self) -> Dict[int, str]:
        """The address of each port."""
        return urls_of(self.container_id, self._at)

    def status(self) -> str:
        """`PENDING`, `RUNNING`, `STOPPING`, or `STOPPED` once it ended."""
        found = status_of(self.container_id, self._at)
        if found == 'STOPPED' and self.exit_code is None:
            self.exit_code = exit_code_of(self.container_id, self._at)
        return found

    def wait(self, timeout: float = 120, poll_interval: float = 1) -> str:
        """Waits until the container ended, `timeout` seconds at most, and returns its status then. `exit_code` is known
        from then on."""
        until = time.monotonic() + timeout
        while True:
            status = self.status()
            if status not in _ALIVE or time.monotonic() >= until:
                return status
            time.sleep(min(poll_interval, max(0.0, until - time.monotonic())))

    def terminate(self) -> bool:
        """Stops the container. False: it had ended. Raises GatewayError when the installation does not answer."""
        return terminated(self.container_id, self._at)


def urls_of(container_id: str, at: At) -> Dict[int, str]:
    """The address of each port of a container that runs."""
    found = asked('GET', container_path(container_id) + '/urls', 'cannot read the addresses of %s' % container_id, at)
    return {int(port): str(url) for port, url in (found.get('urls') or {}).items()}


def status_of(container_id: str, at: At) -> str:
    """As `PodInstance.status`."""
    listed = call('/api/v1/gateway/containers', 'cannot find container %s' % container_id, at=at).get('containers') or []
    return next((str(one.get('status')) for one in listed if one.get('containerId') == container_id), 'STOPPED')


def exit_code_of(container_id: str, at: At) -> Optional[int]:
    """The exit code of a container that ended; None: it is not known."""
    return end_of(container_id, at)[0]


def end_of(container_id: str, at: At) -> Tuple[Optional[int], str]:
    """Exit code and reason of a container that ended; None and '' where they are not known."""
    what = 'cannot find container %s' % container_id
    try:
        workspace = str(call('/api/v1/workspace/current', what, at=at).get('external_id') or '')
        path = '/api/v1/explain/%s/%s' % (workspace, parse.quote(container_id, safe=''))
        container = call(path, what, at=at).get('container') or {}
    except GatewayError:
        return None, ''
    code = container.get('exit_code')
    return code if isinstance(code, int) else None, str(container.get('reason') or '')


def terminated(container_id: str, at: At) -> bool:
    """Stops a container. False: there is none that runs."""
    path = '/api/v1/gateway/containers/%s/stop' % parse.quote(container_id, safe='')
    return call(path, 'cannot stop %s' % container_id, b'{}', at=at).get('ok') is True
