"""`python3 -m longshore.describe app.py[:handler]`: an app file's definitions, as one JSON object on the last line of
fd 1.

The command line runs it to deploy. The app file is imported on this machine as it is. Its prints go to stderr, and a
hint follows an import that fails because a library is missing. Answers: `{"ok": true, "handlers": […], "others": […]}`,
or `{"ok": false, "error", "hint", "file"}` and exit 1, where the error begins with the file, or `file` is ''. A handler
has the fields of a stub request, and `requiredInputs`: names of inputs that a call must have;
and `place`, as `app.py:3`; and `isRealtime` where it takes WebSockets alone. `others` are names of handlers in the file
besides the requested one.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import os
import re
import sys
import traceback
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from . import handlers
from .checks import DefinitionError
from .client import GatewayError
from .differing import recipe_of
from .handlers import Definition, Handler, Queued
from .published import NotServedError
from .web import Asgi, Realtime

_USAGE = 'give the app file and perhaps a handler in it: app.py:handler'
_DECORATORS = ('endpoint', 'task_queue', 'function', 'schedule', 'asgi', 'realtime')
_DECORATE = 'Decorate a function with %s or @realtime(…) from longshore, or define a Pod(…).' % ', '.join(
    '@%s(…)' % name for name in _DECORATORS[:-1]
)
_LIBRARY_HINT = (
    '%s is not installed here. Import it inside the handler or in on_start, or below `if env.is_remote():`, which run in the '
    'container, or install it on this machine, too. The container has it by `image=Image(python_packages=[…])`.'
)
_ROOT_HINT = '%s is a folder above the file. Give the folder that holds it: --root %s'
_CALL_HINT = "Put calls below `if __name__ == '__main__':`, because the file is imported wherever it is deployed or served."
_BROKEN_HINT = 'The library does not work on this machine. Import it inside the handler or in on_start, which run in the container.'

_OWN_NAME = re.compile(r"module 'longshore' has no attribute '(\w+)'|cannot import name '(\w+)' from 'longshore'")
_OWN_HINT = 'longshore has no %s. Handlers are functions below a decorator: %s. There is no object for an app.'


class _Problem(Exception):
    def __init__(self, error: str, hint: str = '') -> None:
        super().__init__(error)
        self.hint = hint


def describe(target: str, directory: str) -> Dict[str, Any]:
    """Describes the handlers in `target`, a path below `directory` with an optional `:handler`. A named handler is
    described alone, and the others are listed by name."""
    path, _, wanted = target.partition(':')
    module_name = _module_name(path, directory)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module = _import(module_name, path, directory)
    if wanted:
        found = getattr(module, wanted, None)
        if not isinstance(found, Definition):
            listed = ', '.join('@' + name for name in _DECORATORS[:-1])
            what = 'has no %s' % wanted if found is None else '%s is not decorated with %s or @realtime, and is no Pod' % (wanted, listed)
            raise _Problem('%s: %s' % (path, what), _names_hint(module))
        others = [name for value, name in _defined(module) if value is not found]
        return {'handlers': [_describe(found, module_name, wanted)], 'others': others}
    every = _defined(module)
    if not every:
        method = _method_in(module)
        if method:
            raise _Problem(
                '%s defines no handler: methods cannot be handlers, as %s is' % (path, method),
                'Define a function at the top level of the file; on_start makes what its calls share.',
            )
        raise _Problem('%s defines no handler' % path, _DECORATE)
    return {'handlers': [_describe(value, module_name, name) for value, name in every], 'others': []}


def _defined(module: Any) -> List[Tuple[Definition, str]]:
    """The module's own handlers, each with its first name; imported ones are left out."""
    seen: Dict[int, Tuple[Definition, str]] = {}
    for name, value in vars(module).items():
        if isinstance(value, Definition) and value.__module__ == module.__name__:
            seen.setdefault(id(value), (value, name))
    return list(seen.values())


def _method_in(module: Any) -> str:
    """`Model.predict`: a decorated function in a class of the module; '': there is none."""
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            for own, member in vars(value).items():
                if isinstance(member, Definition):
                    return '%s.%s' % (name, own)
    return ''


