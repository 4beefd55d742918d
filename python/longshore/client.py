"""
Calls of app code to an installation: `task_queue.put`, `function.remote`, `endpoint.invoke`, `get_task`. Standard
library only; loaded at its first use.

On an ordinary machine calls go to a URL with a token. In a container they go through the agent's socket with the
container's own credential, with any network or none: URL and token are not needed there.
"""

from __future__ import annotations

import json
import os
import time
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple
from urllib import error, parse, request

from .failures import follow

if TYPE_CHECKING:
    from .handles import Task

_TIMEOUT_SECONDS = 30
#: Bound on a synchronous call, which waits for a container and then for the handler: at most ten minutes each.
_ANSWER_SECONDS = 1260
#: Bound on the sending of a file.
_SEND_SECONDS = 1800
#: Bound on an answer, which may be a task with its result.
_MAX_ANSWER_BYTES = 1 << 30
_READ_BYTES = 1 << 18
#: Time in which an unsent call is tried again while no scheduler answers.
_AWAY_SECONDS = 15.0
#: Pauses between repetitions of a call with a key, which also bound their number.
_PAUSES = (0.25, 0.5, 1.0)
#: Statuses of a proxy in front of a scheduler, or of a scheduler that takes no calls now.
_AWAY = (502, 503, 504)
#: The workspace has reached its limit of keys in the last 24 hours.
_NO_ROOM = 'too_many_idempotency_keys'
#: The text of a refusal where no deployment has the name.
_UNKNOWN = 'Invalid deployment'
_JSON = 'application/json'
_NDJSON = 'application/x-ndjson'
#: Bounds on one request with many calls.
_MOST_CALLS = 1000
_MOST_CALLS_BYTES = 8 << 20
_MANY_SECONDS = 120
#: Kinds whose inputs and results may be pickled, how the address says so, and the beginning of such a body.
_PICKLED = ('function', 'schedule')
_AS_PICKLED = '?longshore_values=pickle'
_PICKLED_BODY = b'{"pickle": "'
#: Host in URLs over the socket: it belongs to nobody, and only the path counts.
_SOCKET_HOST = 'gateway.longshore.internal'


class GatewayError(RuntimeError):
    """A call that the installation refused or did not answer; `status` is the HTTP status, 0 without one."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status
        follow()


class NotDeployedError(GatewayError):
    """Nothing of that name is deployed, or it is stopped, and there is no app file to run instead."""


class _NotAnswered(GatewayError):
    """The call may have arrived, or not."""


#: URL and token of an installation.
At = Tuple[str, str]


class _Answer:
    def __init__(self, status: int, data: bytes, has_task: bool) -> None:
        self.status = status
        self.data = data
        #: The answer is a task's: the same call again would get the same answer.
        self.has_task = has_task


#: Words for a deployment of each kind, and for putting a task there.
_KINDS = {'taskqueue': ('task queue', 'put a task in'), 'function': ('function', 'call'), 'schedule': ('schedule', 'call')}


def put(
    kind: str, name: str, args: List[Any], kwargs: Dict[str, Any], stub_id: str = '', headers: Optional[Dict[str, str]] = None
) -> Task:
    """Queues one task of the deployment `name`, or of a stub, and returns its handle, which is its id."""
    noun, verb = _KINDS[kind]
    what = 'cannot %s %s' % (verb, name)
    body = _inputs(what, args, kwargs, kind in _PICKLED)
    path = _path(kind, name, stub_id) + (_AS_PICKLED if body.startswith(_PICKLED_BODY) else '')
    found = _object(_asked(path, what, body, 'no %s is deployed as %s' % (noun, name), key=_new_key(), headers=headers))
    task_id = found.get('task_id')
    if 'skipped' in found and not task_id:
        task_id = ''
    elif not isinstance(task_id, str) or not task_id:
        raise GatewayError('%s: the answer has no task_id' % what)
    from .handles import Task  # which imports this module

    return Task(task_id, None, True)


#: The workspace of each installation and token that was called.
_workspaces: Dict[Tuple[str, str], str] = {}


def workspace_of(what: str, at: Optional[At] = None) -> str:
    """The id of the token's workspace, for paths; asked once."""
    environ = os.environ
    of = at or (environ.get('LONGSHORE_URL') or environ.get('CONTAINER_ID', ''), environ.get('LONGSHORE_TOKEN', ''))
    # An installation of the context file may change.
    if of not in _workspaces or not of[0]:
        found = str(call('/api/v1/workspace/current', what, at=at).get('external_id') or '')
        _workspaces[of] = parse.quote(found, safe='')
    return _workspaces[of]


