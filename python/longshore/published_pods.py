"""
`Pod` and `Sandbox` as the published packages have them: callers of their ports need no token. Their files often make the
pod's container at the top level, since they are run as programs; while `longshore deploy` reads such a file, none is made.
"""

from __future__ import annotations

from typing import Dict, Sequence

from . import handlers, pods, sandboxes


class Pod(pods.Pod):
    __doc__ = pods.Pod.__doc__
    _authorized = False

    def create(self, entrypoint: Sequence[str] = ()) -> pods.PodInstance:
        return _Unmade('', '', [], ('', '')) if handlers.is_reading else super().create(entrypoint)

    create.__doc__ = pods.Pod.create.__doc__


class _Unmade(pods.PodInstance):
    """Stands for a container while its file is only read: it has no address, and has ended."""

    def urls(self) -> Dict[int, str]:
        return {}

    def status(self) -> str:
        return 'STOPPED'

    def terminate(self) -> bool:
        return False


class Sandbox(sandboxes.Sandbox):
    __doc__ = sandboxes.Sandbox.__doc__
    _authorized = False
