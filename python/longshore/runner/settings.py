"""The agent's settings for the runner, from the environment."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Mapping, Tuple


DEFAULT_SOCKET = '/run/longshore/agent.sock'
#: Bound on runner processes, and on slots, of one container: a larger number is a mistake.
MAX_COUNT = 1024
#: The variable of a spawned process: its number and its pipe, `2:7`.
SPAWNED = 'LONGSHORE_SPAWNED'
MODES = ('', 'fork', 'thread', 'spawn')


class SettingsError(Exception):
    """An environment variable that cannot be used; the text names it."""


class Settings:
    """The runner's environment, checked."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.socket_path = environ.get('LONGSHORE_AGENT_SOCKET') or DEFAULT_SOCKET
        #: The socket for the bytes of streamed calls.
        self.streams_path = self.socket_path.rpartition('/')[0] + '/streams.sock'
        self.container_id = environ.get('CONTAINER_ID', '')
        self.stub_id = environ.get('STUB_ID', '')
        self.stub_type = environ.get('STUB_TYPE', '')
        #: Whether changes of the files reload the app: a development server.
        self.reloads = self.stub_type.endswith('/serve')
        self.python_version = environ.get('PYTHON_VERSION', '')
        self.callback_url = environ.get('CALLBACK_URL', '')
        self.tracebacks = environ.get('LONGSHORE_TRACEBACKS') == '1'
        self.gpu = environ.get('LONGSHORE_GPU') == '1'
        self.handler = environ.get('HANDLER', '')
        self.on_start = environ.get('ON_START', '')
        # Problems are kept, not raised: the agent must hear of a bad value over the connection that these settings
        # describe.
        self.problem = ''
        self.workers = self._count(environ, 'WORKERS', 1)
        #: `fork`, `thread` or `spawn`; empty: not set.
        self.worker_mode = environ.get('LONGSHORE_WORKER_MODE', '')
        #: Number and report pipe of a process that `spawning` started; else empty.
        self.spawned = environ.get(SPAWNED, '')
        self.slots = self._count(environ, 'CONCURRENT_REQUESTS', 0) or 1
        #: Whole cores of the container.
        self.cores = self._count(environ, 'LONGSHORE_CORES', 1)
        if self.worker_mode not in MODES:
            self.problem = 'LONGSHORE_WORKER_MODE must be fork, thread or spawn, not %r' % self.worker_mode
        if self.worker_mode == 'thread' and self.workers > 1 and self.stub_type.startswith('asgi'):
            self.problem = "LONGSHORE_WORKER_MODE 'thread' does not suit an ASGI application: use 'fork', 'spawn' or concurrent_requests"
        self.timeout = self._number(environ, 'TIMEOUT')

    def _count(self, environ: Mapping[str, str], name: str, least: int) -> int:
        text = environ.get(name, '').strip()
        if not text:
            return least
        if not text.isdigit() or not least <= int(text) <= MAX_COUNT:
            self.problem = '%s must be a whole number from %d to %d, not %r' % (name, least, MAX_COUNT, text)
            return max(least, 1)
        return int(text)

    def _number(self, environ: Mapping[str, str], name: str) -> float:
        text = environ.get(name, '').strip()
        try:
            return float(text or 0)
        except ValueError:
            self.problem = '%s must be a number of seconds, not %r' % (name, text)
            return 0.0


#: End of the name of a file with a pickled function: published notebooks have no module to import.
PICKLED = '.pkl'


def split_reference(text: str, variable: str) -> Tuple[str, str]:
    """Splits `module:function`; `dir/app.py:function` is read as `dir.app:function`, and a pickled file by its path."""
    module, colon, name = text.partition(':')
    if module.endswith('.py'):
        module = module[:-3]
    if not module.endswith(PICKLED):
        module = module.replace('/', '.').lstrip('.')
    if not colon or not module or not name:
        raise SettingsError('%s must be module:function, not %r' % (variable, text))
    return module, name