def send_file(url: str, file: Any, size: int, what: str) -> None:
    """Sends a file to a signed address, by PUT and without a credential. In a container, addresses of the installation
    go through the socket."""
    headers = {'Content-Length': str(size), 'Content-Type': 'application/octet-stream'}
    parts = parse.urlsplit(url)
    socket_path = os.environ.get('LONGSHORE_GATEWAY_SOCKET', '')
    try:
        if parts.hostname == _SOCKET_HOST and socket_path:
            path = parts.path + ('?' + parts.query if parts.query else '')
            answer = _by_socket(socket_path, 'PUT', path, file, headers, _SEND_SECONDS)
        else:
            answer = _sent(url, file, headers)
    except GatewayError as problem:
        raise GatewayError('%s: %s' % (what, problem), problem.status) from None
    if answer.status != 200:
        raise GatewayError('%s: %s' % (what, sentence(answer.status, answer.data)), answer.status)


def _sent(url: str, file: Any, headers: Dict[str, str]) -> _Answer:
    call = request.Request(url, data=file, headers=headers, method='PUT')
    try:
        with _opener(url).open(call, timeout=_SEND_SECONDS) as answer:
            return _Answer(answer.status, _whole(answer), False)
    except error.HTTPError as refused:
        with refused:
            return _Answer(refused.code, _whole(refused), False)
    except (OSError, HTTPException) as problem:
        raise _NotAnswered('the address does not answer (%s)' % getattr(problem, 'reason', problem)) from None


def put_many(
    kind: str, name: str, calls: Sequence[Sequence[Any]], stub_id: str = '', headers: Optional[Dict[str, str]] = None
) -> List[Optional[str]]:
    """
    Queues one task for each of the calls, which are positional inputs, in one request. Returns the ids of the first
    calls, in their order, as many as a request takes; None: there was no room for this one. Raises GatewayError when
    none was taken.
    """
    noun, verb = _KINDS[kind]
    what = 'cannot %s %s' % (verb, name)
    taken = list(calls[:_MOST_CALLS])
    lines = [_inputs(what, list(one), {}, kind in _PICKLED) for one in taken]
    as_pickled = any(line.startswith(_PICKLED_BODY) for line in lines)
    if as_pickled:
        # The address says for all lines how they are written.
        lines = [line if line.startswith(_PICKLED_BODY) else _pickled_inputs(what, list(one), {}) for line, one in zip(lines, taken)]
    count, size = 0, 0
    while count < len(lines) and (count == 0 or size + len(lines[count]) < _MOST_CALLS_BYTES):
        size += len(lines[count]) + 1
        count += 1
    path = _path(kind, name, stub_id) + (_AS_PICKLED if as_pickled else '')
    unknown = 'no %s is deployed as %s' % (noun, name)
    data = _asked(path, what, b'\n'.join(lines[:count]), unknown, _MANY_SECONDS, _new_key(), content_type=_NDJSON, headers=headers)
    ids = _object(data).get('task_ids')
    if not isinstance(ids, list) or len(ids) != count:
        raise GatewayError('%s: the answer has no task_ids' % what)
    return ids


