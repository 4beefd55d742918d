"""The decorators `function` and `schedule`: functions in their own containers, run on a call or at set times."""

from __future__ import annotations

import os
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Coroutine,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Type,
    Union,
    overload,
)

from .checks import DefinitionError, text
from .definitions import Image, Placement, Pool, QueueDepthAutoscaler, Secret, TaskPolicy, Volume
from .handlers import Queued, decorate, exceptions, retried, stub_options
from .typed import P, R, T, function_decorator, schedule_decorator

if TYPE_CHECKING:
    from .schema import Schema


class Function(Queued[P, R]):
    """A function decorated with `@function`: `remote` runs it in a container and returns its result."""

    stub_type = 'function'
    decorator = 'function'

    @overload
    def remote(self: Function[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def remote(self: Function[P, Iterator[T]], *args: P.args, **kwargs: P.kwargs) -> List[T]: ...
    @overload
    def remote(self: Function[P, AsyncIterator[T]], *args: P.args, **kwargs: P.kwargs) -> List[T]: ...
    @overload
    def remote(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """
        Runs a call with these inputs in a container, and waits for its result. Inputs and results that are not JSON
        are pickled, by the library cloudpickle where it is installed. The call goes to the latest deployment of this
        name, in the installation of LONGSHORE_URL and LONGSHORE_TOKEN, else of the current context. Raises TaskError
        when the task did not complete, and GatewayError when it could not be put or read. A terminal shows what the
        task prints.

            total = add.remote(1, b=2)
        """
        from .client import GatewayError  # not paid on a cold start
        from .failures import shallow
        from .results import TaskError, wait

        try:
            return wait(self.put(*args, **kwargs), shows_output=True)
        except (GatewayError, TaskError) as failure:
            raise shallow(failure)

    @overload
    async def async_remote(self: Function[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def async_remote(self: Function[P, Iterator[T]], *args: P.args, **kwargs: P.kwargs) -> List[T]: ...
    @overload
    async def async_remote(self: Function[P, AsyncIterator[T]], *args: P.args, **kwargs: P.kwargs) -> List[T]: ...
    @overload
    async def async_remote(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def async_remote(self, *args: Any, **kwargs: Any) -> Any:
        """As `remote`, beside other work of an event loop. Where the coroutine is cancelled, so is the task.

            one, two = await asyncio.gather(add.async_remote(1), add.async_remote(2))
        """
        import asyncio

        from .client import GatewayError  # not paid on a cold start
        from .failures import shallow
        from .results import CallInThread, TaskError

        one = CallInThread(lambda: self.put(*args, **kwargs))
        try:
            return await asyncio.get_running_loop().run_in_executor(None, one.run)
        except asyncio.CancelledError:
            one.give_up()
            raise
        except (GatewayError, TaskError) as failure:
            raise shallow(failure)


class Schedule(Function[P, R]):
    """A function decorated with `@schedule`: it runs at its times, and on a call."""

    stub_type = 'schedule'
    decorator = 'schedule'


@function_decorator
def function(
    function: Optional[Callable[..., Any]] = None,
    *,
    name: Optional[str] = None,
    app: str = '',
    cpu: Union[int, float, str] = 0.125,
    memory: Union[int, float, str] = 128,
    gpu: Union[str, Sequence[str], None] = '',
    gpu_count: int = 0,
    pool: Union[str, Pool, None] = '',
    image: Optional[Image] = None,
    on_start: Union[Callable[..., Any], str, None] = None,
    workers: int = 1,
    worker_mode: Optional[str] = None,
    keep_warm_seconds: float = 0,
    max_pending_tasks: int = 100,
    timeout: Optional[int] = 3600,
    retries: int = 0,
    retry_for: Optional[Sequence[Type[BaseException]]] = None,
    autoscaler: Optional[QueueDepthAutoscaler] = None,
    env: Union[Mapping[str, str], Sequence[str], None] = None,
    secrets: Optional[Sequence[Union[str, Secret]]] = None,
    volumes: Optional[Sequence[Volume]] = None,
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
    headless: bool = False,
) -> Any:
    """
    A function that runs in its own container: `remote` waits for its result, `put` (or a request) returns a task's id
    at once.

        @function(cpu=2, memory='2gi')
        def add(a: int, b: int = 0) -> int:
            return a + b

        add.remote(1, b=2)           # in a container
        list(add.map([1, 2, 3]))     # in several

    Parameters as `endpoint`'s, and:

    keep_warm_seconds: 0 unless it is given: an idle container goes at once.
    timeout: seconds that one try may take; 0 and None: as long as it takes.
    retries: how often a call is tried again (at most 5) when its handler raises, or its process ends.
    retry_for: exception classes; only for these, and their subclasses, it is tried again. Empty: for any.
    dead_letter_days: how long a task that failed for good is listed as dead, at most 90; 0: never. None: 7.
    autoscaler: None: a container for each call that waits or runs, up to the workspace's limit (100).
    headless: accepted for app files of other platforms; a call goes on without its caller in any case.
    """
    given = dict(locals())
    classes = exceptions(retry_for)
    options = stub_options(given, retried(classes))
    return decorate(function, lambda decorated: Function(decorated, options, classes))


@schedule_decorator
def schedule(
    function: Union[Callable[..., Any], str, None] = None,
    *,
    when: str = '',
    timezone: str = 'UTC',
    name: Optional[str] = None,
    app: str = '',
    cpu: Union[int, float, str] = 0.125,
    memory: Union[int, float, str] = 128,
    gpu: Union[str, Sequence[str], None] = '',
    gpu_count: int = 0,
    pool: Union[str, Pool, None] = '',
    image: Optional[Image] = None,
    on_start: Union[Callable[..., Any], str, None] = None,
    workers: int = 1,
    worker_mode: Optional[str] = None,
    keep_warm_seconds: float = 0,
    max_pending_tasks: int = 100,
    timeout: Optional[int] = 3600,
    retries: int = 0,
    retry_for: Optional[Sequence[Type[BaseException]]] = None,
    autoscaler: Optional[QueueDepthAutoscaler] = None,
    env: Union[Mapping[str, str], Sequence[str], None] = None,
    secrets: Optional[Sequence[Union[str, Secret]]] = None,
    volumes: Optional[Sequence[Volume]] = None,
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
    headless: bool = False,
) -> Any:
    """
    A function that runs by itself, without inputs, at every time that `when` names, while its deployment is active. A
    new version replaces the one before.

        @schedule(when='0 3 * * *', timezone='Europe/Berlin')
        def nightly() -> None:
            print('it is three in the morning')

    Parameters as `function`'s, and:

    when: a cron expression of five fields (minute, hour, day of the month, month, day of the week), or of six (seconds
    first). Or a name such as '@hourly' or '@daily'. Checked by `longshore deploy`.
    timezone: the zone of the times in `when`, such as 'Europe/Berlin'. Where clocks go forward, a time that is left out
    runs that much later. Where they go back, a time that comes twice runs the first time. Hourly runs stay hourly.
    """
    given = dict(locals())
    if isinstance(function, str):
        # `@schedule('0 3 * * *')`: the times may be the one positional argument.
        when = function
        function = None
    classes = exceptions(retry_for)
    options = stub_options(given, {**_times(when, timezone), **retried(classes)})
    return decorate(function, lambda decorated: Schedule(decorated, options, classes))


def _times(when: Any, timezone: Any) -> Dict[str, Any]:
    if os.environ.get('CONTAINER_ID'):
        return {}
    if not text('when', when).strip():
        raise DefinitionError("when: must say when it runs, such as '0 3 * * *' or '@hourly'")
    return {'when': when.strip(), 'timezone': text('timezone', timezone).strip() or 'UTC'}
