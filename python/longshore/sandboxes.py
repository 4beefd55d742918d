"""`Sandbox`: a container for code that somebody else wrote, such as an agent's tool calls. Loaded at its first use."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple, Type, Union

from .client import At, GatewayError
from .definitions import Image, Placement, Pool, Secret, Volume
from .errors import SandboxConnectionError, SandboxProcessError
from .pods import end_of, fields_of, refuse_reading, status_of, terminated, urls_of
from .processes import RunsCode, SandboxProcessManager
from .recipes import Aio, Stubs, asked, calling_module, connect, container_path, create, recipe, where
from .sandbox_files import SandboxFileSystem

if TYPE_CHECKING:
    from .handles import Client

_NO_CHECKPOINTS = 'the memory of a sandbox is not kept: create_image_from_filesystem() keeps its files'
_PAUSE_SECONDS = 0.5


class Sandbox:
    """
    A container that programs, files and ports are put into by calls: `create()` makes one.

        with Sandbox(image=Image(python_packages=['numpy'])).create() as box:
            print(box.process.run_code('import numpy; print(numpy.e)').result)

    A sandbox has no credential of the installation. Parameters as `endpoint`'s, and:

    name: groups sandboxes in lists; None: `'sandbox'`.
    keep_warm_seconds: it stops after so many seconds without use (a call, or a connection to it); negative: never.
    authorized: callers of its ports need a token; None: True.
    sync_local_dir: the files of the folder from which this module was imported are in it, at /mnt/code.
    block_network: it reaches nothing.
    ports: have addresses from the beginning; `expose_port` adds others.
    min_cuda, gpu_link, placement: as `endpoint`'s.
    client: a `Client` of another installation than the current one; in a container of a handler, one is needed.
    context: accepted for app files of other platforms.
    disks, docker_enabled, use_vm: refused.

    Raises DefinitionError, which names the parameter.
    """

    _authorized = True

    def __init__(
        self,
        cpu: Union[int, float, str] = 1.0,
        memory: Union[int, float, str] = 128,
        gpu: Union[str, Sequence[str], None] = '',
        gpu_count: int = 0,
        image: Optional[Image] = None,
        keep_warm_seconds: float = 600,
        authorized: Optional[bool] = None,
        name: Optional[str] = None,
        volumes: Optional[Sequence[Volume]] = None,
        disks: Optional[Sequence[Any]] = None,
        secrets: Optional[Sequence[Union[str, Secret]]] = None,
        env: Union[Mapping[str, str], Sequence[str], None] = None,
        sync_local_dir: bool = False,
        block_network: bool = False,
        allow_list: Optional[Sequence[str]] = None,
        docker_enabled: bool = False,
        use_vm: bool = False,
        ports: Union[Sequence[int], int, None] = (),
        pool: Union[str, Pool, None] = None,
        context: Any = None,
        *,
        app: str = '',
        min_cuda: Optional[str] = None,
        gpu_link: Optional[str] = None,
        placement: Optional[Placement] = None,
        client: Optional[Client] = None,
    ) -> None:
        given = {**locals(), 'authorized': self._authorized if authorized is None else authorized}
        options = dict(recipe(given), stubType='sandbox', name=name or 'sandbox')
        options['appName'] = options['appName'] or options['name']
        self._definition = fields_of(options)
        self._module = calling_module() if sync_local_dir else ''
        self._client = client
        self._stubs = Stubs()

    def create(self) -> SandboxInstance:
        """Makes a sandbox, and waits until it runs. Its image is built first where it is missing. Raises GatewayError,
        and SandboxConnectionError with the reason when it is refused or does not start."""
        refuse_reading('Sandbox')
        what = 'cannot create a sandbox'
        at = where(self._client, what)
        from .undeployed import folder_of

        stub_id = self._stubs.id_of(self._definition, folder_of(self._module) if self._module else '', what, at)
        container_id = create(stub_id, what, at)
        try:
            connect(container_id, what, at)
        except BaseException:
            # Nobody else knows its id.
            _stopped(container_id, at)
            raise
        return SandboxInstance(container_id, stub_id, at)

    def connect(self, id: str) -> SandboxInstance:
        """The handle of a sandbox that was made before, by its `sandbox_id()`. Waits until it runs. Raises
        SandboxConnectionError when there is none, or it has ended."""
        what = 'cannot connect to %s' % id
        at = where(self._client, what)
        return SandboxInstance(id, connect(id, what, at), at)

    def create_from_memory_snapshot(self, snapshot_id: str) -> NoReturn:
        """Refused: only files are kept. `Sandbox(image=Image.from_id(…))` begins with those of another sandbox."""
        raise SandboxConnectionError('cannot create a sandbox of %s: %s' % (snapshot_id, _NO_CHECKPOINTS))


def _stopped(container_id: str, at: At) -> None:
    try:
        terminated(container_id, at)
    except GatewayError:
        pass


class SandboxInstance(RunsCode):
    """
    A sandbox that runs: `process` has its programs, `fs` its files. Ends at the end of a `with` block. Methods raise
    GatewayError when the installation does not answer, and SandboxProcessError or SandboxConnectionError when it
    refuses.
    """

    def __init__(self, container_id: str, stub_id: str, at: At) -> None:
        self.container_id = container_id
        self.stub_id = stub_id
        self.ok = True
        self.error_msg = ''
        self.terminated = False
        self.at = at
        #: Why the sandbox ended, such as `oom`, as far as `status`, `poll` or `wait` saw; else ''.
        self.end_reason = ''
        self._exit_code: Optional[int] = None
        self.process = SandboxProcessManager(self)
        self.fs = SandboxFileSystem(self)

    def __repr__(self) -> str:
        return 'SandboxInstance(%r)' % self.container_id

    def __enter__(self) -> SandboxInstance:
        return self

    def __exit__(self, *_: Any) -> None:
        self.terminate()

    def sandbox_id(self) -> str:
        """The id for `Sandbox().connect(…)`."""
        return self.container_id

    def terminate(self) -> bool:
        """Stops the sandbox; its files are gone then. False: it had ended."""
        if self.terminated:
            return True
        self.terminated = terminated(self.container_id, self.at)
        return self.terminated

    def _box(self) -> SandboxInstance:
        return self

    def status(self) -> Tuple[Optional[int], str]:
        """The exit code of the sandbox, and `PENDING`, `RUNNING`, `STOPPING` or `STOPPED`. The code is -1 while it has
        not ended, and None where nobody knows it; `end_reason` says why it ended."""
        status = status_of(self.container_id, self.at)
        if status != 'STOPPED':
            return -1, status
        if self._exit_code is None:
            self._exit_code, self.end_reason = end_of(self.container_id, self.at)
        return self._exit_code, status

    def poll(self) -> Optional[int]:
        """The exit code once the sandbox ended; None before, and where nobody knows the code."""
        exit_code, _ = self.status()
        return None if exit_code == -1 else exit_code

    def wait(self, timeout: Optional[float] = None) -> Optional[int]:
        """Waits until the sandbox ended, and returns its exit code; None: nobody knows the code. `end_reason` says why
        it ended. timeout: in seconds; after it raises SandboxProcessError."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            exit_code, status = self.status()
            if status == 'STOPPED':
                return exit_code
            if until is not None and time.monotonic() >= until:
                raise SandboxProcessError('sandbox %s did not end within %s s' % (self.container_id, timeout))
            time.sleep(_PAUSE_SECONDS)

    def update_ttl(self, ttl: int) -> None:
        """Changes `keep_warm_seconds`: it stops after so many seconds without use, from now on; -1: never."""
        self.ask('POST', '/ttl', 'cannot change the time of %s' % self.container_id, {'ttl': ttl}, SandboxProcessError)

    def expose_port(self, port: int) -> str:
        """The address of a port. HTTP and WebSockets reach it from now on."""
        what = 'cannot expose port %s of %s' % (port, self.container_id)
        return str(self.ask('POST', '/ports/expose', what, {'stubId': self.stub_id, 'port': port}, SandboxProcessError).get('url'))

    def list_urls(self) -> Dict[int, str]:
        """The addresses of its ports."""
        return urls_of(self.container_id, self.at)

    def update_network_permissions(self, block_network: bool = False, allow_list: Optional[List[str]] = None) -> None:
        """Changes what the sandbox reaches, at once: nothing, these ranges of addresses alone, or, without either,
        everything that a sandbox may reach. Connections that are forbidden then end."""
        if block_network and allow_list:
            raise ValueError('allow_list: excludes block_network')
        body = {'stubId': self.stub_id, 'blockNetwork': block_network, 'allowList': list(allow_list or [])}
        self.ask('POST', '/network/update', 'cannot change the network of %s' % self.container_id, body, SandboxProcessError)

    def create_image_from_filesystem(self) -> str:
        """
        Keeps the files of the sandbox as an image, and returns its id, for `Image.from_id(…)`. Volumes, secrets and
        /mnt/code are not in it.
        """
        what = 'cannot make an image of %s' % self.container_id
        path = '/create-image-from-filesystem'
        return str(self.ask('POST', path, what, {'stubId': self.stub_id}, SandboxProcessError, 1800).get('imageId'))

    def snapshot_memory(self) -> str:
        """Refused by the installation: only files are kept."""
        what = 'cannot keep the memory of %s' % self.container_id
        return str(self.ask('POST', '/snapshot-memory', what, {'stubId': self.stub_id}, SandboxProcessError).get('checkpointId'))

    def ask(
        self, method: str, route: str, what: str, body: Optional[Dict[str, Any]], kind: Type[Exception], seconds: float = 90
    ) -> Dict[str, Any]:
        """An operation on this sandbox. kind: the exception of one that is refused."""
        return asked(method, container_path(self.container_id) + route, what, self.at, body, kind, seconds)

    @property
    def aio(self) -> Any:
        """The same methods as coroutines: `await box.aio.process.exec('ls')`."""
        return Aio(self)

    def __getstate__(self) -> Dict[str, Any]:
        # A token does not belong into a pickle: the installation is the current one where it is read.
        return {'container_id': self.container_id, 'stub_id': self.stub_id}

    def __setstate__(self, state: Dict[str, str]) -> None:
        self.__init__(state['container_id'], state['stub_id'], where(None, 'cannot reach %s' % state['container_id']))  # type: ignore[misc]
