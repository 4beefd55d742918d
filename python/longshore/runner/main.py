"""The runner's first process, from its first connection to its first slot.

The order matters. The process dials before it imports user code, so that the agent sees a start that hangs. It imports,
runs `on_start` once, and only then becomes one runner process or several. With `worker_mode` spawn it imports no user
code: each process does (`spawning`).
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time

from . import forks, keeper, logs, outputs, protocol, task
from .call import Application, prepared_or_told, started, started_or_told, watch_signals
from .connection import Link
from .server import hello_header, leave
from .serving import make_server
from .settings import Settings, SettingsError
from .supervise import Control, Supervisor, serve_here, settled_thread_count
from .threads import bound_threads

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Callable, NoReturn, Tuple

_FAILED_SECONDS = 2.0


def main() -> NoReturn:
    """Runs the process and never returns: it ends with the exit code for the agent."""
    if keeper.passed():
        outputs.received(keeper.passed())
    settings = Settings(os.environ)
    bound_threads(os.environ, settings)
    forks.install()
    signal.signal(signal.SIGTERM, _leave_at_once)
    faulthandler.enable()  # a crash of C code says where, on fd 2
    if settings.spawned:
        from .spawning import serve_spawned  # not paid where nothing is spawned

        serve_spawned(settings)
    link = Link(settings.socket_path, dict)
    control = Control(link, hello_header(settings.container_id, 0, 0))
    link.dial_until_connected()
    logs.install(link)

    _make_outputs()

    def start(entering: Callable[[str], None]) -> Tuple[Application, int]:
        if settings.problem:
            raise SettingsError(settings.problem)
        if settings.reloads:
            from .reloading import Reloader

            Reloader(settings, control, fail).run()
        if settings.workers > 1 and settings.worker_mode == 'spawn':
            from .spawning import Spawner

            Spawner(settings, control, fail).run()
        return started(settings, entering)

    application, on_start_ms = started_or_told(
        start,
        lambda phase: link.send(protocol.STARTING, {'phase': phase}),
        lambda phase, text, trace: fail(link, phase, text, trace),
    )
    _serve(application, control, on_start_ms)


def _make_outputs() -> None:
    """Makes the directory where app files of other platforms put files for `Output`; an image's user may lack the
    right."""
    try:
        os.mkdir('/outputs')
    except OSError:
        pass


def _serve(application: Application, control: Control, on_start_ms: int) -> NoReturn:
    settings = application.settings
    if settings.workers > 1:
        if settings.worker_mode == 'thread':
            Supervisor(settings, control, fail, on_start_ms, 'thread', application).run()
        why = _unsafe_to_fork(settings)
        if not why:
            Supervisor(settings, control, fail, on_start_ms, 'fork', application).run()
        logs.note(
            "one worker instead of %d: %s, and a fork is not safe then. Set worker_mode to 'spawn' (a process per worker, each runs on_start) "
            "or 'thread' (handlers side by side in one process)" % (settings.workers, why)
        )
        settings.workers = 1
    link = control.link
    server = make_server(application, link, hello_header(settings.container_id, 0, 0))
    # The control connection serves tasks: its hello still says no slots, and its `ready` gives them.
    link.greeting = lambda: [*control.repeated, *server._greeting()]
    task.install()
    serve_here(server, link)
    on_start_ms += prepared_or_told(server.prepare, lambda phase, text, trace: fail(link, phase, text, trace))
    watch_signals()
    control.ready('single', settings.slots, on_start_ms)
    server.serve()
    server.exit()
    raise AssertionError('exit returned')


def _unsafe_to_fork(settings: Settings) -> str:
    """The reason why this process must not be forked; empty: it may be."""
    if settings.gpu:
        return 'the stub has a GPU'
    threads = settled_thread_count()
    return '%d threads run after on_start' % threads if threads > 1 else ''


def fail(link: Link, phase: str, text: str, trace: str) -> NoReturn:
    """Reports a start that failed by the user's fault to the agent and the log, and exits."""
    for line in (trace or text).rstrip('\n').split('\n'):
        logs.emit(None, 'stderr', line)
    body = trace.encode('utf-8', 'backslashreplace')[-protocol.INLINE_BYTES :]
    sent = link.send(protocol.FAILED, {'phase': phase, 'error': text}, body)
    until = time.monotonic() + _FAILED_SECONDS
    while sent and time.monotonic() < until:
        frames = link.receive(False)
        if frames is None or any(frame[0] == protocol.ACKED for frame in frames):
            break
        time.sleep(0.005)
    leave(link, 1)
    sys.exit(1)


def _leave_at_once(_number: int, _frame: object) -> None:
    """Handles SIGTERM while there is no work to finish."""
    os._exit(143)
