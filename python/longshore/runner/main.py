"""The runner's first process, from its first connection to its first slot.

Order matters: it dials before it imports anything of the user's, so that the agent sees a start that hangs; it imports, runs `on_start`
once, and only then becomes one runner process or several.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time

from . import logs, protocol, task
from .call import Application, load, on_start
from .connection import Link
from .server import hello_header, leave
from .serving import make_server
from .settings import Settings, SettingsError
from .supervise import Control, Supervisor, serve_here, settled_thread_count
from .threads import bound_threads

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import NoReturn

_FAILED_SECONDS = 2.0


def main() -> NoReturn:
    """Never returns: the process ends with the code that the agent is to see."""
    settings = Settings(os.environ)
    bound_threads(os.environ, settings)
    signal.signal(signal.SIGTERM, _leave_at_once)
    faulthandler.enable()  # a crash of C code says where, on fd 2
    link = Link(settings.socket_path, dict)
    control = Control(link, hello_header(settings.container_id, 0, 0))
    link.dial_until_connected()
    logs.install(link)
    phase = 'import'
    on_start_ms = 0
    try:
        if settings.problem:
            raise SettingsError(settings.problem)
        link.send(protocol.STARTING, {'phase': phase})
        application = Application(load(settings.handler, 'HANDLER'), settings)
        phase = 'on_start'
        link.send(protocol.STARTING, {'phase': phase})
        if settings.on_start:
            began = time.monotonic()
            application.on_start_value = on_start(settings.on_start)
            on_start_ms = int((time.monotonic() - began) * 1000)
    except BaseException as error:
        _fail(link, phase, error)
    _serve(application, control, on_start_ms)


def _serve(application: Application, control: Control, on_start_ms: int) -> NoReturn:
    settings = application.settings
    if settings.workers > 1:
        threads = settled_thread_count()
        by_threads = settings.gpu or threads > 1
        if by_threads:
            why = 'the stub has a GPU' if settings.gpu else '%d threads run after on_start' % threads
            logs.note('%d runner threads instead of processes: %s' % (settings.workers, why))
        Supervisor(application, control, on_start_ms, by_threads).run()
    link = control.link
    server = make_server(application, link, hello_header(settings.container_id, 0, 0))
    # The control connection serves: its hello keeps saying no slots, its `ready` gives them.
    link.greeting = lambda: [*control.repeated, *server._greeting()]
    task.install()
    serve_here(server, link)
    control.ready('single', settings.slots, on_start_ms)
    server.serve()
    server.exit()
    raise AssertionError('exit returned')


def _fail(link: Link, phase: str, error: BaseException) -> NoReturn:
    """A start that failed by the user's cause: told to the agent and to the log, then over."""
    text, trace = (str(error), '') if isinstance(error, SettingsError) else logs.failure(error)
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
    """SIGTERM before there is anything to finish."""
    os._exit(143)
