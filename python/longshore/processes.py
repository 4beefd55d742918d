"""Programs in a sandbox: started, read and ended. Loaded at its first use."""

from __future__ import annotations

import codecs
import json
import os
import shlex
import threading
import time
from typing import IO, TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union, overload
from urllib import parse

from .client import GatewayError
from .errors import SandboxProcessError
from .recipes import Aio
from .web_socket import Closed, WebSocket

if TYPE_CHECKING:
    from typing import Literal

    from .sandboxes import SandboxInstance

#: Unread output of a stream that is kept here; older bytes are dropped.
_MOST_KEPT_BYTES = 64 << 20
#: Silence after which `read` of a program that runs returns.
_QUIET_SECONDS = 0.2
#: Absence of the installation during which a program's output is waited for.
_AWAY_SECONDS = 60.0
_PAUSE_SECONDS = 0.5
#: Bound on the start of a program.
_START_SECONDS = 90.0
_STREAMS = ('stdout', 'stderr')


class RunsCode:
    """`run_code` of a sandbox and of its `process`."""

    @overload
    def run_code(
        self, code: str, blocking: Literal[True] = True, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None
    ) -> SandboxProcessResponse: ...
    @overload
    def run_code(
        self, code: str, blocking: Literal[False], cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None
    ) -> SandboxProcess: ...
    @overload
    def run_code(
        self, code: str, blocking: bool, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None
    ) -> Union[SandboxProcessResponse, SandboxProcess]: ...
    def run_code(
        self, code: str, blocking: bool = True, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None
    ) -> Union[SandboxProcessResponse, SandboxProcess]:
        """Runs Python code with the sandbox's `python3`. blocking: waits for the end, and returns what it printed;
        otherwise the SandboxProcess. Parameters and errors as `exec`'s."""
        sandbox = self._box()
        if not blocking:
            return sandbox.process.exec('python3', '-c', code, cwd=cwd, env=env)
        process = SandboxProcess(sandbox, 0, cwd or '', ['python3', '-c', code], dict(env or {}))
        # Reading begins with the first byte, so that nothing of a long output is dropped.
        process._start()
        process.wait()
        return SandboxProcessResponse(process)

    def _box(self) -> SandboxInstance:
        raise NotImplementedError


class SandboxProcessManager(RunsCode):
    """`sandbox.process`: programs of a sandbox."""

    def __init__(self, sandbox_instance: SandboxInstance) -> None:
        self._sandbox = sandbox_instance

    def _box(self) -> SandboxInstance:
        return self._sandbox

    def exec(
        self,
        *args: str,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        stdin: Union[str, bytes, IO[bytes], None] = None,
    ) -> SandboxProcess:
        """
        Starts a program, and returns at once: `exec('ls', '-l', '/')`. A command line of a shell is
        `exec('sh', '-c', 'ls | wc -l')`. cwd: its directory; None: the sandbox's own. env: variables on top of the
        sandbox's. stdin: its input, text, bytes or an open binary file; None: empty. Raises SandboxProcessError.
        """
        words = [str(one) for one in (args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)]
        if not words or not words[0]:
            raise SandboxProcessError('cannot run a program: exec was given none')
        command = shlex.join(words)
        if stdin is not None:
            # The input is a file that has no name any more once the program has it.
            path = '/tmp/.longshore-%s' % os.urandom(8).hex()
            self._sandbox.fs.write_bytes(path, stdin.encode('utf-8') if isinstance(stdin, str) else stdin, 0o600)
            command = 'exec 0< %s && rm -f %s && exec %s' % (path, path, command)
        what = 'cannot run %s' % words[0]
        body = {'command': command, 'cwd': cwd or '', 'env': dict(env or {}), 'wait': False}
        found = self._sandbox.ask('POST', '/exec', what, body, SandboxProcessError)
        return SandboxProcess(self._sandbox, int(found.get('pid') or 0), cwd or '', words, dict(env or {}))

    def list_processes(self) -> Dict[int, SandboxProcess]:
        """The programs that were started, by pid. Those that ended are there, too, as long as they are remembered."""
        what = 'cannot list programs of %s' % self._sandbox.container_id
        found = self._sandbox.ask('GET', '/processes', what, None, SandboxProcessError)
        return {int(one['pid']): self._made(one) for one in found.get('processes') or []}

    def get_process(self, pid: int) -> SandboxProcess:
        """The program of that pid. Raises SandboxProcessError where none was started, or it is not remembered."""
        every = self.list_processes()
        if pid not in every:
            raise SandboxProcessError('there is no program %r in %s' % (pid, self._sandbox.container_id))
        return every[pid]

    def _made(self, one: Mapping[str, Any]) -> SandboxProcess:
        command = str(one.get('cmd') or '')
        try:
            words = shlex.split(command)
        except ValueError:
            words = [command]
        env = dict(str(pair).partition('=')[::2] for pair in one.get('env') or [])
        exit_code = int(one.get('exitCode', -1))
        return SandboxProcess(self._sandbox, int(one['pid']), str(one.get('cwd') or ''), words, env, exit_code)

    @property
    def aio(self) -> Any:
        """The same methods as coroutines."""
        return Aio(self)


