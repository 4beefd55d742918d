"""What app code calls of an installation from outside: `task_queue.put`, `function.remote`. Standard library only; loaded when it is used."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional, Tuple
from urllib import error, parse, request

_TIMEOUT_SECONDS = 30
_MAX_ANSWER_BYTES = 1 << 20
#: A task with its result.
_MAX_RESULT_BYTES = 1 << 30


class GatewayError(RuntimeError):
    """A call that the installation refused or did not answer; `status` is the HTTP status, 0 without one."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


#: What a deployment of that kind is called, and what putting a task there is.
_KINDS = {'taskqueue': ('task queue', 'put a task in'), 'function': ('function', 'call'), 'schedule': ('schedule', 'call')}


def put(kind: str, name: str, args: List[Any], kwargs: Dict[str, Any]) -> str:
    """Queues one task of the deployment `name` and gives its id."""
    noun, verb = _KINDS[kind]
    what = 'cannot %s %s' % (verb, name)
    try:
        body = json.dumps({'args': args, 'kwargs': kwargs}, allow_nan=False).encode('utf-8')
    except (TypeError, ValueError) as problem:
        raise GatewayError('%s: its inputs are not JSON: %s' % (what, problem)) from None
    found = call('/%s/%s' % (kind, parse.quote(name, safe='')), what, body, 'no %s is deployed as %s' % (noun, name))
    task_id = found.get('task_id')
    if not isinstance(task_id, str) or not task_id:
        raise GatewayError('%s: the answer of %s has no task_id' % (what, installation()[0]))
    return task_id


def call(path: str, what: str, body: Optional[bytes] = None, unknown: str = '') -> Dict[str, Any]:
    """One request, a POST where there is a body. what: how its errors begin. unknown: what `Invalid deployment` means here."""
    url, token = installation()
    asked = request.Request(
        url + path,
        data=body,
        headers={'Authorization': 'Bearer ' + token, 'Content-Type': 'application/json'},
        method='GET' if body is None else 'POST',
    )
    try:
        with _opener(url).open(asked, timeout=_TIMEOUT_SECONDS) as answer:
            return _object(answer.read(_MAX_ANSWER_BYTES if body is not None else _MAX_RESULT_BYTES))
    except error.HTTPError as refused:
        with refused:
            raise GatewayError('%s: %s' % (what, _sentence(refused.code, unknown, refused.read(_MAX_ANSWER_BYTES))), refused.code) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, 'reason', problem)
        raise GatewayError('%s: %s does not answer (%s)' % (what, url, reason)) from problem


def installation() -> Tuple[str, str]:
    """URL and token, each by itself: LONGSHORE_URL and LONGSHORE_TOKEN, else the current context of the context file."""
    url = os.environ.get('LONGSHORE_URL', '')
    token = os.environ.get('LONGSHORE_TOKEN', '')
    if os.environ.get('CONTAINER_ID') and not url:
        raise GatewayError('put: a container has no way to the gateway in this version, unless its LONGSHORE_URL names one')
    if not url or not token:
        stored = _current_context()
        url = url or str(stored.get('url') or '')
        token = token or str(stored.get('token') or '')
    if not url or not token:
        raise GatewayError('put: no installation is known; set LONGSHORE_URL and LONGSHORE_TOKEN, or start one with `longshore up`')
    if not url.startswith(('http://', 'https://')):
        raise GatewayError('put: %r is not a URL; it must start with http:// or https://' % url)
    return url.rstrip('/'), token


def _current_context() -> Dict[str, Any]:
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
        raise GatewayError('put: cannot read the context file %s: %s' % (path, problem.strerror)) from None
    every = contexts.get('contexts')
    found = every.get(contexts.get('current')) if isinstance(every, dict) else None
    return found if isinstance(found, dict) else {}


def _opener(url: str) -> request.OpenerDirector:
    host = parse.urlsplit(url).hostname or ''
    # A proxy of the environment does not know this machine's own addresses.
    local = host == 'localhost' or host == '::1' or host.startswith('127.')
    return request.build_opener(request.ProxyHandler({})) if local else request.build_opener()


def _object(data: bytes) -> Dict[str, Any]:
    try:
        value = json.loads(data.decode('utf-8'))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _sentence(status: int, unknown: str, data: bytes) -> str:
    found = _object(data)
    text = str(found.get('error') or found.get('message') or 'it was answered %d' % status)
    if status == 401:
        return '%s: the token is not accepted; choose another with LONGSHORE_TOKEN or `longshore context use`' % text
    if text == 'Invalid deployment':
        return '%s: %s; deploy it with `longshore deploy`' % (text, unknown)
    return text
