"""The decorators `endpoint` and `task_queue` of an app file (`function` and `schedule` are in `functions`). The
parameters are read by `longshore deploy` through `describe`.

Bad values raise DefinitionError and name the parameter. Inside a container (CONTAINER_ID is set) they skip checks that
the scheduler has made, and keep only values that the runner and `put` need.
"""

from __future__ import annotations

import functools
import json
import os
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Coroutine,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    Union,
    overload,
)

from .checks import DefinitionError, cuda_version, flag, flow_key, gpu_number, gpus_and_count, head_start, instance, number, one_of, quantity, read_all, sequence, start_function, text, texts, variables, whole
from .definitions import Flow, Image, Placement, Pool, QueueDepthAutoscaler, Secret, TaskPolicy, Volume
from .quantities import cpu_millicores, memory_mib
from .typed import P, R, T, endpoint_decorator, task_queue_decorator

if TYPE_CHECKING:
    from typing_extensions import Literal

    from .handles import Task
    from .schema import Schema


#: This process only reads an app file, as `longshore deploy` does: calls at its top level prepare nothing.
is_reading = False


#: Calls that some kinds have, and what is said of the others.
_CALLS = ('invoke', 'put', 'spawn', 'map', 'starmap', 'remote', 'async_remote')
_OF_FUNCTIONS = 'remote(…) waits for its result, put(…) gives a task at once, map(…) makes many calls'
_CALLED_BY = {
    'endpoint': 'invoke(…) calls it and waits for its answer; @function has remote and map',
    'task_queue': 'put(…) gives a task at once, whose result(wait=True) waits; map(…) makes many calls',
    'function': _OF_FUNCTIONS,
    'schedule': _OF_FUNCTIONS,
    'asgi': 'HTTP and WebSocket clients call it, at the address that `longshore deploy` prints',
    'realtime': 'WebSocket clients call it, at the address that `longshore deploy` prints',
}


class Definition:
    """Something of an app file that is deployed."""

    stub_type = ''
    #: Its name in an app file.
    decorator = ''
    options: Dict[str, Any]

    @property
    def deployment_name(self) -> str:
        """The name of the deployment, unless `longshore deploy --name` gives another; '': the variable's."""
        return str(self.options.get('name') or '')

    def described(self, handler: str, on_start: str) -> Dict[str, Any]:
        """The fields of a stub request; `handler` and `on_start` are `module:function`."""
        described = dict(self.options)
        for name in ('onStartFunction', 'onDeployFunction', 'schemas'):
            described.pop(name, None)
        name = self.deployment_name or handler.rpartition(':')[2]
        described.update(stubType=self.stub_type, name=name, handler=handler, onStart=on_start, appName=described['appName'] or name)
        return described


