"""Calls a handler with a task's input and returns the outcome. Independent of connections: it sends through
`send_chunk`."""

from __future__ import annotations

import importlib
import json
import sys
import time
import types

from ..task_context import Context, _CurrentContext
from . import forks, logs, thread_tasks
from .inputs import ENCODING, PICKLED_KEYS, InputError, arguments, is_exact, is_pickled, pickled_arguments
from .protocol import MAX_BODY_BYTES
from .settings import PICKLED, Settings, SettingsError, split_reference
from .task import Task, TaskCancelled

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

    Outcome = Tuple[str, bytes]

_COROUTINE = 0x80
_ASYNC_GENERATOR = 0x200
_KEYWORDS = 0x08
#: Beginnings of a pickled result, whose keys come in either order.
_PICKLED_BEGIN = tuple(b'{"%s":' % key.encode() for key in PICKLED_KEYS)

_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(',', ':')).encode


class ResultError(Exception):
    """The handler's result cannot be sent; the text is for its author."""


class NotJson(ResultError):
    """The handler's result is not JSON."""


class Application:
    """The user's handler, ready to be called."""

    def __init__(self, handler: Any, settings: Settings) -> None:
        #: The user's own function: its decorator is an inert wrapper here that only knows the exceptions to retry for.
        self.function: Callable[..., Any] = undecorated(handler)
        self.settings = settings
        kind = settings.stub_type.partition('/')[0]
        self.is_asgi = kind == 'asgi'
        #: Inputs and results of these kinds may be pickled: each caller has a token, and the module as its client.
        self.takes_pickled = kind in ('function', 'schedule')
        #: Whether the function is called for each message of a WebSocket.
        self.is_realtime = getattr(handler, 'decorator', '') == 'realtime' and self.function is not handler
        #: A generator's items are sent as they come when a caller waits for the answer; otherwise they become a list.
        self.streams = kind in ('endpoint', '')
        self.retry_for: Tuple[Any, ...] = getattr(handler, 'retry_for', ()) if self.function is not handler else ()
        #: Whether an exception of the handler is worth another try. Functions of the published packages say
        #: themselves which are.
        self.retries = kind == 'taskqueue' or (kind in ('function', 'schedule') and (bool(self.retry_for) or not getattr(handler, 'of_file', False)))
        #: Schemas of the inputs and of the outputs, or None.
        schemas: Tuple[Any, Any] = getattr(handler, 'schemas', (None, None)) if self.function is not handler else (None, None)
        self.inputs, self.outputs = schemas
        self.on_start_value: Any = None
        #: Inputs are held to the annotations. Files for the published packages get what they got there.
        self.checks = None if self.is_asgi or self.is_realtime or self.inputs is not None or getattr(handler, 'of_file', False) else _checks(self.function)
        flags, names, takes_any = _shape(self.function)
        self.is_async = bool(flags & (_COROUTINE | _ASYNC_GENERATOR))
        self.wants_context = 'context' in names
        #: Where a `realtime` handler takes the message: by this name; empty: as the first input; None: nowhere.
        self.input_name = next((name for name in names if name not in ('context', 'self')), None if names and not takes_any else '')
        #: The scheduler has read this input; a handler without a parameter for it does not get it.
        self.takes_callback_url = takes_any or 'callback_url' in names
        _CurrentContext._source = self._current
        thread_tasks.follow_imported()

    def _current(self) -> Optional[Context]:
        task = thread_tasks.running()
        return None if task is None else self.context(task)

    def arguments(self, task: Task) -> Tuple[List[Any], Dict[str, Any]]:
        try:
            if self.takes_pickled and is_pickled(task.query):
                positional, keywords = pickled_arguments(task.body)
            else:
                positional, keywords = arguments(task.body, task.query)
        except InputError:
            raise
        except (ValueError, RecursionError) as error:
            raise InputError('the input must be a JSON object: %s' % error) from None
        if not self.takes_callback_url or self.inputs is not None:
            keywords.pop('callback_url', None)
        if self.inputs is not None:
            positional, keywords = [self._checked_input(positional, keywords)], {}
        elif self.checks is not None and not is_pickled(task.query):
            positional, keywords = self.checks.checked(positional, keywords, task.query)
        if self.wants_context:
            keywords['context'] = self.context(task)
        return positional, keywords

    def call(self, positional: List[Any], keywords: Dict[str, Any]) -> Any:
        """Calls the handler. Raises InputError where it does not take such inputs."""
        try:
            return self.function(*positional, **keywords)
        except TypeError as error:
            problem = _unbound(self.function, error)
            if problem == '':
                raise
            raise InputError(problem) from error

    def _checked_input(self, positional: List[Any], keywords: Dict[str, Any]) -> Any:
        from ..schema import ValidationError, checked_input  # the app has imported it

        try:
            return checked_input(self.inputs, positional, keywords)
        except ValidationError as error:
            raise InputError(str(error)) from error

    def encoded(self, task: Task, value: Any, is_checked: bool = True) -> bytes:
        """The result as JSON bytes, held to the schema of the outputs if it is to be checked."""
        if is_checked and self.outputs is not None:
            from ..schema import checked_output  # the app has imported it

            value = checked_output(self.outputs, value)
        if not self.takes_pickled:
            return encode_result(value)
        if is_exact(task.query):
            from ..values import json_text  # not paid where any JSON will do

            if json_text(value) is None:
                return _pickled(value, 'JSON would give its caller another value')
        try:
            data = encode_result(value)
        except NotJson as error:
            return _pickled(value, str(error))
        # A handler's own object of the form of a pickled result must not be read as one.
        if data.startswith(_PICKLED_BEGIN) and set(json.loads(data)) == PICKLED_KEYS:
            return _pickled(value, 'its keys are those of a pickled result')
        return data

    def is_retried(self, error: BaseException) -> bool:
        """Whether the task is tried again after an exception of the handler; never for an invalid input."""
        if not self.retries or isinstance(error, InputError):
            return False
        return not self.retry_for or isinstance(error, self.retry_for)

    def context(self, task: Optional[Task]) -> Context:
        """The context of a task, or of a process that runs none yet."""
        settings = self.settings
        return Context(
            container_id=settings.container_id,
            stub_id=settings.stub_id,
            stub_type=settings.stub_type,
            task_id=task.task_id if task is not None else '',
            timeout=task.timeout_ms / 1000 if task is not None and task.timeout_ms else settings.timeout,
            python_version=settings.python_version,
            callback_url=settings.callback_url,
            workers=settings.workers,
            on_start_value=self.on_start_value,
        )