def _module_name(path: str, directory: str) -> str:
    if not path.endswith('.py'):
        raise _Problem('%r is not a Python file' % path, _USAGE)
    full = os.path.realpath(os.path.join(directory, path))
    inside = os.path.relpath(full, os.path.realpath(directory))
    if inside.startswith('..'):
        raise _Problem('%s is outside %s' % (path, directory), 'Change into the directory that holds your code.')
    if not os.path.isfile(full):
        raise _Problem('%s does not exist' % path, _USAGE)
    parts = inside[:-3].split(os.sep)
    for part in parts:
        # The import system takes any name without a dot: `download-data.py` is no word of Python, and a module.
        if not part or '.' in part or ':' in part:
            raise _Problem('%s cannot be imported: the name %r has a dot or a colon' % (path, part), 'Rename it.')
    return '.'.join(parts)


def _import(module_name: str, path: str, directory: str) -> Any:
    try:
        module = importlib.import_module(module_name)
        found = getattr(module, '__file__', None) or ''
        if os.path.realpath(found) != os.path.realpath(os.path.join(directory, path)):
            raise _Problem('%s has the name of a module of Python itself' % path, 'Rename it.')
        return module
    except _Problem:
        raise
    except (DefinitionError, NotServedError) as error:
        raise _Problem('%s: %s' % (_place(error, path, directory), error)) from error
    except SystemExit as error:
        raise _Problem('%s ends the program while it is imported (exit %s)' % (path, error.code)) from error
    except BaseException as error:
        traceback.print_exc()
        # A syntax error's own text ends in the place that the message names first.
        what = error.msg if isinstance(error, SyntaxError) and error.lineno else error
        text = '%s: %s: %s' % (_place(error, path, directory), type(error).__name__, what)
        raise _Problem(text, _import_hint(error, directory)) from error


def _import_hint(error: BaseException, directory: str) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.split('.')[0]
        above, is_above, _ = (directory + os.sep).rpartition(os.sep + top + os.sep)
        if is_above:
            return _ROOT_HINT % (top, above or os.sep)
        if not os.path.exists(os.path.join(directory, top)) and not os.path.exists(os.path.join(directory, top + '.py')):
            return _LIBRARY_HINT % top
    if isinstance(error, GatewayError):
        return _CALL_HINT
    if isinstance(error, TypeError):
        return _parameter_hint(str(error))
    own = _OWN_NAME.match(str(error)) if isinstance(error, (AttributeError, ImportError)) else None
    if own:
        return _OWN_HINT % (own.group(1) or own.group(2), ', '.join(_DECORATORS))
    inner = traceback.extract_tb(error.__traceback__)[-1:]
    if inner and not inner[0].filename.startswith((directory + os.sep, '<frozen')):
        return _BROKEN_HINT
    return ''


_UNEXPECTED = re.compile(r"(?:(\w+)\.__init__|(\w+))\(\) got an unexpected keyword argument '(\w+)'")


def _parameter_hint(text: str) -> str:
    """Names the parameter of this module's name that was probably meant; '': the error is about something else."""
    import longshore

    match = _UNEXPECTED.match(text)
    name = (match.group(1) or match.group(2)) if match else ''
    if match is None or name not in longshore.__all__:
        return ''
    known = [one for one in inspect.signature(getattr(longshore, name)).parameters if one != 'function']
    near = difflib.get_close_matches(match.group(3), known, 1)
    where = '`help(longshore.%s)` and docs/python.md explain its parameters.' % name
    return 'Did you mean %s? %s' % (near[0], where) if near else where


def _place(error: BaseException, path: str, directory: str) -> str:
    """`app.py:3`: the last line of the app's own code in the traceback, in the form that editors open."""
    if isinstance(error, SyntaxError) and error.lineno:
        return '%s:%d' % (_inside(error.filename or '', directory) or path, error.lineno)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        own = _inside(frame.filename, directory)
        if own and '/longshore/' not in '/' + own.replace(os.sep, '/'):
            return '%s:%s' % (own, frame.lineno)
    return path


def _inside(filename: str, directory: str) -> str:
    """A file's path below the directory; '': it is elsewhere."""
    return filename[len(directory) + 1 :] if filename.startswith(directory + os.sep) else ''


def _describe(found: Definition, module_name: str, name: str) -> Dict[str, Any]:
    place = _place_of(found)
    try:
        return dict(_described(found, module_name, name), place=place)
    except _Problem as problem:
        if not place:
            raise
        raise _Problem('%s: %s' % (place, problem), problem.hint) from problem