def invoke(name: str, args: List[Any], kwargs: Dict[str, Any], stub_id: str = '') -> Any:
    """Calls the endpoint deployed as `name`, or a stub, and returns its result; for a handler that yields, the list of
    its items."""
    what = 'cannot invoke %s' % name
    body = _inputs(what, args, kwargs)
    path = _path('endpoint', name, stub_id)
    from .interrupts import watched  # which imports this module

    unknown = 'no endpoint is deployed as %s' % name
    # The installation cancels a call that waits and whose caller has left.
    left = 'left: a call of %s that has begun goes on; `longshore task list --status RUNNING` has its id, for `longshore task stop`' % name
    data = watched(lambda: _asked(path, what, body, unknown, _ANSWER_SECONDS, _new_key()), left)
    return result_in(what, data)


def result_in(what: str, data: bytes) -> Any:
    """The result in an endpoint's answer; for a handler that yields, the list of its items. Raises GatewayError."""
    try:
        # A handler that yields nothing sends no events, and an empty body is not JSON.
        if not data or data.startswith((b'data: ', b'event: ')):
            return _items(what, data.decode('utf-8'))
        return json.loads(data.decode('utf-8'))
    except ValueError:
        raise GatewayError('%s: the answer is not JSON' % what) from None


def _items(what: str, events: str) -> List[Any]:
    """Items that a handler has yielded, in order; the last event may report a failure."""
    items: List[Any] = []
    for event in events.split('\n\n'):
        name, _, data = event.rpartition('data: ')
        if name.startswith('event: error'):
            raise GatewayError('%s: %s' % (what, _object(data.encode('utf-8')).get('error') or 'it failed after its answer had begun'))
        if data.strip():
            items.append(json.loads(data))
    return items


def get_task(task_id: str) -> Dict[str, Any]:
    """
    The task's present state: `status`, `result` and more, as in the answer of `GET /api/v1/task/{workspace}/{task}`. A
    container can read tasks of its own stub, and tasks that containers of its stub have put.
    """
    what = 'cannot read task %s' % task_id
    workspace = str(call('/api/v1/workspace/current', what).get('external_id') or '')
    return call('/api/v1/task/%s/%s' % (parse.quote(workspace, safe=''), parse.quote(str(task_id), safe='')), what)


def call(path: str, what: str, body: Optional[bytes] = None, unknown: str = '', at: Optional[At] = None) -> Dict[str, Any]:
    """Makes a request, a POST if there is a body. what: start of its error texts. unknown: text for `Invalid
    deployment`. at: another installation than the current one."""
    return _object(_asked(path, what, body, unknown, at=at))


def exchange(
    method: str,
    path: str,
    what: str,
    body: Optional[bytes] = None,
    content_type: str = 'application/octet-stream',
    seconds: float = _TIMEOUT_SECONDS,
    at: Optional[At] = None,
    key: str = '',
) -> Tuple[int, bytes]:
    """Makes a request of any method and content type; answers of 200 to 299, and 404, are given back with their
    status. Raises GatewayError for others."""
    try:
        until = time.monotonic() + seconds
        if key:
            answer = _again_and_again(path, body, until, key, at, method, content_type)
        else:
            answer = _once(path, body, seconds, '', at, method, content_type)
    except GatewayError as problem:
        raise GatewayError('%s: %s' % (what, problem), problem.status) from None
    if not 200 <= answer.status < 300 and answer.status != 404:
        raise GatewayError('%s: %s' % (what, sentence(answer.status, answer.data)), answer.status)
    return answer.status, answer.data


def opened(method: str, path: str, what: str, at: At, body: Any = None, size: int = 0, seconds: float = _SEND_SECONDS) -> Any:
    """
    Makes a request whose body or answer may be of any size. body: a file that has `size` bytes; None: none. Returns the
    answer, a file, if it is 200 to 299. Raises GatewayError for others.
    """
    url, token = at
    headers = {'Authorization': 'Bearer ' + token, 'Content-Type': 'application/octet-stream'}
    if body is not None:
        headers['Content-Length'] = str(size)
    try:
        return _opener(url).open(request.Request(url + path, data=body, headers=headers, method=method), timeout=seconds)
    except error.HTTPError as refused:
        with refused:
            data = _whole(refused)
        raise GatewayError('%s: %s' % (what, sentence(refused.code, data)), refused.code) from None
    except (OSError, HTTPException) as problem:
        raise GatewayError('%s: %s does not answer (%s)' % (what, url, getattr(problem, 'reason', problem))) from None


