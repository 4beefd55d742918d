"""The types of decorators, for type checkers and editors: a decorated function keeps its parameters and its result.

A decorator is written as a plain function. Its keyword parameters are taken from there (`O`), so they are listed once.
When `inputs` is given, callers send the fields of the schema instead of the function's own parameter, and calls are
not checked. At run time all of this is nothing: the decorators stay the functions that they are.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from typing import Mapping, Type, Union, overload

    from typing_extensions import Concatenate, ParamSpec, Protocol

    from .functions import Function, Schedule
    from .handlers import Endpoint, TaskQueue
    from .schema import Schema
    from .web import Asgi, Realtime

    #: The parameters of a decorated function.
    P = ParamSpec('P')
    #: The parameters of a decorator.
    O = ParamSpec('O')  # noqa: E741
    #: The result of a decorated function.
    R = TypeVar('R', covariant=True)
    T = TypeVar('T')
    Inputs = Union[Type[Schema], Mapping[str, Any]]
    Plain = Callable[Concatenate[Any, O], Any]

    class EndpointDecorator(Protocol[O]):
        @overload
        def __call__(self, function: Callable[P, T], /) -> Endpoint[P, T]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, *, inputs: Inputs, **options: Any) -> Callable[[Callable[..., T]], Endpoint[..., T]]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, *args: O.args, **kwargs: O.kwargs) -> Callable[[Callable[P, T]], Endpoint[P, T]]: ...

    class TaskQueueDecorator(Protocol[O]):
        @overload
        def __call__(self, function: Callable[P, T], /) -> TaskQueue[P, T]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, *, inputs: Inputs, **options: Any) -> Callable[[Callable[..., T]], TaskQueue[..., T]]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, *args: O.args, **kwargs: O.kwargs) -> Callable[[Callable[P, T]], TaskQueue[P, T]]: ...

    class FunctionDecorator(Protocol[O]):
        @overload
        def __call__(self, function: Callable[P, T], /) -> Function[P, T]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, *, inputs: Inputs, **options: Any) -> Callable[[Callable[..., T]], Function[..., T]]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, *args: O.args, **kwargs: O.kwargs) -> Callable[[Callable[P, T]], Function[P, T]]: ...

    class ScheduleDecorator(Protocol[O]):
        @overload
        def __call__(self, when: str, /, *args: O.args, **kwargs: O.kwargs) -> Callable[[Callable[P, T]], Schedule[P, T]]: ...
        @overload
        def __call__(self, function: Callable[P, T], /) -> Schedule[P, T]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, *args: O.args, **kwargs: O.kwargs) -> Callable[[Callable[P, T]], Schedule[P, T]]: ...

    class AsgiDecorator(Protocol[O]):
        @overload
        def __call__(self, function: Callable[P, T], /) -> Asgi[P, T]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, *args: O.args, **kwargs: O.kwargs) -> Callable[[Callable[P, T]], Asgi[P, T]]: ...

    class RealtimeDecorator(Protocol[O]):
        @overload
        def __call__(self, function: Callable[P, T], /) -> Realtime[P, T]: ...  # type: ignore[overload-overlap]
        @overload
        def __call__(self, *args: O.args, **kwargs: O.kwargs) -> Callable[[Callable[P, T]], Realtime[P, T]]: ...

    def endpoint_decorator(plain: Plain[O]) -> EndpointDecorator[O]: ...
    def task_queue_decorator(plain: Plain[O]) -> TaskQueueDecorator[O]: ...
    def function_decorator(plain: Plain[O]) -> FunctionDecorator[O]: ...
    def schedule_decorator(plain: Plain[O]) -> ScheduleDecorator[O]: ...
    def asgi_decorator(plain: Plain[O]) -> AsgiDecorator[O]: ...
    def realtime_decorator(plain: Plain[O]) -> RealtimeDecorator[O]: ...

else:
    # Python 3.8 and 3.9 have no ParamSpec; a class of theirs takes any variable.
    P = getattr(typing, 'ParamSpec', TypeVar)('P')
    R = TypeVar('R', covariant=True)
    T = TypeVar('T')

    def _as_it_is(plain):
        return plain

    endpoint_decorator = task_queue_decorator = function_decorator = _as_it_is
    schedule_decorator = asgi_decorator = realtime_decorator = _as_it_is