def load(text: str, variable: str) -> Any:
    """Imports `module:function`, decorated or not; lets exceptions of the import through."""
    module_name, name = split_reference(text, variable)
    if module_name.endswith(PICKLED):
        return _pickled_function(module_name)
    found: Any = importlib.import_module(module_name)
    for part in name.split('.'):
        if not hasattr(found, part):
            raise SettingsError('%s has no %s' % (module_name, name))
        found = getattr(found, part)
    if not callable(undecorated(found)):
        raise SettingsError('%s in %s is a %s, not a function' % (name, module_name, type(found).__name__))
    return found


def _pickled_function(path: str) -> Any:
    """The function of a notebook, which its client has pickled into a file of the app's code."""
    import pickle

    try:
        with open(path, 'rb') as file:
            found = pickle.load(file)
    except ModuleNotFoundError as problem:
        raise SettingsError('%s needs the library %s in its image' % (path, problem.name)) from problem
    if not callable(undecorated(found)):
        raise SettingsError('%s has a %s, not a function' % (path, type(found).__name__))
    return found


def undecorated(handler: Any) -> Any:
    """The function within one of our decorators; any other object unchanged."""
    return getattr(handler, '__longshore_function__', handler)


def _shape(function: Any) -> Tuple[int, Tuple[str, ...], bool]:
    """Code flags, parameter names, and whether every keyword is taken; without importing `inspect` (10 ms)."""
    flags = 0
    for _ in range(16):
        code = getattr(function, '__code__', None)
        if code is None:
            # The function within functools.partial, else the call method of an object (for a built-in this never ends,
            # so the loop has a bound).
            function = getattr(function, 'func', None) or function.__call__
            continue
        flags |= code.co_flags & (_COROUTINE | _ASYNC_GENERATOR)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        # A decorator with `functools.wraps` that passes everything on has its function's parameters.
        inner = getattr(function, '__wrapped__', None)
        if 'context' in names or inner is None or not code.co_flags & _KEYWORDS:
            return flags, names, bool(code.co_flags & _KEYWORDS)
        function = inner
    return flags, (), True


def _checks(function: Any) -> Any:
    """The checks of the function's annotations; None: it has none."""
    if not getattr(function, '__annotations__', True):
        return None
    from .annotated import checks_of  # with `typing`, which others do not pay for

    return checks_of(function)