def tail_of(url: str, size: int, what: str) -> bytes:
    """The last bytes, at most so many, of what a signed address gives. Raises GatewayError."""
    asked = request.Request(url, headers={'Range': 'bytes=-%d' % size})
    try:
        with _opener(url).open(asked, timeout=_TIMEOUT_SECONDS) as answer:
            # A store without ranges gives everything.
            return _whole(answer)[-size:]
    except (OSError, HTTPException, ValueError) as problem:
        raise GatewayError('%s: %s' % (what, getattr(problem, 'reason', problem))) from None


def installation() -> Tuple[str, str]:
    """URL and token: LONGSHORE_URL and LONGSHORE_TOKEN, else the current context of the context file. A context's token
    goes to its own URL alone (decision 0289)."""
    url = os.environ.get('LONGSHORE_URL', '')
    token = os.environ.get('LONGSHORE_TOKEN', '')
    if os.environ.get('CONTAINER_ID') and not url:
        raise GatewayError('this container has no way to the gateway: LONGSHORE_GATEWAY_SOCKET is not set')
    if not url or not token:
        stored = _context(url)
        url = url or str(stored.get('url') or '')
        token = token or str(stored.get('token') or '')
    if url and not token:
        raise GatewayError(
            'no token for %s is known; set LONGSHORE_TOKEN, or keep one with `longshore login %s`' % (url, url)
        )
    if not url:
        raise GatewayError(
            'no installation is known; set LONGSHORE_URL and LONGSHORE_TOKEN, keep those of one with '
            '`longshore login URL`, or start one with `longshore up`'
        )
    if not url.startswith(('http://', 'https://')):
        raise GatewayError('%r is not a URL; it must start with http:// or https://' % url)
    return url.rstrip('/'), token


def _path(kind: str, name: str, stub_id: str) -> str:
    return '/%s/id/%s' % (kind, stub_id) if stub_id else '/%s/%s' % (kind, parse.quote(name, safe=''))


def _new_key() -> str:
    """A key for a call that may be sent more than once and is carried out once."""
    return os.urandom(16).hex()


def _asked(
    path: str,
    what: str,
    body: Optional[bytes],
    unknown: str,
    seconds: float = _TIMEOUT_SECONDS,
    key: str = '',
    at: Optional[At] = None,
    content_type: str = _JSON,
    headers: Optional[Dict[str, str]] = None,
) -> bytes:
    """The body of a good answer. With a key, the call is repeated within its time when it gets no answer or nobody was
    there."""
    until = time.monotonic() + seconds
    try:
        if key:
            answer = _again_and_again(path, body, until, key, at, '', content_type, headers)
        else:
            answer = _once(path, body, seconds, '', at, '', content_type, headers)
        if key and answer.status == 429 and _object(answer.data).get('code') == _NO_ROOM:
            # Nothing of the call was accepted. Without a key it is sent once, since a second one could not be
            # recognised.
            answer = _once(path, body, max(1.0, until - time.monotonic()), '', at, '', content_type, headers)
    except GatewayError as problem:
        raise GatewayError('%s: %s' % (what, problem), problem.status) from None
    if not 200 <= answer.status < 300:
        kind = NotDeployedError if _text(answer.data) == _UNKNOWN else GatewayError
        raise kind('%s: %s' % (what, sentence(answer.status, answer.data, unknown)), answer.status)
    return answer.data


def _again_and_again(
    path: str,
    body: Optional[bytes],
    until: float,
    key: str,
    at: Optional[At] = None,
    method: str = '',
    content_type: str = _JSON,
    headers: Optional[Dict[str, str]] = None,
) -> _Answer:
    for pause in _PAUSES:
        try:
            answer = _once(path, body, max(1.0, until - time.monotonic()), key, at, method, content_type, headers)
            if answer.status not in _AWAY or answer.has_task or time.monotonic() + pause > until:
                return answer
        except _NotAnswered:
            if time.monotonic() + pause > until:
                raise
        time.sleep(pause)
    return _once(path, body, max(1.0, until - time.monotonic()), key, at, method, content_type, headers)


