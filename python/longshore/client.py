"""What app code calls of an installation from outside: `task_queue.put`. Standard library only; loaded when it is used."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Tuple
from urllib import error, parse, request

_TIMEOUT_SECONDS = 30
_MAX_ANSWER_BYTES = 1 << 20


class GatewayError(RuntimeError):
    """A call that the installation refused or did not answer; `status` is the HTTP status, 0 without one."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


def put(name: str, args: List[Any], kwargs: Dict[str, Any]) -> str:
    """Queues one task of the deployment `name` and gives its id."""
    what = 'cannot put a task in %s' % name
    url, token = installation()
    try:
        body = json.dumps({'args': args, 'kwargs': kwargs}, allow_nan=False).encode('utf-8')
    except (TypeError, ValueError) as problem:
        raise GatewayError('%s: its inputs are not JSON: %s' % (what, problem)) from None
    call = request.Request(
        '%s/taskqueue/%s' % (url, parse.quote(name, safe='')),
        data=body,
        headers={'Authorization': 'Bearer ' + token, 'Content-Type': 'application/json'},
        method='POST',
    )
    try:
        with _opener(url).open(call, timeout=_TIMEOUT_SECONDS) as answer:
            found = _object(answer.read(_MAX_ANSWER_BYTES))
    except error.HTTPError as refused:
        with refused:
            raise GatewayError('%s: %s' % (what, _sentence(refused.code, name, refused.read(_MAX_ANSWER_BYTES))), refused.code) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, 'reason', problem)
        raise GatewayError('%s: %s does not answer (%s)' % (what, url, reason)) from problem
    task_id = found.get('task_id')
    if not isinstance(task_id, str) or not task_id:
        raise GatewayError('%s: the answer of %s has no task_id' % (what, url))
    return task_id


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


def _sentence(status: int, name: str, data: bytes) -> str:
    found = _object(data)
    text = str(found.get('error') or found.get('message') or 'it was answered %d' % status)
    if status == 401:
        return '%s: the token is not accepted; choose another with LONGSHORE_TOKEN or `longshore context use`' % text
    if text == 'Invalid deployment':
        return '%s: no task queue is deployed as %s; deploy it with `longshore deploy`' % (text, name)
    return text
