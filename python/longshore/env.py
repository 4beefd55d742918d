"""Where this code runs: on somebody's machine, or in a container."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable

__all__ = ['is_local', 'is_remote', 'local_entrypoint']


def is_remote() -> bool:
    """Whether this is a container."""
    return bool(os.environ.get('CONTAINER_ID'))


def is_local() -> bool:
    """Whether this is no container."""
    return not is_remote()


def local_entrypoint(function: Callable[[], Any]) -> Callable[[], Any]:
    """Runs the decorated function at once where this is no container."""
    if is_local():
        function()
    return function