#: Refusals of a call before the function begins, in the interpreter's words.
_UNBOUND = (
    ('missing ', 'is missing', 'are missing'),
    ('unexpected keyword argument ', 'is no input of the handler', ''),
    ('multiple values for argument ', 'is given twice', ''),
    ('positional-only arguments passed as keyword arguments', 'is an input by position, in args', 'are inputs by position, in args'),
)
#: Characters of a name in such a text.
_MOST_NAME = 100


def _unbound(function: Any, error: TypeError) -> str:
    """Why a call of the function did not begin, with the names of the inputs; '': it did."""
    while hasattr(function, '__wrapped__'):
        function = function.__wrapped__
    code = getattr(function, '__code__', None)
    text = str(error)
    if code is None or '%s()' % function.__name__ not in text:
        return ''
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is code:
            return ''
        trace = trace.tb_next
    for words, said, said_of_several in _UNBOUND:
        if words not in text:
            continue
        rest = text.partition(words)[2]
        if said_of_several:
            names = ', '.join(rest.split("'")[1::2])
        else:
            # The caller's own name, which may have any character. Python 3.13 adds what was probably meant.
            names = rest[1:].rpartition("'. Did you mean '")[0] or rest[1:-1]
        shown = names if len(names) <= _MOST_NAME else names[:_MOST_NAME] + '…'
        return '%s: %s' % (shown, said_of_several if said_of_several and ', ' in names else said) if names else text
    return text if ' positional argument' in text else ''


def encode_event(item: Any) -> bytes:
    """A generator's item as the caller reads it: an event whose data is a JSON object."""
    return b'data: ' + encode_result(item if isinstance(item, dict) else {'data': item}) + b'\n\n'


def encode_result(value: Any) -> bytes:
    """The result as JSON bytes."""
    try:
        text = _json(value)
    except RecursionError:
        raise NotJson('ValueError: the handler returned a value that is nested too deeply for JSON') from None
    except TypeError as error:
        raise _not_json('TypeError', error) from None
    except ValueError as error:
        raise _not_json('ValueError', error) from None
    try:
        data = text.encode('utf-8')
    except UnicodeEncodeError:  # half of a surrogate pair: only the escaped form can hold it
        data = json.dumps(value, allow_nan=False).encode('ascii')
    if len(data) > MAX_BODY_BYTES:
        raise ResultError(
            'ValueError: the result has %d bytes, more than %d (%d MiB): write it into a volume or a file, and return its '
            'name or the address of an `Output`' % (len(data), MAX_BODY_BYTES, MAX_BODY_BYTES >> 20)
        )
    return data


def _not_json(kind: str, error: BaseException) -> 'NotJson':
    from .cures import cure_of  # not paid where results are JSON

    return NotJson('%s: the handler returned a value that is not JSON: %s; %s' % (kind, error, cure_of(error)))


def _pickled(value: Any, why: str) -> bytes:
    """A result that is not JSON, for the caller's module."""
    from ..values import ValueProblem, pickled  # not paid where results are JSON

    try:
        return encode_result({'base64': pickled(value), 'encoding': ENCODING})
    except ValueProblem as problem:
        raise ResultError('%s; and %s' % (why, problem)) from None


def error_body(text: str, detail: str = '') -> bytes:
    """`{"error": text}`, and `detail` where there is one; always small enough for one frame."""
    body = {'error': text[:65536]}
    if detail:
        body['detail'] = detail[:8192]
    return json.dumps(body).encode('ascii')


def cancelled(task: Task) -> Outcome:
    text = 'task ran out of time' if task.cancel_outcome == 'timeout' else 'task was cancelled'
    return task.cancel_outcome, error_body(text)


def failed(application: Application, task: Task, error: BaseException) -> Outcome:
    """The outcome after an exception: the traceback goes into the task's log, type and message to the caller; retried
    if worth it."""
    if isinstance(error, ResultError):
        logs.emit(task, 'stderr', str(error))
        return 'error', error_body(str(error))
    if isinstance(error, InputError):
        # The caller's mistake: it is told in one line, and is no failure of the handler.
        logs.emit(task, 'stderr', 'invalid input: %s' % error)
        from .takes import takes

        return 'invalid', error_body(str(error), takes(application.function, application.inputs))
    text, trace = logs.failure(error)
    for line in trace.rstrip('\n').split('\n'):
        logs.emit(task, 'stderr', line)
    outcome = 'retry' if application.is_retried(error) else 'error'
    return outcome, error_body('%s\n\n%s' % (text, trace) if application.settings.tracebacks else text)