def _once(
    path: str,
    body: Optional[bytes],
    seconds: float,
    key: str,
    at: Optional[At] = None,
    method: str = '',
    content_type: str = _JSON,
    headers: Optional[Dict[str, str]] = None,
) -> _Answer:
    method = method or ('GET' if body is None else 'POST')
    headers = {'Content-Type': content_type, **(headers or {})}
    if key:
        headers['Idempotency-Key'] = key
    socket_path = os.environ.get('LONGSHORE_GATEWAY_SOCKET', '')
    if socket_path and os.environ.get('CONTAINER_ID') and at is None:
        return _by_socket(socket_path, method, path, body, headers, seconds)
    return _by_url(method, path, body, headers, seconds, at)


def _whole(answer: Any) -> bytes:
    """The body of an answer. Older versions of Python make room for all that a read may give, so each read is small."""
    parts: List[bytes] = []
    size = 0
    while size < _MAX_ANSWER_BYTES:
        part = answer.read(_READ_BYTES)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b''.join(parts)


def _by_url(
    method: str, path: str, body: Optional[bytes], headers: Dict[str, str], seconds: float, at: Optional[At] = None
) -> _Answer:
    url, token = at or installation()
    call = request.Request(url + path, data=body, headers={'Authorization': 'Bearer ' + token, 'X-Longshore-Fields': '1', **headers}, method=method)
    try:
        with _opener(url).open(call, timeout=seconds) as answer:
            return _Answer(answer.status, _whole(answer), 'X-Task-Id' in answer.headers)
    except error.HTTPError as refused:
        with refused:
            return _Answer(refused.code, _whole(refused), 'X-Task-Id' in refused.headers)
    except ValueError as problem:
        raise GatewayError('%s does not answer (%s)' % (url, problem)) from None
    except (OSError, HTTPException) as problem:
        raise _NotAnswered('%s does not answer (%s)' % (url, getattr(problem, 'reason', problem))) from None


def _by_socket(socket_path: str, method: str, path: str, body: Any, headers: Dict[str, str], seconds: float) -> _Answer:
    until = time.monotonic() + _AWAY_SECONDS
    pause = 0.1
    while True:
        answer = _once_by_socket(socket_path, method, path, body, headers, seconds)
        # Only this answer of the agent proves that nothing was sent; after any other failure the call may have been
        # carried out.
        if answer.status != 503 or _object(answer.data).get('code') != 'scheduler_away' or time.monotonic() + pause > until:
            return answer
        time.sleep(pause)
        pause = min(pause * 2, 1.0)
        if hasattr(body, 'seek'):
            body.seek(0)


def _once_by_socket(socket_path: str, method: str, path: str, body: Any, headers: Dict[str, str], seconds: float) -> _Answer:
    import http.client
    import socket

    connection = http.client.HTTPConnection(_SOCKET_HOST, timeout=seconds)
    try:
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(seconds)
        connection.sock.connect(socket_path)
        connection.request(method, path, body=body, headers={'Connection': 'close', **headers})
        answer = connection.getresponse()
        return _Answer(answer.status, _whole(answer), answer.getheader('X-Task-Id') is not None)
    except (OSError, HTTPException) as problem:
        raise _NotAnswered('the agent of this machine does not answer (%s)' % (str(problem) or type(problem).__name__)) from None
    finally:
        connection.close()


def _inputs(what: str, args: List[Any], kwargs: Dict[str, Any], may_be_pickled: bool = False) -> bytes:
    try:
        return json.dumps({'args': args, 'kwargs': kwargs}, allow_nan=False).encode('utf-8')
    except (TypeError, ValueError) as problem:
        if may_be_pickled:
            return _pickled_inputs(what, args, kwargs)
        raise GatewayError('%s: its inputs are not JSON: %s' % (what, problem)) from None


