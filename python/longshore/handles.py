"""Handles of things in an installation: `Client`, `Deployment` and `Task`. Loaded at its first use."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Union
from urllib import parse, request

from .client import At, GatewayError, call, exchange, installation, result_in, send_file, sentence, workspace_of
from .failures import shallow
from .interrupts import cancelled, waited, watched
from .results import OVER, TaskError, ended, result_of

_ANSWER_SECONDS = 1260
_DOWNLOAD_SECONDS = 1800
_RERUN_SECONDS = 60
_PIECE_BYTES = 1 << 20
#: Kinds whose calls are tasks that nobody waits for, as their addresses begin.
_QUEUED = ('taskqueue', 'function', 'schedule')


class _GivenUp(Exception):
    """Nobody waits any longer."""


class Task(str):
    """
    A task by its id: the handle is the id, a text, and asks the installation about the task. Methods raise GatewayError
    when the installation does not answer; its `status` is 404 where it has no such task.
    """

    _at: Optional[At] = None
    #: This program has put it: Ctrl-C in a wait cancels it.
    _is_own = False

    def __new__(cls, id: str, at: Optional[At] = None, is_own: bool = False) -> Task:
        made = super().__new__(cls, id)
        made._at = at
        made._is_own = is_own
        return made

    def __reduce__(self) -> Any:
        return str, (str(self),)

    @property
    def id(self) -> str:
        """The id as a plain text."""
        return str(self)

    def read(self) -> Dict[str, Any]:
        """The task's present state, as `get_task` gives it."""
        what = 'cannot read task %s' % self
        return call('/api/v1/task/%s/%s' % (workspace_of(what, self._at), parse.quote(str(self), safe='')), what, at=self._at)

    def status(self) -> str:
        """`PENDING`, `RUNNING`, `RETRY`, or one of the ends: `COMPLETE`, `ERROR`, `CANCELLED`, `TIMEOUT`, `EXPIRED`."""
        return str(self.read().get('status'))

    def is_complete(self) -> bool:
        """Whether the task has ended, well or not."""
        return self.status() in OVER

    def result(self, wait: bool = False, timeout: Optional[float] = None) -> Any:
        """The handler's result; None while the task has not ended. With `wait` or a `timeout`, waits for the end, and
        Ctrl-C cancels a task that this program has put. Raises TaskError when the task did not complete.

        timeout: seconds to wait at most. Then TimeoutError is raised, and the task goes on.
        """
        try:
            task = self.read() if not wait and timeout is None else self._ended(sleep=self._until(timeout))
            return result_of(task, str(self), self._at) if task.get('status') in OVER else None
        except (GatewayError, TaskError, TimeoutError) as failure:
            raise shallow(failure)

    def get(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end, and returns the handler's result. Errors, `timeout` and Ctrl-C: as for `result`."""
        try:
            return self.result(True, timeout)
        except (GatewayError, TaskError, TimeoutError) as failure:
            raise shallow(failure)

    async def async_get(self, timeout: Optional[float] = None) -> Any:
        """As `get`, beside other work of an event loop. Where the coroutine is cancelled, the task goes on."""
        import asyncio

        given_up = threading.Event()
        sleep = self._until(timeout, given_up)

        def wait() -> Any:
            try:
                return ended(str(self), self._at, sleep=sleep)
            except _GivenUp:
                return None

        try:
            return result_of(await asyncio.get_running_loop().run_in_executor(None, wait), str(self), self._at)
        except (GatewayError, TaskError, TimeoutError) as failure:
            raise shallow(failure)
        finally:
            given_up.set()

    def _until(self, timeout: Optional[float], given_up: Optional[threading.Event] = None) -> Callable[[float], None]:
        """The pause between two looks, which raises TimeoutError when the time is over."""
        until = None if timeout is None else time.monotonic() + timeout

        def sleep(seconds: float) -> None:
            left = seconds if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError('task %s has not ended within %s seconds, and goes on' % (self, timeout))
            if given_up is None:
                time.sleep(min(seconds, left))
            elif given_up.wait(min(seconds, left)):
                raise _GivenUp

        return sleep

    def outputs(self) -> List[Dict[str, Any]]:
        """The files that the task saved with `Output`: `name`, `url` and `expires_in` of each."""
        return list(self.read().get('outputs') or [])

    def subscribe(self, event_handler: Optional[Callable[[Dict[str, Any]], Any]] = None) -> Any:
        """Waits for the end, and returns the result. event_handler: called with the task at each new status, in the form
        of `get_task`. Ctrl-C and errors: as for `result`."""
        try:
            return result_of(self._ended(event_handler), str(self), self._at)
        except (GatewayError, TaskError) as failure:
            raise shallow(failure)

    def _ended(
        self, event_handler: Optional[Callable[[Dict[str, Any]], Any]] = None, sleep: Callable[[float], Any] = time.sleep
    ) -> Dict[str, Any]:
        def wait() -> Dict[str, Any]:
            return ended(str(self), self._at, event_handler, sleep=sleep)

        if self._is_own:
            return waited(wait, lambda: [str(self)], self._at)
        return watched(wait, 'task %s goes on: `longshore task stop %s` cancels it' % (self, self))

    def cancel(self) -> None:
        """Cancels the task; one that has ended stays as it is. Raises GatewayError, also in a container, which may not."""
        cancelled([str(self)], self._at)

    def rerun(self) -> Task:
        """Runs the task again with its input, on the version that serves now, and returns the new task. Raises GatewayError
        where the input is not kept (`keep_inputs`), and in a container, which may not.

            for failure in failures:
                print(failure.task.rerun().result(wait=True))
        """
        what = 'cannot run task %s again' % self
        path = '/api/v1/task/%s/%s/rerun' % (workspace_of(what, self._at), parse.quote(str(self), safe=''))
        # The key makes a request safe to repeat whose answer was lost.
        status, data = exchange('POST', path, what, b'{}', 'application/json', _RERUN_SECONDS, self._at, os.urandom(16).hex())
        if status == 404:
            raise GatewayError('%s: %s' % (what, sentence(status, data)), status)
        return Task(str(result_in(what, data)['task_id']), self._at, True)


class Deployment:
    """A deployment, or a stub, that can be called: `url` is its address. `Client` makes them."""

    def __init__(self, stub_id: str, deployment_id: str = '', at: Optional[At] = None) -> None:
        self.stub_id = stub_id
        self.deployment_id = deployment_id
        self._at = at
        what = 'cannot find the address of %s' % (deployment_id or stub_id)
        query = parse.urlencode({'deploymentId': deployment_id, 'urlType': 'path'})
        found = call('/api/v1/gateway/stubs/%s/url?%s' % (parse.quote(stub_id, safe=''), query), what, at=at)
        if found.get('ok') is not True:
            raise GatewayError('%s: %s' % (what, found.get('errMsg') or 'it was refused'), 404)
        self.url = str(found.get('url'))

    def __repr__(self) -> str:
        return '%s(%r, %r)' % (type(self).__name__, self.deployment_id or self.stub_id, self.url)

    def submit(self, *, input: Optional[Dict[str, Any]] = None) -> Union[Task, Any]:
        """Calls it. A handler that nobody waits for gives a Task, an endpoint its result: JSON, a list of items where it
        yields, or None for an empty answer. input: arguments by name, as JSON; None: none. Raises GatewayError when the
        call is refused or fails: `status` is the HTTP status. Waits for an endpoint 21 minutes at most."""
        what = 'cannot call %s' % self.url
        # The installation may be reached by another address than the one that it announces.
        path = parse.urlsplit(self.url).path
        status, data = exchange(
            'POST', path, what, _json(input or {}), 'application/json', _ANSWER_SECONDS, self._at, os.urandom(16).hex()
        )
        if status == 404:
            raise GatewayError('%s: %s' % (what, sentence(status, data)), status)
        kind = path.split('/')[1]
        if not data and kind != 'endpoint':
            return None
        answer = result_in(what, data)
        return Task(answer['task_id'], self._at, True) if kind in _QUEUED else answer

    def subscribe(
        self, *, input: Optional[Dict[str, Any]] = None, event_handler: Optional[Callable[[Dict[str, Any]], Any]] = None
    ) -> Any:
        """As `submit`, and waits for the result of a Task. event_handler and errors: as `Task.subscribe`'s."""
        found = self.submit(input=input)
        return found.subscribe(event_handler) if isinstance(found, Task) else found


class Client:
    """
    Calls of an installation: the one of LONGSHORE_URL and LONGSHORE_TOKEN, or of the current context, where nothing is
    given. In a container that is its own installation.

    token: of a workspace.
    gateway_host, gateway_port: where the scheduler takes HTTP; a port of 0 is left out of the address.
    tls: calls are https; so are those to port 443.
    api_url: the whole address instead, such as `https://gpu.example.org`.
    """

    def __init__(
        self, token: str = '', gateway_host: str = '', gateway_port: int = 0, tls: bool = False, api_url: str = ''
    ) -> None:
        if gateway_host and not api_url:
            scheme = '' if '://' in gateway_host else 'https://' if tls or gateway_port == 443 else 'http://'
            api_url = '%s%s%s' % (scheme, gateway_host, ':%d' % gateway_port if gateway_port else '')
        self._at: Optional[At] = None
        if token or api_url:
            url = api_url.rstrip('/') or installation()[0]
            self._at = (url, token or installation()[1])

    def __repr__(self) -> str:
        # Without the token: what is shown is logged.
        return '%s(%s)' % (type(self).__name__, 'api_url=%r' % self._at[0] if self._at else '')

    def get_task_by_id(self, id: str) -> Task:
        """The handle of a task. Raises GatewayError, status 404, where there is no such task."""
        task = Task(id, self._at)
        task.read()
        return task

    def get_deployment_by_id(self, id: str) -> Deployment:
        """The deployment of that id. Raises GatewayError, status 404, where there is none."""
        what = 'cannot find deployment %s' % id
        path = '/api/v1/deployment/%s/%s' % (workspace_of(what, self._at), parse.quote(id, safe=''))
        return Deployment(str(call(path, what, at=self._at).get('stub_id')), id, self._at)

    def get_deployment_by_stub_id(self, stub_id: str) -> Deployment:
        """The stub of that id, to be called. Raises GatewayError, status 404, where there is none."""
        return Deployment(stub_id, '', self._at)

    def get_deployment(self, identifier: str) -> Deployment:
        """The deployment of that id, or the latest one of that name. Raises GatewayError, status 404, where there is none."""
        if len(identifier) == 36 and identifier.count('-') == 4:
            return self.get_deployment_by_id(identifier)
        what = 'cannot find deployment %s' % identifier
        filters = parse.urlencode({'limit': 1000, 'filters': json.dumps({'name': identifier})})
        listed = call('/api/v1/gateway/deployments?%s' % filters, what, at=self._at).get('deployments') or []
        named = [one for one in listed if one.get('name') == identifier]
        if not named:
            raise GatewayError('%s: there is none of that name' % what, 404)
        latest = max(named, key=lambda one: int(one.get('version') or 0))
        return Deployment(str(latest.get('stubId')), str(latest.get('id')), self._at)

    def submit(self, identifier: str, *, input: Optional[Dict[str, Any]] = None) -> Union[Task, Any]:
        """Calls the deployment of that name or id: `Deployment.submit`."""
        return self.get_deployment(identifier).submit(input=input)

    def subscribe(
        self,
        identifier: str,
        *,
        input: Optional[Dict[str, Any]] = None,
        event_handler: Optional[Callable[[Dict[str, Any]], Any]] = None,
    ) -> Any:
        """Calls the deployment of that name or id, and waits for the result: `Deployment.subscribe`."""
        return self.get_deployment(identifier).subscribe(input=input, event_handler=event_handler)

    def upload_file(self, local_path: str = '') -> str:
        """Uploads a file and returns an address that gives its bytes for a day, as an input of some handler. Raises
        GatewayError, and OSError for a file that cannot be read."""
        what = 'cannot upload %s' % local_path
        digest = hashlib.sha256()
        with open(local_path, 'rb') as file:
            for piece in iter(lambda: file.read(_PIECE_BYTES), b''):
                digest.update(piece)
        size = os.path.getsize(local_path)
        made = {'hash': digest.hexdigest(), 'size': str(size), 'overwrite': False}
        found = call('/api/v1/gateway/objects', what, _json(made), at=self._at)
        if found.get('ok') is not True:
            raise GatewayError('%s: %s' % (what, found.get('errorMsg') or 'it was refused'))
        if found.get('presignedUrl'):
            with open(local_path, 'rb') as file:
                send_file(str(found['presignedUrl']), file, size, what)
        path = '/api/v1/object/%s/%s/download-url' % (workspace_of(what, self._at), found.get('objectId'))
        return str(call(path, what, at=self._at).get('url'))

    def download_file(self, url: str, local_path: str) -> bytes:
        """Writes the bytes of a signed address to a file, and returns them. They are in memory meanwhile. Raises OSError,
        of which `urllib.error.HTTPError` is one."""
        with request.urlopen(url, timeout=_DOWNLOAD_SECONDS) as answer:
            data: bytes = answer.read()
        with open(local_path, 'wb') as file:
            file.write(data)
        return data


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, allow_nan=False).encode('utf-8')
    except (TypeError, ValueError) as problem:
        raise GatewayError('the input is not JSON: %s' % problem) from None
