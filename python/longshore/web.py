"""The decorators `asgi` and `realtime`: web applications and WebSockets, whose bytes reach them as the caller sent them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Type, Union

from .checks import DefinitionError
from .definitions import Image, Placement, Pool, QueueDepthAutoscaler, Secret, TaskPolicy, Volume
from .handlers import SERVING, Handler, decorate, stub_options
from .typed import P, R, asgi_decorator, realtime_decorator

if TYPE_CHECKING:
    from .schema import Schema


class Asgi(Handler[P, R]):
    """An ASGI application, or a function that makes one, decorated with `@asgi`."""

    stub_type = 'asgi/deployment'
    decorator = 'asgi'

    def __init__(self, function: Callable[P, R], options: Dict[str, Any]) -> None:
        if hasattr(function, '__name__') or not callable(function):
            super().__init__(function, options)
            return
        # An application object: its attributes are its own, and its name and module are not those of the app file.
        if not options['name'] and not os.environ.get('CONTAINER_ID'):
            raise DefinitionError("name: an application object has no name of its own: %s(name='…')" % self.decorator)
        self.__longshore_function__ = function
        self.options = options
        self.schemas = (None, None)
        self.__module__ = _calling_module()


class Realtime(Asgi[P, R]):
    """A function decorated with `@realtime`: it is called for every message of a WebSocket."""

    decorator = 'realtime'


def _calling_module() -> str:
    """The module of the innermost caller outside this package."""
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get('__name__')).partition('.')[0] == __package__:
        frame = frame.f_back
    return str(frame.f_globals.get('__name__')) if frame is not None else ''


def _checked(given: Dict[str, Any]) -> Dict[str, Any]:
    if given['worker_mode'] == 'thread':
        raise DefinitionError("worker_mode: must be 'fork' or 'spawn' here: concurrent_requests are served side by side in one process")
    for name in ('inputs', 'outputs'):
        if given[name] is not None:
            raise DefinitionError('%s: an application reads its requests itself; only handlers of calls have schemas' % name)
    return stub_options(dict(given, retries=0), {}, SERVING)


@asgi_decorator
def asgi(
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
    autoscaler: Optional[QueueDepthAutoscaler] = None,
    env: Union[Mapping[str, str], Sequence[str], None] = None,
    secrets: Optional[Sequence[Union[str, Secret]]] = None,
    volumes: Optional[Sequence[Volume]] = None,
    authorized: bool = True,
    callback_url: Optional[str] = '',
    tracebacks: bool = False,
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
    An ASGI application (FastAPI, Starlette, Django …): requests and WebSockets of any path reach it as they were sent.
    Decorates a function that returns the application, called once in each process, with `context` if it has such a
    parameter; or an application: `handler = asgi(name='site')(app)`.

        @asgi(image=Image(python_packages=['fastapi==0.165.0']), concurrent_requests=50)
        def site() -> Any:
            from fastapi import FastAPI

            return FastAPI()

    Parameters as `endpoint`'s, and:

    concurrent_requests: requests and WebSockets that a process serves side by side, on one event loop.
    worker_mode: `'fork'` or `'spawn'`.
    timeout: seconds that a request may take.
    """
    options = _checked(dict(locals()))
    return decorate(function, lambda decorated: Asgi(decorated, options))


@realtime_decorator
def realtime(
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
    autoscaler: Optional[QueueDepthAutoscaler] = None,
    env: Union[Mapping[str, str], Sequence[str], None] = None,
    secrets: Optional[Sequence[Union[str, Secret]]] = None,
    volumes: Optional[Sequence[Volume]] = None,
    authorized: bool = True,
    callback_url: Optional[str] = '',
    tracebacks: bool = False,
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
    A WebSocket: the function is called with each message (text as `str`, else `bytes`), and what it returns is sent.
    Text and bytes are sent as they are, other values as JSON, None not at all; a generator's items one by one. Plain
    functions run in a thread. An exception closes the WebSocket with 1011.

        @realtime(concurrent_requests=20)
        def echo(message: str) -> str:
            return message

    Parameters as `endpoint`'s, and:

    concurrent_requests: WebSockets that a process serves side by side.
    worker_mode: `'fork'` or `'spawn'`.
    timeout: seconds that a WebSocket may stay open.
    """
    options = _checked(dict(locals()))
    return decorate(function, lambda decorated: Realtime(decorated, options))