class _Stream:
    """Output of one stream that came and was not read."""

    def __init__(self) -> None:
        #: Bytes that came or were dropped: where another connection goes on.
        self.seen = 0
        self.lost = 0
        self.pieces: List[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        self.seen += len(data)
        self.pieces.append(data)
        self.size += len(data)
        while self.size > _MOST_KEPT_BYTES:
            dropped = len(self.pieces.pop(0))
            self.size -= dropped
            self.lost += dropped

    def take(self) -> bytes:
        data = b''.join(self.pieces)
        self.pieces, self.size = [], 0
        return data


class SandboxProcess:
    """A program that was started in a sandbox: `pid`, `args`, `cwd`, `env`, and `exit_code`, -1 while its end is not
    known. An end by a signal has 128 more than the signal's number."""

    def __init__(
        self, sandbox_instance: SandboxInstance, pid: int, cwd: str, args: List[str], env: Dict[str, str], exit_code: int = -1
    ) -> None:
        self._sandbox = sandbox_instance
        self.pid = pid
        self.cwd = cwd
        self.args = args
        self.env = env
        self.exit_code = exit_code
        self._output = {name: _Stream() for name in _STREAMS}
        self._readers = {name: SandboxProcessStream(self, (name,)) for name in _STREAMS}
        self._both = SandboxProcessStream(self, _STREAMS)
        self._is_over = False
        self._socket: Optional[WebSocket] = None
        #: Threads that read different streams take turns.
        self._lock = threading.RLock()

    @property
    def _what(self) -> str:
        return 'cannot read program %d of %s' % (self.pid, self._sandbox.container_id)

    def __repr__(self) -> str:
        return 'SandboxProcess(pid=%d, args=%r, exit_code=%d)' % (self.pid, self.args, self.exit_code)

    @property
    def stdout(self) -> SandboxProcessStream:
        """The standard output: iterated by lines, or read as a whole."""
        return self._readers['stdout']

    @property
    def stderr(self) -> SandboxProcessStream:
        """The standard error, in the same ways."""
        return self._readers['stderr']

    @property
    def logs(self) -> SandboxProcessStream:
        """Both streams, as they come. What `stdout` or `stderr` gave is not given here again."""
        return self._both

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the end, and returns the exit code. timeout: in seconds; after it raises SandboxProcessError, and
        the program goes on."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._is_over:
            self._go_on(until)
            if not self._is_over and until is not None and time.monotonic() >= until:
                raise SandboxProcessError('program %d did not end within %s s' % (self.pid, timeout))
        return self.exit_code

    def status(self) -> Tuple[int, str]:
        """The exit code, -1 while it runs, and `running` or `exited`."""
        found = self._sandbox.ask('GET', '/status?pid=%d' % self.pid, self._what, None, SandboxProcessError)
        exit_code = int(found.get('exitCode', -1))
        self.exit_code = exit_code if exit_code >= 0 else self.exit_code
        return exit_code, str(found.get('status') or '')

    def kill(self) -> None:
        """Ends the program and those that it started, at once."""
        what = 'cannot end program %d of %s' % (self.pid, self._sandbox.container_id)
        self._sandbox.ask('POST', '/kill', what, {'pid': self.pid}, SandboxProcessError)

    def _take(self, name: str) -> bytes:
        with self._lock:
            return self._output[name].take()

    def _has(self, names: Tuple[str, ...]) -> bool:
        return any(self._output[name].size for name in names)

    def _go_on(self, until: Optional[float]) -> None:
        """Takes what comes next. Returns at `until`, a time of time.monotonic(), without it. A connection that is lost
        is made again, and goes on where it ended."""
        with self._lock:
            away_since: Optional[float] = None
            while not self._is_over:
                try:
                    if self._socket is None:
                        self._socket = self._attached()
                    message = self._socket.receive(until)
                    if message is None:
                        self._detach()
                    else:
                        self._read(message)
                    return
                except GatewayError as problem:
                    self._socket = None
                    if 400 <= problem.status < 500 or (isinstance(problem, Closed) and problem.code not in (1001, 1005, 1006, 1012)):
                        raise SandboxProcessError(str(problem)) from problem
                    away_since = away_since or time.monotonic()
                    if time.monotonic() - away_since > _AWAY_SECONDS:
                        raise SandboxProcessError(str(problem)) from problem
                    if until is not None and time.monotonic() + _PAUSE_SECONDS > until:
                        return
                    time.sleep(_PAUSE_SECONDS)

    def _attached(self) -> WebSocket:
        made = self._connected(self._what)
        made.send(json.dumps(dict({name: self._output[name].seen for name in _STREAMS}, pid=self.pid)))
        return made

    def _connected(self, what: str) -> WebSocket:
        path = '/api/v1/gateway/containers/%s/exec' % parse.quote(self._sandbox.container_id, safe='')
        return WebSocket(self._sandbox.at, path, what)

    def _start(self) -> None:
        """Starts the program, with its output on the way."""
        what = 'cannot run %s' % self.args[0]
        try:
            self._socket = self._connected(what)
            self._socket.send(json.dumps({'command': self.args, 'cwd': self.cwd, 'env': self.env, 'terminal': None}))
            said = json.loads(self._socket.receive(time.monotonic() + _START_SECONDS) or '{}')
        except GatewayError as problem:
            if isinstance(problem, Closed) or not 400 <= problem.status < 500:
                raise
            raise SandboxProcessError(str(problem)) from problem
        if 'pid' not in said:
            self._detach()
            raise SandboxProcessError('%s: %s' % (what, _refusal(said)))
        self.pid = int(said['pid'])

    def _detach(self) -> None:
        """Ends the connection, which would hold up the program while nobody reads."""
        # Another thread that has the lock reads.
        if self._lock.acquire(blocking=False):
            try:
                if self._socket is not None:
                    self._socket.close()
                    self._socket = None
            finally:
                self._lock.release()

    def _read(self, message: Union[str, bytes]) -> None:
        if isinstance(message, bytes):
            if message[:1] in (b'\x01', b'\x02'):
                self._output[_STREAMS[message[0] - 1]].add(message[1:])
            return
        said = json.loads(message)
        if 'lost' in said:
            stream = self._output[str(said['lost']['stream'])]
            stream.seen += int(said['lost']['bytes'])
            stream.lost += int(said['lost']['bytes'])
        elif 'exitCode' in said:
            self.exit_code = int(said['exitCode'])
            self._is_over = True
            self._detach()
        elif 'error' in said:
            self._detach()
            raise SandboxProcessError('%s: %s' % (self._what, _refusal(said)))

    @property
    def aio(self) -> Any:
        """The same methods as coroutines."""
        return Aio(self)

    def __getstate__(self) -> Dict[str, Any]:
        names = ('pid', 'cwd', 'args', 'env', 'exit_code')
        return dict({name: getattr(self, name) for name in names}, sandbox_instance=self._sandbox)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _refusal(said: Mapping[str, Any]) -> str:
    error = said.get('error') or {}
    return str(error.get('message') or error.get('code') or 'it was not answered')


class SandboxProcessStream:
    """Output of a program: lines, with their ends, in a loop that lasts until the program ends; or `read`."""

    def __init__(self, process: SandboxProcess, names: Tuple[str, ...]) -> None:
        self._process = process
        self._names = names
        self._decoders = {name: codecs.getincrementaldecoder('utf-8')('replace') for name in names}
        #: The beginning of a line of each stream.
        self._begun = dict.fromkeys(names, '')
        self._lines: List[str] = []

    @property
    def lost_bytes(self) -> int:
        """Bytes that were dropped, because nobody read them in time."""
        return sum(self._process._output[name].lost for name in self._names)

    def __iter__(self) -> Iterator[str]:
        try:
            while True:
                line = self._line()
                if line is None:
                    return
                yield line
        finally:
            self._process._detach()

    def __next__(self) -> str:
        line = self._line()
        self._process._detach()
        if line is None:
            raise StopIteration
        return line

    def _line(self) -> Optional[str]:
        """The next line; None: there is none any more."""
        while True:
            self._split()
            if self._lines:
                return self._lines.pop(0)
            if self._process._is_over:
                for name, begun in self._begun.items():
                    self._begun[name] = ''
                    if begun:
                        return begun
                return None
            self._process._go_on(None)

    def read(self) -> str:
        """
        What the program has printed and nobody has read, as text; all of it, once `wait` has returned. Of a program
        that runs, what comes without a pause of 0.2 s. Bytes that are no UTF-8 become U+FFFD.
        """
        process = self._process
        while not process._is_over:
            before = {name: process._output[name].seen for name in self._names}
            process._go_on(time.monotonic() + _QUIET_SECONDS)
            if all(process._output[name].seen == seen for name, seen in before.items()) and process._socket is None:
                break
        self._split()
        lines, self._lines = self._lines, []
        begun = ''.join(self._begun.values())
        self._begun = dict.fromkeys(self._names, '')
        return ''.join(lines) + begun

    def _split(self) -> None:
        for name in self._names:
            text = self._decoders[name].decode(self._process._take(name), self._process._is_over)
            if not text:
                continue
            *lines, self._begun[name] = (self._begun[name] + text).split('\n')
            self._lines += [line + '\n' for line in lines]

    @property
    def aio(self) -> Any:
        """The same methods as coroutines, and an asynchronous loop over lines."""
        return Aio(self)


class SandboxProcessResponse:
    """The end of a program: `pid`, `exit_code`, the texts `stdout` and `stderr`, and `result`, both of them."""

    def __init__(self, process: SandboxProcess) -> None:
        self.pid = process.pid
        self.exit_code = process.exit_code
        self.stdout = process.stdout.read()
        self.stderr = process.stderr.read()
        self.result = self.stdout + self.stderr

    def __repr__(self) -> str:
        return 'SandboxProcessResponse(pid=%d, exit_code=%d)' % (self.pid, self.exit_code)
