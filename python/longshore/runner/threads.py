"""Bounds the threads of libraries: by default they count the machine's cores, not the container's."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import MutableMapping

    from .settings import Settings

#: These libraries start threads on import, and a process with threads cannot be forked safely.
_AT_IMPORT = ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
#: These start theirs with the first call.
_AT_FIRST_CALL = (
    'BLIS_NUM_THREADS',
    'LOKY_MAX_CPU_COUNT',
    'NUMBA_NUM_THREADS',
    'POLARS_MAX_THREADS',
    'RAYON_NUM_THREADS',
    'TF_NUM_INTEROP_THREADS',
    'TF_NUM_INTRAOP_THREADS',
)


def bound_threads(environ: MutableMapping[str, str], settings: Settings) -> None:
    """Sets variables that neither stub nor image has set: the container's cores divided by its processes; 1 for the
    libraries at import where processes are forked."""
    several = settings.workers > 1
    forks = several and not settings.gpu and settings.worker_mode in ('', 'fork')
    spawns = several and settings.worker_mode == 'spawn'
    share = max(1, settings.cores // settings.workers) if forks or spawns else settings.cores
    _set(environ, _AT_IMPORT, 1 if forks else share)
    _set(environ, _AT_FIRST_CALL, share)


def _set(environ: MutableMapping[str, str], names: 'tuple[str, ...]', count: int) -> None:
    for name in names:
        environ.setdefault(name, str(count))
