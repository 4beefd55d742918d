"""
Calls of handlers that have no deployment: `longshore prepare` makes a stub of their file as it is now, and the stub is
called. Only on a person's machine: a container has no command line. Loaded at its first use.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, TypeVar

from . import handlers
from .client import At, GatewayError, NotDeployedError
from .handlers import Handler

T = TypeVar('T')
#: Bound on a preparation, which may build an image.
_SECONDS = 3600
#: Threads of a program that call one handler prepare it once.
_lock = threading.Lock()
#: Handlers whose deployments were compared with their files.
_compared: List[Handler[..., Any]] = []


def called(handler: Handler[..., Any], call: Callable[[str], T]) -> T:
    """
    Makes a call of the handler. `call` is given the id of a stub, or '' for the deployment of the handler's name. The
    deployment comes first, unless the handler is its file's (`of_file`) or LONGSHORE_RUN says `file`. A deployment that
    differs from the file is noted on stderr.
    """
    may_prepare = not os.environ.get('CONTAINER_ID') and not handlers.is_reading
    if not handler.stub_id and not (may_prepare and (handler.of_file or _runs_files())):
        if may_prepare and _file_of(handler):
            _compare_once(handler)
        try:
            return call('')
        except NotDeployedError:
            if not may_prepare or not _file_of(handler):
                raise
    with _lock:
        handler.stub_id = handler.stub_id or prepared(handler)
    return call(handler.stub_id)


def _runs_files() -> bool:
    """Whether this program's calls go to files, not to deployments. Raises GatewayError for a word without a meaning."""
    asked = os.environ.get('LONGSHORE_RUN', '')
    if asked not in ('', 'file'):
        raise GatewayError("LONGSHORE_RUN: must be 'file', by which calls run the app file as it is, not %r" % asked)
    return asked == 'file'


def _compare_once(handler: Handler[..., Any]) -> None:
    from . import differing

    with _lock:
        if handler in _compared:
            return
        _compared.append(handler)
    differing.begin(handler, _name_of(handler), _file_of(handler))


def prepared(handler: Handler[..., Any]) -> str:
    """The id of a stub with the file of the handler as it is now. Steps are shown on stderr, as by `longshore deploy`.
    Raises GatewayError."""
    what = 'cannot prepare %s' % handler.deployment_name
    root = _root_of(handler)
    return _ran(what, ['%s:%s' % (_file_of(handler), _name_of(handler)), *(['--root', root] if root else [])])


def prepared_definition(definition: Dict[str, Any], root: str, what: str, at: At) -> str:
    """The id of a stub of these fields, whose image is built where it is missing. root: folder whose files are in its
    containers; '': none. Raises GatewayError."""
    return _ran(what, ['-', *(['--root', root] if root else [])], json.dumps(definition).encode('utf-8'), at)


def served(handler: Handler[..., Any]) -> None:
    """Runs `longshore serve` for the file of the handler, on this terminal, until Ctrl-C ends it. Raises GatewayError."""
    import signal

    what = 'cannot serve %s' % handler.deployment_name
    file, root = _file_of(handler), _root_of(handler)
    if not file:
        raise GatewayError('%s: it has no file, which is what a development server loads' % what)
    target = '%s:%s' % (file, _name_of(handler))
    command = [*_command(what), 'serve', target, *(['--root', root] if root else [])]
    is_main = threading.current_thread() is threading.main_thread()
    # Ctrl-C reaches both processes. The command ends its container, and this one waits for that.
    before = signal.signal(signal.SIGINT, lambda *_: None) if is_main else None
    try:
        code = subprocess.call(command)
    except OSError as problem:
        raise GatewayError('%s: %s' % (what, problem)) from problem
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)
    if code != 0:
        raise GatewayError('%s: `longshore serve %s` ended with %d; its output is above' % (what, target, code))


def _ran(what: str, arguments: List[str], given: bytes = b'', at: Optional[At] = None) -> str:
    """The id of the stub that `longshore prepare` makes. given: its stdin."""
    environ = dict(os.environ, **({'LONGSHORE_URL': at[0], 'LONGSHORE_TOKEN': at[1]} if at else {}))
    command = [*_command(what), 'prepare', *arguments, '--json']
    try:
        ran = subprocess.run(command, input=given, stdout=subprocess.PIPE, env=environ, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise GatewayError('%s: %s' % (what, problem)) from problem
    if ran.returncode != 0:
        raise GatewayError('%s: `longshore prepare %s` failed; its output is above' % (what, arguments[0]))
    return str(json.loads(ran.stdout.decode('utf-8'))['stubId'])


def folder_of(module_name: str) -> str:
    """The folder from which a module was imported; '': none, as in a console."""
    module = sys.modules.get(module_name)
    path = getattr(module, '__file__', None) or ''
    if not path.endswith('.py'):
        return ''
    path = os.path.abspath(path)
    return _root_in(module, path) or os.path.dirname(path)


def _command(what: str) -> List[str]:
    """The command line that this module came with, else the one on the PATH."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # A checkout has the first, a release the second.
    own = [os.path.join(root, 'bin', name) for name in ('longshore.mjs', 'longshore')]
    found = next(filter(os.path.isfile, own), None) or shutil.which('longshore')
    if found is None:
        raise GatewayError(
            '%s: the command `longshore` was not found; deploy the handler, or install the command as URL/install/ says' % what
        )
    return [found]


def _module_of(handler: Handler[..., Any]) -> Any:
    return sys.modules.get(getattr(handler, '__module__', '') or '')


def _file_of(handler: Handler[..., Any]) -> str:
    """The file that defines the handler; '': none, as in a console."""
    path = getattr(_module_of(handler), '__file__', None) or ''
    return os.path.abspath(path) if path.endswith('.py') and _name_of(handler) else ''


def _root_of(handler: Handler[..., Any]) -> str:
    """The folder from which the handler's module was imported, where that is not the file's own; else ''."""
    return _root_in(_module_of(handler), _file_of(handler))


def _root_in(module: Any, path: str) -> str:
    """The same for a module of a file."""
    # `python -m src.app` names the module in its spec alone.
    name = str(getattr(getattr(module, '__spec__', None), 'name', None) or getattr(module, '__name__', ''))
    ending = os.sep + name.replace('.', os.sep) + '.py'
    if '.' not in name or not path.endswith(ending):
        return ''
    root = path[: -len(ending)] or os.sep
    # An installed package has its own folder alone: beside it are all others.
    return '' if os.path.basename(root) in ('site-packages', 'dist-packages') else root


def _name_of(handler: Handler[..., Any]) -> str:
    """The handler's name in its module."""
    return next((name for name, value in vars(_module_of(handler)).items() if value is handler), '')