def _pickled_inputs(what: str, args: List[Any], kwargs: Dict[str, Any]) -> bytes:
    from .values import ValueProblem, pickled  # not paid where inputs are JSON

    try:
        return _PICKLED_BODY + pickled({'args': args, 'kwargs': kwargs}).encode('ascii') + b'"}'
    except ValueProblem as problem:
        raise GatewayError('%s: its inputs are neither JSON nor can be pickled: %s' % (what, problem)) from None


def _context(url: str) -> Dict[str, Any]:
    """The current context, or the only one with that URL. Empty: none."""
    path = os.environ.get('LONGSHORE_CONTEXT_FILE')
    if not path:
        home = os.environ.get('XDG_CONFIG_HOME') or os.path.join(os.path.expanduser('~'), '.config')
        path = os.path.join(home, 'longshore', 'contexts.json')
    try:
        with open(path, 'rb') as file:
            contexts = _object(file.read())
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise GatewayError('cannot read the context file %s: %s' % (path, problem.strerror)) from None
    every = contexts.get('contexts')
    if not isinstance(every, dict):
        return {}
    current = every.get(contexts.get('current'))
    if isinstance(current, dict) and (not url or _is_at(current, url)):
        return current
    found = [one for one in every.values() if isinstance(one, dict) and url and _is_at(one, url)]
    return found[0] if len(found) == 1 else {}


def _is_at(context: Dict[str, Any], url: str) -> bool:
    """Whether the context is of that URL. Case of the host, a default port and slashes at the end make no difference."""
    return _plain(str(context.get('url') or '')) == _plain(url)


def _plain(url: str) -> Tuple[str, str, Optional[int], str]:
    parts = parse.urlsplit(url)
    try:
        port = parts.port or {'http': 80, 'https': 443}.get(parts.scheme)
    except ValueError:
        port = -1
    return parts.scheme, parts.hostname or '', port, parts.path.rstrip('/')


def _opener(url: str) -> request.OpenerDirector:
    parts = parse.urlsplit(url)
    host = parts.hostname or ''
    # A proxy from the environment cannot reach this machine's own addresses.
    local = host == 'localhost' or host == '::1' or host.startswith('127.')
    handlers: List[request.BaseHandler] = [request.ProxyHandler({})] if local else []
    if parts.scheme == 'https':
        handlers.append(request.HTTPSHandler(context=trust()))
    return request.build_opener(*handlers)


def trust() -> Any:
    """This machine's trusted certificates and the PEM file of LONGSHORE_CA_BUNDLE, else of the installation's context."""
    import ssl

    path = os.environ.get('LONGSHORE_CA_BUNDLE', '')
    if not path:
        path = str(_context(os.environ.get('LONGSHORE_URL', '')).get('caFile') or '')
    context = ssl.create_default_context()
    if path:
        try:
            context.load_verify_locations(cafile=path)
            # The file may be the server's certificate itself; Python 3.10 and newer can trust that.
            context.verify_flags |= getattr(ssl, 'VERIFY_X509_PARTIAL_CHAIN', 0)
        except (OSError, ssl.SSLError) as problem:
            raise GatewayError('cannot use the CA file %s: %s; correct LONGSHORE_CA_BUNDLE' % (path, problem)) from None
    return context


def _object(data: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(data.decode('utf-8'))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _text(data: bytes) -> str:
    found = _object(data)
    return str(found.get('error') or found.get('message') or '')


def sentence(status: int, data: bytes, unknown: str = '') -> str:
    """What an answer that is a refusal says. unknown: text for `Invalid deployment`."""
    text = _text(data) or 'it was answered %d' % status
    if status == 401 and not os.environ.get('CONTAINER_ID'):
        return '%s: the token is not accepted; choose another with LONGSHORE_TOKEN or `longshore context use`' % text
    if text == _UNKNOWN:
        return '%s: %s; deploy it with `longshore deploy`' % (text, unknown)
    return text