class Handler(Definition, Generic[P, R]):
    """A decorated function: callable as before, with the decorator's parameters."""

    __name__: str

    #: A stub of the file as it was, which calls go to; '': none was made.
    stub_id = ''
    #: Calls go to the file as it is, not to the deployment of the name.
    of_file = False

    def __init__(self, function: Callable[P, R], options: Dict[str, Any]) -> None:
        if not callable(function):
            raise DefinitionError('%s: decorates a function, not %r' % (self.decorator, function))
        self.__longshore_function__ = function
        self.options = options
        #: Schemas of the inputs and of the outputs, or None.
        self.schemas = options.get('schemas') or (None, None)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__longshore_function__(*args, **kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function here, in this process.

            total = add.local(1, b=2)
        """
        return self.__longshore_function__(*args, **kwargs)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            text = '%r object has no attribute %r' % (type(self).__name__, name)
            if name in _CALLS and self.decorator in _CALLED_BY:
                text = '@%s has no %s(…): %s' % (self.decorator, name, _CALLED_BY[self.decorator])
            raise AttributeError(text)

    @property
    def deployment_name(self) -> str:
        """The name of the deployment, unless `longshore deploy --name` gives another."""
        name = self.options.get('name') or getattr(self.__longshore_function__, '__name__', '')
        return str(name)


class Endpoint(Handler[P, R]):
    """A function decorated with `@endpoint`."""

    stub_type = 'endpoint'
    decorator = 'endpoint'

    @overload
    def invoke(self: Endpoint[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def invoke(self: Endpoint[P, Iterator[T]], *args: P.args, **kwargs: P.kwargs) -> List[T]: ...
    @overload
    def invoke(self: Endpoint[P, AsyncIterator[T]], *args: P.args, **kwargs: P.kwargs) -> List[T]: ...
    @overload
    def invoke(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        """
        Calls the latest deployment of this name with these inputs, which must be JSON, waits for its answer, and
        returns it. Without a deployment, the file as it is. Finds the installation as `put` does; in another handler's
        container, its own. Raises GatewayError, also when the handler raised.

            print(greet.invoke(name='Ada'))
        """
        from .client import GatewayError, invoke  # not paid on a cold start
        from .failures import shallow
        from .undeployed import called

        try:
            return called(self, lambda stub_id: invoke(self.deployment_name, list(args), kwargs, stub_id))
        except GatewayError as failure:
            raise shallow(failure)


class Queued(Handler[P, R]):
    """A handler whose calls are tasks: nobody has to wait for them."""

    def __init__(self, function: Callable[P, R], options: Dict[str, Any], retry_for: Tuple[Type[BaseException], ...] = ()) -> None:
        super().__init__(function, options)
        #: Exceptions after which the runner retries a task; empty: all of them.
        self.retry_for = retry_for
        #: Headers of its calls, and the handler that prepares its file.
        self.headers: Dict[str, str] = {}
        self.whole: Queued[P, R] = self

    def put(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """
        Queues a call with these inputs and returns the task at once: its id, a text with methods. The call goes to the
        latest deployment of this name, in the installation of LONGSHORE_URL and LONGSHORE_TOKEN, else of the current
        context. Without a deployment, it goes to the file as it is, which the command line prepares. A handler's
        container needs no settings: its own installation is used. Inputs of a task queue must be JSON. Raises
        GatewayError.

            task = measure.put(path='app.py')
            print(task, task.status())
        """
        from .client import GatewayError, put  # not paid on a cold start
        from .failures import shallow
        from .undeployed import called

        try:
            return called(self.whole, lambda stub_id: put(self.stub_type, self.deployment_name, list(args), kwargs, stub_id, self.headers))
        except GatewayError as failure:
            raise shallow(failure)

    def spawn(self, *args: P.args, **kwargs: P.kwargs) -> Task:
        """`put` by the name that other platforms have for it.

            task = measure.spawn(path='app.py')
            print(task.result(wait=True))
        """
        return self.put(*args, **kwargs)

    @overload
    def map(self, inputs: Iterable[Any], *, return_exceptions: Literal[True], ordered: bool = True) -> Iterator[Any]: ...
    @overload
    def map(
        self: Queued[P, Coroutine[Any, Any, T]], inputs: Iterable[Any], *, return_exceptions: bool = False, ordered: bool = True
    ) -> Iterator[T]: ...
    @overload
    def map(
        self: Queued[P, Iterator[T]], inputs: Iterable[Any], *, return_exceptions: bool = False, ordered: bool = True
    ) -> Iterator[List[T]]: ...
    @overload
    def map(
        self: Queued[P, AsyncIterator[T]], inputs: Iterable[Any], *, return_exceptions: bool = False, ordered: bool = True
    ) -> Iterator[List[T]]: ...
    @overload
    def map(self, inputs: Iterable[Any], *, return_exceptions: bool = False, ordered: bool = True) -> Iterator[R]: ...
    def map(self, inputs: Iterable[Any], *, return_exceptions: bool = False, ordered: bool = True) -> Iterator[Any]:
        """
        Runs a call for each of the inputs, put in one request as far as there is room. A tuple or a list has the
        positional inputs of a call, anything else is its one input. Raises GatewayError when calls could not be put or
        read. Calls whose results nobody takes are cancelled: after a failure, after `break`, at Ctrl-C, and at the end
        of the program; `put` is for those that go on. On a terminal, a line shows how many are done.

            for total in add.map([(1, 2), (3, 4)]):
                print(total)

        return_exceptions: a task that did not complete gives its TaskError as its result. Otherwise that is raised, and
        the other calls are cancelled.
        ordered: results come in the order of the inputs; False: as they come.
        """
        from .mapping import positional  # not paid on a cold start

        return self._mapped((positional(one) for one in inputs), return_exceptions, ordered)

    @overload
    def starmap(self, inputs: Iterable[Iterable[Any]], *, return_exceptions: Literal[True], ordered: bool = True) -> Iterator[Any]: ...
    @overload
    def starmap(
        self: Queued[P, Coroutine[Any, Any, T]], inputs: Iterable[Iterable[Any]], *, return_exceptions: bool = False, ordered: bool = True
    ) -> Iterator[T]: ...
    @overload
    def starmap(
        self: Queued[P, Iterator[T]], inputs: Iterable[Iterable[Any]], *, return_exceptions: bool = False, ordered: bool = True
    ) -> Iterator[List[T]]: ...
    @overload
    def starmap(
        self: Queued[P, AsyncIterator[T]], inputs: Iterable[Iterable[Any]], *, return_exceptions: bool = False, ordered: bool = True
    ) -> Iterator[List[T]]: ...
    @overload
    def starmap(self, inputs: Iterable[Iterable[Any]], *, return_exceptions: bool = False, ordered: bool = True) -> Iterator[R]: ...
    def starmap(self, inputs: Iterable[Iterable[Any]], *, return_exceptions: bool = False, ordered: bool = True) -> Iterator[Any]:
        """
        As `map`, where each input has the positional inputs of a call.

            print(list(add.starmap(zip([1, 2], [3, 4]))))
        """
        from .mapping import unpacked  # not paid on a cold start

        return self._mapped((unpacked(one) for one in inputs), return_exceptions, ordered)

    def _mapped(self, calls: Iterable[List[Any]], return_exceptions: bool, ordered: bool) -> Iterator[Any]:
        from .client import put_many  # not paid on a cold start
        from .mapping import Map
        from .undeployed import called

        def put(calls: Sequence[Sequence[Any]]) -> List[Optional[str]]:
            return called(self.whole, lambda stub_id: put_many(self.stub_type, self.deployment_name, calls, stub_id, self.headers))

        return Map(put, self.deployment_name, ordered, return_exceptions).results(calls)


class TaskQueue(Queued[P, R]):
    """A function decorated with `@task_queue`: `put` runs it later, in a container."""

    stub_type = 'taskqueue'
    decorator = 'task_queue'

    def with_options(self, *, key: Optional[str] = None, priority: Optional[int] = None) -> TaskQueue[P, R]:
        """
        The queue whose `put`, `spawn` and `map` give each call a key and a priority of its flow control (`Flow`).

            measure.with_options(key='c-17', priority=600).put(path='app.py')

        key: 1 to 128 characters; None: the one that the input has.
        priority: head start in its queue, in seconds, from -3600 to 3600; None: that of the queue.
        """
        import copy
        from urllib.parse import quote

        changed = copy.copy(self)
        changed.headers = dict(self.headers)
        if key is not None:
            changed.headers['X-Longshore-Key'] = quote(flow_key('key', key), safe=' /:@')
        if priority is not None:
            changed.headers['X-Longshore-Priority'] = str(head_start('priority', priority))
        return changed


@endpoint_decorator
def endpoint(
    function: Optional[Callable[..., Any]] = None,
    *,
    name: Optional[str] = None,
    app: str = '',
    cpu: Union[int, float, str] = 1.0,
    memory: Union[int, float, str] = 128,
    gpu: Union[str, Sequence[str], None] = '',
    gpu_count: int = 0,
    pool: Union[str, Pool, None] = '',
    image: Optional[Image] = None,
    on_start: Union[Callable[..., Any], str, None] = None,
    workers: int = 1,
    worker_mode: Optional[str] = None,
    concurrent_requests: int = 1,
    keep_warm_seconds: float = 180,
    max_pending_tasks: int = 100,
    timeout: Optional[int] = 180,
    flow: Optional[Flow] = None,
    autoscaler: Optional[QueueDepthAutoscaler] = None,
    env: Union[Mapping[str, str], Sequence[str], None] = None,
    secrets: Optional[Sequence[Union[str, Secret]]] = None,
    volumes: Optional[Sequence[Volume]] = None,
    authorized: bool = True,
    callback_url: Optional[str] = '',
    tracebacks: bool = False,
    keep_inputs: bool = True,
    stop_after_disconnect: Union[bool, int] = False,
    start_timeout: Optional[int] = None,
    min_cuda: Optional[str] = None,
    gpu_link: Optional[str] = None,
    placement: Optional[Placement] = None,
    priority: Optional[str] = None,
    interruptible: Union[bool, str] = False,
    block_network: bool = False,
    allow_list: Optional[Sequence[str]] = None,
    inputs: Union[Type[Schema], Mapping[str, Any], None] = None,
    outputs: Union[Type[Schema], Mapping[str, Any], None] = None,
    task_policy: Optional[TaskPolicy] = None,
    on_deploy: Optional[Callable[..., Any]] = None,
    checkpoint_enabled: bool = False,
    disks: Optional[Sequence[Any]] = None,
) -> Any:
    """
    An HTTP endpoint: a request is a JSON object of keyword inputs, the answer is what the function returns.

        @endpoint(cpu=1, memory='512mi', keep_warm_seconds=60)
        def greet(name: str = 'world') -> Dict[str, str]:
            return {'greeting': f'Hello, {name}!'}

        greet('Ada')                 # here
        greet.invoke(name='Ada')     # the deployed one

    name: of the deployment, at most 255 characters; None: the function's.
    app: groups deployments; '': the name.
    cpu: cores, `2` or `0.5`, or thousandths of one as text, `'500m'`.
    memory: MiB, or text with a unit, `'512mi'` or `'2gi'`. A process that needs more is killed.
    gpu: a model (`'H100'`, `'any'`), a model with a number (`'A100:2'`), or a list in the order of preference. A model
        may have conditions: `'any:>=40GiB'`, `'A100|any:cc>=8.9:driver>=550'`.
    gpu_count: how many GPUs, all of one machine; 1 when only `gpu` is given, any model when only this is.
    pool: run on machines of this pool alone; a name, or a `Pool`.
    image: an `Image`; None: the base image, which has Python and no packages.
    on_start: a function (or `'module:function'`), run once for a container; its value is `context.on_start_value`.
    workers: processes in a container, forked after `on_start`; at most 128.
    worker_mode: the kind of workers where a fork is not safe (a GPU, or threads that run after `on_start`): `'spawn'`,
    new processes that each run `on_start`, or `'thread'`, threads of one process. Without it such a container serves
    with one worker.
    concurrent_requests: calls that each worker serves side by side; at most 1000.
    keep_warm_seconds: how long an idle container is spared; negative: it is never removed for being idle.
    max_pending_tasks: calls that may wait or run; the next one is answered 429.
    timeout: seconds that a call may take, 600 at most; more, 0 and None mean 600. After them it ends as TIMEOUT (504).
    flow: a `Flow` with a `rate`: how many calls of a key are taken in a time; more are answered 429.
    autoscaler: a `QueueDepthAutoscaler`; None: up to 10 containers, as many as the calls need that wait and run.
    env: variables, `{'NAME': 'value'}` or `['NAME=value']`.
    secrets: names of secrets, or `Secret`s, each a variable in the container; `longshore secret set NAME` makes one.
    volumes: a list of `Volume`s and `CloudBucket`s.
    authorized: False: callers need no token, at the public address that `longshore deploy` prints.
    callback_url: an http(s) address that is told how each call ended.
    tracebacks: callers see the handler's traceback, not only its last line.
    keep_inputs: False: the input of a task goes with its end, and the task cannot run again (`longshore task rerun`).
    stop_after_disconnect: a container stops when its machine has not heard from the scheduler for five minutes (True)
    or this number of seconds (60 to 86400). Its replacement starts a minute later, not before: for work that must not
    run twice. Otherwise containers run on.
    start_timeout: seconds that a container may take to be ready, `on_start` included and the pull of its image not; None:
    the installation's (900). Then its start has failed (`start_timeout`).
    min_cuda: the least CUDA version that the GPU driver of its machines must run, such as `'12.8'`. Its packages or its image
    say what they need. Other machines are not taken. None: any.
    gpu_link: `'island'`: its GPUs are linked by NVLink, each with each; for `gpu_count` of two or more. None: they are where
    the machine has them free, and elsewhere not.
    placement: a `Placement`: labels of machines that it requires, forbids or prefers, and over which it is spread.
    priority: `'high'`, `'normal'` or `'low'`: whose containers get a machine first inside the workspace; None: normal.
    interruptible: its containers may end for those of other workspaces that hold less than theirs. Calls are never ended; tasks
    run again, and no retry is used. `'after_task'`: tasks run to their end before.
    block_network: containers reach nothing but the platform itself (`put`, `invoke`).
    allow_list: containers reach these ranges of addresses alone, `['10.0.0.0/8']`; at most ten, and not together with
    `block_network`.
    inputs: a schema (`longshore.schema`) of the handler's one input, which is checked.
    outputs: a schema of the result, which is checked.
    task_policy: a `TaskPolicy`: the timeout by another name, and how long a call may wait.
    on_deploy: a `@function` that `longshore deploy` runs, and waits for, before the new version is deployed.
    checkpoint_enabled: accepted for app files of other platforms; nothing follows from it.
    disks: refused.

    Raises DefinitionError, which names the parameter; a value beyond a limit is refused by `longshore deploy`.
    """
    # locals() are the parameters by name: only the list above has them all.
    options = stub_options(dict(locals(), retries=0), {}, SERVING)
    return decorate(function, lambda decorated: Endpoint(decorated, _with_flow(options, flow, decorated)))


@task_queue_decorator
def task_queue(
    function: Optional[Callable[..., Any]] = None,
    *,
    name: Optional[str] = None,
    app: str = '',
    cpu: Union[int, float, str] = 1.0,
    memory: Union[int, float, str] = 128,
    gpu: Union[str, Sequence[str], None] = '',
    gpu_count: int = 0,
    pool: Union[str, Pool, None] = '',
    image: Optional[Image] = None,
    on_start: Union[Callable[..., Any], str, None] = None,
    workers: int = 1,
    worker_mode: Optional[str] = None,
    concurrent_requests: int = 1,
    keep_warm_seconds: float = 10,
    max_pending_tasks: int = 100,
    timeout: Optional[int] = 3600,
    retries: int = 3,
    retry_for: Optional[Sequence[Type[BaseException]]] = None,
    flow: Optional[Flow] = None,
    autoscaler: Optional[QueueDepthAutoscaler] = None,
    env: Union[Mapping[str, str], Sequence[str], None] = None,
    secrets: Optional[Sequence[Union[str, Secret]]] = None,
    volumes: Optional[Sequence[Volume]] = None,
    authorized: bool = True,
    callback_url: Optional[str] = '',
    tracebacks: bool = False,
    keep_inputs: bool = True,
    dead_letter_days: Optional[int] = None,
    stop_after_disconnect: Union[bool, int] = False,
    start_timeout: Optional[int] = None,
    min_cuda: Optional[str] = None,
    gpu_link: Optional[str] = None,
    placement: Optional[Placement] = None,
    priority: Optional[str] = None,
    interruptible: Union[bool, str] = False,
    block_network: bool = False,
    allow_list: Optional[Sequence[str]] = None,
    inputs: Union[Type[Schema], Mapping[str, Any], None] = None,
    outputs: Union[Type[Schema], Mapping[str, Any], None] = None,
    task_policy: Optional[TaskPolicy] = None,
    on_deploy: Optional[Callable[..., Any]] = None,
    checkpoint_enabled: bool = False,
    disks: Optional[Sequence[Any]] = None,
) -> Any:
    """
    A queue of tasks: `put` (or a request) returns a task's id at once, and the function runs when there is room.

        @task_queue(retries=2, retry_for=[OSError])
        def measure(path: str) -> int:
            return os.stat(path).st_size

        measure.put(path='app.py')

    Parameters as `endpoint`'s, and:

    keep_warm_seconds: 10 unless it is given.
    timeout: seconds that one try may take; 0 and None: as long as it takes.
    autoscaler: None: one container at most.
    retries: how often a task is tried again (at most 5) when its handler raises, or its process ends.
    retry_for: exception classes; only for these, and their subclasses, it is tried again. Empty: for any.
    dead_letter_days: how long a task that failed for good is listed as dead, at most 90; 0: never. None: 7.
    flow: a `Flow`: how many tasks of a key, or of a limit, run at a time, and how often they start.
    """
    given = dict(locals())
    classes = exceptions(retry_for)
    options = stub_options(given, retried(classes), QueueDepthAutoscaler())
    return decorate(function, lambda decorated: TaskQueue(decorated, _with_flow(options, flow, decorated), classes))


def _with_flow(options: Dict[str, Any], flow: Any, function: Callable[..., Any]) -> Dict[str, Any]:
    """The options with the flow control of the calls, whose key is a parameter of the function."""
    if flow is None or 'extra' not in options:
        return options
    described = instance('flow', flow, Flow).described_for(function)
    return dict(options, extra=json.dumps(dict(json.loads(options['extra']), flow=described), separators=(',', ':')))


def decorate(function: Optional[Callable[..., Any]], make: Callable[[Callable[..., Any]], Handler[..., Any]]) -> Any:
    return make if function is None else make(function)


#: The autoscaler of an endpoint or an application that has none: up to 10 containers, or what the workspace allows.
SERVING = 'serving'
_MOST_SERVING = 10


def stub_options(
    given: Dict[str, Any], extra: Dict[str, Any], default: Union[QueueDepthAutoscaler, str, None] = None
) -> Dict[str, Any]:
    """The fields of a stub request for a decorator's parameters. default: the autoscaler if none is given; None: the
    kind's own."""
    if os.environ.get('CONTAINER_ID'):
        return {'name': given['name'] or '', 'schemas': _schemas(given)}
    return checked_options(given, extra, default)


def checked_options(given: Dict[str, Any], extra: Dict[str, Any], default: Union[QueueDepthAutoscaler, str, None]) -> Dict[str, Any]:
    """As `stub_options`, in a container, too."""
    pool = _pool(given['pool'])
    gpus, gpu_count = gpus_and_count(given['gpu'], given['gpu_count'])
    gpus = gpus or pool.gpu
    options = read_all({
        'name': lambda: text('name', given['name'] or ''),
        'appName': lambda: text('app', given['app'] or ''),
        'cpu': lambda: quantity(cpu_millicores, given['cpu']),
        'memory': lambda: quantity(memory_mib, given['memory']),
        'gpu': lambda: gpus,
        'gpuCount': lambda: gpu_number(gpu_count, gpus),
        'image': lambda: instance('image', given['image'] or Image(), Image).described(),
        'onStartFunction': lambda: start_function(given['on_start']),
        'workers': lambda: whole('workers', given['workers'], 1),
        'concurrentRequests': lambda: whole('concurrent_requests', given.get('concurrent_requests', 1), 1),
        'keepWarmSeconds': lambda: number('keep_warm_seconds', given['keep_warm_seconds']),
        'maxPendingTasks': lambda: whole('max_pending_tasks', given['max_pending_tasks'], 1),
        'timeout': lambda: number('timeout', 0 if given['timeout'] is None else given['timeout']),
        'retries': lambda: whole('retries', given['retries'], 0),
        'autoscaler': lambda: _autoscaler(given, default),
        'env': lambda: variables(given['env']),
        'secrets': lambda: [{'name': secret} for secret in _secrets(given['secrets'])],
        'volumes': lambda: _volumes(given['volumes']),
        'authorized': lambda: flag('authorized', given.get('authorized', True)),
        'callbackUrl': lambda: text('callback_url', given['callback_url'] or ''),
    })
    if flag('block_network', given.get('block_network', False)):
        options['blockNetwork'] = True
    if given.get('allow_list'):
        options['allowList'] = texts('allow_list', given['allow_list'])
    if pool.name:
        options['pool'] = {'name': pool.name}
    if given.get('disks'):
        raise DefinitionError('disks: disks are not served; Volume(…) keeps files')
    if flag('checkpoint_enabled', given.get('checkpoint_enabled', False)):
        options['checkpointEnabled'] = True
    if given.get('task_policy') is not None:
        options['taskPolicy'] = instance('task_policy', given['task_policy'], TaskPolicy).described()
    options['schemas'] = _schemas(given)
    for field, schema in zip(('inputs', 'outputs'), options['schemas']):
        if schema is not None:
            options[field] = schema.to_dict()
    options['onDeployFunction'] = _hook(given.get('on_deploy'))
    options['pythonVersion'] = options['image']['pythonVersion']
    options['imageId'] = options['image']['baseImage']
    if given['worker_mode'] is not None:
        extra = dict(extra, workerMode=one_of('worker_mode', given['worker_mode'], ('fork', 'thread', 'spawn')))
    if flag('tracebacks', given['tracebacks']):
        extra = dict(extra, tracebacks=True)
    if not flag('keep_inputs', given.get('keep_inputs', True)):
        extra = dict(extra, keepInputs=False)
    if given.get('dead_letter_days') is not None:
        extra = dict(extra, deadLetterDays=whole('dead_letter_days', given['dead_letter_days'], 0))
    silence = given['stop_after_disconnect']
    if silence is not None and silence is not False:
        extra = dict(extra, stopAfterDisconnect=True if silence is True else whole('stop_after_disconnect', silence, 60))
    if given['start_timeout'] is not None:
        extra = dict(extra, startTimeout=whole('start_timeout', given['start_timeout'], 1))
    if given['min_cuda'] is not None:
        extra = dict(extra, minCuda=cuda_version('min_cuda', given['min_cuda']))
    if given['gpu_link'] is not None:
        extra = dict(extra, gpuLink=one_of('gpu_link', given['gpu_link'], ('island',)))
    if given['placement'] is not None:
        extra = dict(extra, placement=instance('placement', given['placement'], Placement).described())
    if given['priority'] is not None:
        extra = dict(extra, priority=one_of('priority', given['priority'], ('high', 'normal', 'low')))
    interruptible = given.get('interruptible', False)
    if isinstance(interruptible, str):
        extra = dict(extra, interruptible=one_of('interruptible', interruptible, ('after_task',)))
    elif flag('interruptible', interruptible):
        extra = dict(extra, interruptible=True)
    options['extra'] = json.dumps(extra, separators=(',', ':'))
    return options


def _pool(value: Any) -> Pool:
    if isinstance(value, Pool):
        return value
    return Pool(text('pool', value or ''))


def _secrets(value: Any) -> List[str]:
    given = sequence('secrets', value or ())
    return texts('secrets', [one.name if isinstance(one, Secret) else one for one in given])


def _schemas(given: Dict[str, Any]) -> Tuple[Any, Any]:
    return _schema('inputs', given.get('inputs')), _schema('outputs', given.get('outputs'))


def _schema(name: str, value: Any) -> Any:
    """A schema, made of a mapping of fields where one was given; None: none."""
    if value is None:
        return None
    from .schema import Schema, ValidationError  # not paid by an app without schemas

    if isinstance(value, type) and issubclass(value, Schema):
        return value
    if not isinstance(value, Mapping):
        raise DefinitionError('%s: must be a class made from schema.Schema, not %r' % (name, value))
    try:
        return Schema.object(value)
    except ValidationError as problem:
        raise DefinitionError('%s: %s' % (name, problem)) from None


def _hook(value: Any) -> Any:
    if value is not None and getattr(value, 'decorator', '') != 'function':
        raise DefinitionError('on_deploy: must be decorated with @function, not %r' % (value,))
    return value


def _autoscaler(given: Dict[str, Any], default: Union[QueueDepthAutoscaler, str, None]) -> Optional[Dict[str, Any]]:
    chosen = given['autoscaler'] or default
    if chosen == SERVING:
        # A container is not wanted for a call that another one serves side by side.
        at_once = whole('workers', given['workers'], 1) * whole('concurrent_requests', given.get('concurrent_requests', 1), 1)
        chosen = QueueDepthAutoscaler(max_containers=_MOST_SERVING, tasks_per_container=at_once)
    return None if chosen is None else instance('autoscaler', chosen, QueueDepthAutoscaler).described()


def _volumes(value: Any) -> List[Dict[str, Any]]:
    every = [instance('volumes', volume, Volume) for volume in sequence('volumes', value or ())]
    described: List[Dict[str, Any]] = [volume.described() for volume in every]
    paths = [volume['mountPath'].rstrip('/') for volume in described]
    for path in paths:
        if paths.count(path) > 1:
            raise DefinitionError('volumes: two of them are mounted at %s' % path)
    return described


def retried(classes: Tuple[Type[BaseException], ...]) -> Dict[str, Any]:
    """What a stub says of `retry_for`."""
    return {'retryFor': [one.__name__ for one in classes]} if classes else {}


def exceptions(value: Any) -> Tuple[Type[BaseException], ...]:
    """The classes of `retry_for`. Raises DefinitionError."""
    if value is None:
        return ()
    if isinstance(value, type):
        value = [value]
    classes = sequence('retry_for', value)
    for one in classes:
        if not isinstance(one, type) or not issubclass(one, BaseException):
            raise DefinitionError('retry_for: must be exception classes, not %r' % (one,))
    return tuple(classes)