def _place_of(found: Definition) -> str:
    """`app.py:3`: where a handler's decorators begin; '': not in a file of the app."""
    code = getattr(getattr(found, '__longshore_function__', None), '__code__', None)
    own = _inside(code.co_filename, os.getcwd()) if code else ''
    return '%s:%d' % (own, code.co_firstlineno) if own and code is not None else ''


def _described(found: Definition, module_name: str, name: str) -> Dict[str, Any]:
    described = found.described('%s:%s' % (module_name, name), _on_start(found.options['onStartFunction']))
    if isinstance(found, Handler):
        described['extra'] = json.dumps(dict(json.loads(described['extra']), recipe=recipe_of(found)), separators=(',', ':'))
    hook = found.options.get('onDeployFunction')
    if hook is not None:
        described.update(onDeploy=_on_start(hook, 'on_deploy'), onDeployHandler=_describe_hook(hook))
    if isinstance(found, Realtime):
        described['isRealtime'] = True
    if isinstance(found, Queued):
        described['retriedAfter'] = _retried_after(found)
    return dict(described, requiredInputs=_required_inputs(found))


def _retried_after(found: Queued[..., Any]) -> str:
    """When the handler is tried again, in words for `longshore deploy --dry-run`."""
    if found.retry_for:
        return 'after ' + ', '.join(one.__name__ for one in found.retry_for)
    is_published_function = found.of_file and found.decorator != 'task_queue'
    return 'when its process ends' if is_published_function else 'after any exception'


def _describe_hook(hook: Handler[..., Any]) -> Dict[str, Any]:
    """The stub request of the function that runs before the deployment."""
    return hook.described(_on_start(hook, 'on_deploy'), _on_start(hook.options['onStartFunction']))


def _required_inputs(found: Definition) -> Optional[List[str]]:
    """Names of the parameters without a default, except the runner's context; None: the function does not tell, or is
    called by other means than inputs."""
    if not isinstance(found, Handler) or isinstance(found, Asgi):
        return None
    if found.schemas[0] is not None:
        return list(found.schemas[0]._fields)
    try:
        parameters = inspect.signature(found.__longshore_function__).parameters.values()
    except (TypeError, ValueError):
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters if one.kind in named and one.default is one.empty and one.name != 'context']


def _on_start(value: Any, parameter: str = 'on_start') -> str:
    if value is None or isinstance(value, str):
        text = value or ''
        if text and not all(text.partition(':')):
            raise _Problem("on_start: must be 'module:function', not %r" % text)
        return text
    value = getattr(value, '__longshore_function__', value)
    module_name = getattr(value, '__module__', None)
    name = getattr(value, '__qualname__', None)
    found: Any = sys.modules.get(module_name or '')
    for part in (name or '').split('.'):
        found = getattr(found, part, None)
    if getattr(found, '__longshore_function__', found) is not value:
        raise _Problem(
            '%s: %r cannot be found by its name in a container' % (parameter, name or value),
            'Define it with def at the top level of a module.',
        )
    return '%s:%s' % (module_name, name)


def _file_in(error: str) -> str:
    """The file that an error begins with; '': none."""
    match = re.match(r'(.+?\.py)(?=:\d+: | |: )', error)
    return match.group(1) if match and os.path.isfile(match.group(1)) else ''


def _names_hint(module: Any) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Definition)]
    return 'It has %s.' % ', '.join(names) if names else _DECORATE


def main(arguments: List[str]) -> NoReturn:
    """Writes the object and exits, regardless of threads that the app file started."""
    answer_to = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    code = 1
    try:
        if len(arguments) != 1:
            raise _Problem(_USAGE)
        # CONTAINER_ID would make decorators inert, as they are in a container.
        os.environ.pop('CONTAINER_ID', None)
        handlers.is_reading = True
        answer = dict(describe(arguments[0], os.getcwd()), ok=True)
        text = json.dumps(answer)
        code = 0
    except _Problem as problem:
        text = json.dumps({'ok': False, 'error': str(problem), 'hint': problem.hint, 'file': _file_in(str(problem))})
    except BaseException as error:
        traceback.print_exc()
        text = json.dumps({'ok': False, 'error': '%s: %s' % (type(error).__name__, error), 'hint': ''})
    sys.stderr.flush()
    data = text.encode('ascii') + b'\n'
    while data:
        data = data[os.write(answer_to, data) :]
    os._exit(code)


if __name__ == '__main__':
    main(sys.argv[1:])