def run_sync(application: Application, task: Task, send_chunk: Callable[[Task, bytes], None]) -> Outcome:
    """Calls a plain handler in this thread. SystemExit passes through: the process then really exits."""
    mark = logs.current_task.set(task)
    try:
        try:
            task.open()
            positional, keywords = application.arguments(task)
            value = application.call(positional, keywords)
            forks.end_if_foreign()
            if not isinstance(value, types.GeneratorType):
                value = _settled(value)
                body = application.encoded(task, value)
            elif application.streams:
                for item in value:
                    forks.end_if_foreign()
                    send_chunk(task, encode_event(item))
                body = b''
            else:
                body = application.encoded(task, list(value), False)
            forks.end_if_foreign()
            task.close()
        except TaskCancelled:
            raise
        except SystemExit as error:
            forks.end_if_foreign(error)
            task.close()
            raise
        except BaseException as error:
            forks.end_if_foreign(error)
            task.close()
            return cancelled(task) if task.raised else failed(application, task, error)
        # A handler that swallowed its cancellation counts as cancelled all the same.
        return cancelled(task) if task.raised else ('ok', body)
    except TaskCancelled:
        task.end()
        return cancelled(task)
    finally:
        logs.current_task.reset(mark)


def _settled(value: Any) -> Any:
    """Runs an awaitable that a plain function returned (a decorator hid that it is asynchronous)."""
    if not hasattr(value, '__await__'):
        return value
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


async def run_async(application: Application, task: Task, send_chunk: Callable[[Task, bytes], None]) -> Outcome:
    """Awaits an asynchronous handler; cancelling it is cancelling the coroutine."""
    import asyncio

    logs.current_task.set(task)  # this coroutine has a context of its own
    try:
        positional, keywords = application.arguments(task)
        value = application.call(positional, keywords)
        if not hasattr(value, '__aiter__'):
            value = await value if hasattr(value, '__await__') else value
            forks.end_if_foreign()
            body = application.encoded(task, value)
        elif application.streams:
            async for item in value:
                forks.end_if_foreign()
                send_chunk(task, encode_event(item))
            body = b''
        else:
            body = application.encoded(task, [item async for item in value], False)
        forks.end_if_foreign()
        return cancelled(task) if task.cancel_reason else ('ok', body)
    except asyncio.CancelledError as error:
        return cancelled(task) if task.cancel_reason else failed(application, task, error)
    except SystemExit as error:
        forks.end_if_foreign(error)
        raise
    except BaseException as error:
        forks.end_if_foreign(error)
        return cancelled(task) if task.cancel_reason else failed(application, task, error)


def started(settings: Settings, entering: Callable[[str], None]) -> Tuple[Application, int]:
    """Imports the handler and runs ON_START, `module:function`; an asynchronous one is awaited. Returns the
    milliseconds it took."""
    entering('import')
    if settings.stub_type.startswith('asgi'):
        from . import asgi  # noqa: F401  (here, so that forked processes share it)
    application = Application(load(settings.handler, 'HANDLER'), settings)
    entering('on_start')
    if not settings.on_start:
        return application, 0
    began = time.monotonic()
    application.on_start_value = _settled(undecorated(load(settings.on_start, 'ON_START'))())
    return application, int((time.monotonic() - began) * 1000)


def started_or_told(
    start: Callable[[Callable[[str], None]], Tuple[Application, int]],
    tell_phase: Callable[[str], object],
    tell_failure: Callable[[str, str, str], NoReturn],
) -> Tuple[Application, int]:
    """Runs `start` with a function to enter a phase. An exception is reported with its phase, its text and its
    traceback."""
    phases = ['import']

    def entering(phase: str) -> None:
        phases.append(phase)
        tell_phase(phase)

    try:
        made = start(entering)
    except BaseException as error:
        forks.end_if_foreign(error)
        tell_failure(phases[-1], *_told(error))
    forks.end_if_foreign()
    return made


def prepared_or_told(prepare: Callable[[], None], tell_failure: Callable[[str, str, str], NoReturn]) -> int:
    """Runs a server's `prepare`. An exception is reported as a failed `on_start`. Returns the milliseconds it took."""
    began = time.monotonic()
    try:
        prepare()
    except BaseException as error:
        forks.end_if_foreign(error)
        tell_failure('on_start', *_told(error))
    return int((time.monotonic() - began) * 1000)


def watch_signals() -> None:
    """Begins to look at the app's signals (`Signal`), where it has any."""
    module = sys.modules.get('longshore.shared_state')
    if module is not None:
        module.watch()


def _told(error: BaseException) -> Tuple[str, str]:
    """Text and traceback of a failed start."""
    return (str(error), '') if isinstance(error, SettingsError) else logs.failure(error)
