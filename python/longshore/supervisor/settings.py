"""The agent's settings for the supervisor, and the environment that programs get."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

VARIABLE = 'LONGSHORE_SUPERVISOR'
DEFAULT_DIRECTORY = '/run/longshore'
#: Bound on streamed calls at once.
MAX_SLOTS = 1024
#: Variables of the platform that programs keep: with them they call the platform.
_KEPT = ('LONGSHORE_TOKEN', 'LONGSHORE_GATEWAY_SOCKET')
#: What runner processes read; without `LONGSHORE_WORKER_MODE` these names are the application's own.
_OF_RUNNERS = ('HANDLER', 'ON_START', 'WORKERS', 'CONCURRENT_REQUESTS', 'KEEP_WARM_SECONDS', 'TIMEOUT', 'CALLBACK_URL')


class SettingsError(Exception):
    """A setting that cannot be used; the text names it."""


class Probe:
    """How to find out that the entrypoint serves."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.type = raw.get('type')
        if self.type not in ('http', 'tcp', 'command'):
            raise SettingsError('probe.type must be http, tcp or command')
        self.port = 0 if self.type == 'command' else port_of(raw.get('port'), 'probe.port')
        self.path = str(raw.get('path') or '/')
        #: Paths that are asked in turn within a try; the first success counts.
        self.paths = [self.path] + texts_of(raw.get('morePaths') or [], 'probe.morePaths')
        if any(ord(letter) <= 32 or ord(letter) > 126 for path in self.paths for letter in path):
            raise SettingsError('probe.path must be percent-encoded')
        self.command = texts_of(raw.get('command') or [], 'probe.command')
        if self.type == 'command' and not self.command:
            raise SettingsError('probe.command is empty')
        self.interval = _seconds(raw.get('intervalMs'), 0.1)
        self.timeout = _seconds(raw.get('timeoutMs'), 1.0)


class Settings:
    """`LONGSHORE_SUPERVISOR`, checked."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        try:
            raw = json.loads(environ.get(VARIABLE) or '{}')
        except ValueError:
            raw = None
        if not isinstance(raw, dict):
            raise SettingsError('%s is not a JSON object' % VARIABLE)
        self.entrypoint: List[str] = texts_of(raw.get('entrypoint') or [], 'entrypoint')
        self.cwd = str(raw.get('cwd') or '')
        self.container_id = str(raw.get('containerId') or '')
        ports = raw.get('ports') or []
        if not isinstance(ports, list):
            raise SettingsError('ports must be a list')
        env = raw.get('env') or {}
        if not isinstance(env, dict) or not all(isinstance(one, str) for pair in env.items() for one in pair):
            raise SettingsError('env must be an object of texts')
        #: Variables that programs get, and the supervisor must not have.
        self.env: Dict[str, str] = env
        self.ports = [port_of(port, 'ports') for port in ports]
        slots = raw.get('slots') or 0
        if not isinstance(slots, int) or not 0 <= slots <= MAX_SLOTS:
            raise SettingsError('slots must be a whole number from 0 to %d' % MAX_SLOTS)
        self.slots = slots
        probe = raw.get('probe')
        if probe is not None and not isinstance(probe, dict):
            raise SettingsError('probe must be an object or null')
        self.probe: Optional[Probe] = None if probe is None else Probe(probe)
        if self.probe is None and self.ports and self.entrypoint:
            self.probe = Probe({'type': 'tcp', 'port': self.ports[0]})
        directory = (environ.get('LONGSHORE_AGENT_SOCKET') or '').rpartition('/')[0]
        self.directory = directory or DEFAULT_DIRECTORY

    @property
    def speaks_to_agent(self) -> bool:
        return self.slots > 0 or bool(self.entrypoint)


def environment_of(environ: Mapping[str, str]) -> Dict[str, str]:
    """The environment of programs: the container's, without the platform's own variables."""
    left_out = _OF_RUNNERS if 'LONGSHORE_WORKER_MODE' in environ else ()
    return {name: value for name, value in environ.items() if (name in _KEPT or not name.startswith('LONGSHORE_')) and name not in left_out}


def texts_of(value: Any, field: str) -> List[str]:
    """A list of texts for a program; raises SettingsError."""
    if not isinstance(value, list) or not all(isinstance(one, str) and '\0' not in one for one in value):
        raise SettingsError('%s must be a list of texts' % field)
    if value and not value[0]:
        raise SettingsError('%s names no program' % field)
    return list(value)


def port_of(value: Any, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
        raise SettingsError('%s must be a number from 1 to 65535' % field)
    return value


def _seconds(value: Any, usual: float) -> float:
    number = value if isinstance(value, (int, float)) and value > 0 else usual * 1000
    return float(min(max(number, 10), 3_600_000)) / 1000
