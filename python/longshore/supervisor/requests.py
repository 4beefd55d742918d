"""Requests of the scheduler: one connection to the agent always waits for one, and goes on as the request wants."""

from __future__ import annotations

import json
import os

from ..runner import protocol
from ..runner.protocol import MAX_FRAME_BYTES, PIECE_BYTES
from .attach import Attachment, size_of
from .channel import FIRST_DELAY, LAST_DELAY, Channel, dial
from .loop import nothing
from .ports import PortConnection
from .programs import signal_of
from .reloads import ask_to_reload
from .settings import SettingsError, port_of, texts_of
from .starts import Starts, id_of
from .work import FORKED, begin_work
from .wrongs import Wrong

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    from ..runner.protocol import Header
    from .loop import Loop
    from .programs import Program, Programs

    Request = Dict[str, Any]

MOST_CONNECTIONS = 256
#: Bound on the text of a request's answer: a frame, less its beginning.
MOST_ANSWER_BYTES = MAX_FRAME_BYTES - 1024
#: Time for a request to come whole.
_REQUEST_SECONDS = 30.0
MOST_WAIT_SECONDS = 600.0


class Requests:
    """All connections on `supervisor.sock`."""

    def __init__(self, loop: Loop, programs: Programs, path: str, cwd: str, on_end: Callable[[Callable[[], object]], object]) -> None:
        self.loop = loop
        self.programs = programs
        self.cwd = cwd
        self.on_end = on_end
        self.starts = Starts()
        self._path = path
        self._delay = FIRST_DELAY
        self._served = 0
        self._waiting: Optional[Channel] = None
        self._due = False

    # ---- the connection that waits -----------------------------------------------------------------------------------
    def dial(self) -> None:
        """Makes sure that a connection waits, or will soon."""
        self._due = False
        if self._waiting is not None or self._served >= MOST_CONNECTIONS:
            return
        connection = dial(self._path)
        if connection is None:
            self._again()
            return
        channel = Channel(self.loop, connection, nothing, nothing)  # type: ignore[arg-type]
        self._waiting = channel
        served = Served(self, channel)
        channel.on_frame = served.on_request
        channel.on_bad = served.on_bad
        channel.on_some = lambda: self._take(served)
        channel.on_closed = [self._lost]

    def _lost(self) -> None:
        self._waiting = None
        self._again()

    def _again(self) -> None:
        if not self._due:
            self._due = True
            self.loop.later(self._delay, self.dial)
            self._delay = min(self._delay * 1.5, LAST_DELAY)

    def _take(self, served: Served) -> None:
        """The first bytes have come: another connection waits from now on."""
        self._delay = FIRST_DELAY
        self._waiting = None
        self._served += 1
        served.channel.on_closed = [self.left]
        served.limit = self.loop.later(_REQUEST_SECONDS, served.channel.close)
        self.dial()

    def left(self) -> None:
        """A served connection is over."""
        self._served -= 1
        self.dial()


class Served:
    """One connection with a request."""

    def __init__(self, requests: Requests, channel: Channel) -> None:
        self.channel = channel
        self.limit: Any = None
        self._requests = requests
        self._loop = requests.loop
        self._programs = requests.programs
        self._later: List[Any] = []

    def on_bad(self, text: str) -> None:
        if 'length' in text:
            self.refuse(Wrong('too_large', 'a frame has at most %d bytes' % MAX_FRAME_BYTES))

    def on_request(self, kind: int, _header: Header, body: bytes) -> None:
        if kind != protocol.REQUEST:
            return
        self.limit.cancel()
        self.channel.on_frame = _ignored
        try:
            try:
                request = json.loads(body)
            except ValueError:
                request = None
            if not isinstance(request, dict):
                raise Wrong('bad_request', 'the request is not a JSON object')
            self._serve(request)
        except SettingsError as error:
            self.refuse(Wrong('bad_request', str(error)))
        except Wrong as wrong:
            self.refuse(wrong)
        except Exception as error:
            self.refuse(Wrong('failed', '%s: %s' % (type(error).__name__, error)))

    def _serve(self, request: Request) -> None:
        name = str(request.get('type'))
        call = _CALLS.get(name)
        if call is not None:
            call(self, request)
        elif name in FORKED:
            begin_work(self._programs, self.channel, self._requests.left, self._requests.cwd, request)
        else:
            raise Wrong('bad_request', 'there is no request of type %s' % name[:50])

    # ---- answers -----------------------------------------------------------------------------------------------------
    def answer(self, value: Dict[str, Any]) -> None:
        body = json.dumps(dict(value, ok=True)).encode('ascii')
        if len(body) > MOST_ANSWER_BYTES:
            raise Wrong('too_large', 'the answer has more than %d bytes' % MOST_ANSWER_BYTES)
        self.channel.send(protocol.RESPONSE, {}, body)

    def answer_last(self, value: Dict[str, Any]) -> None:
        self.answer(value)
        self.channel.finish()

    def refuse(self, wrong: Wrong) -> None:
        body = json.dumps({'ok': False, 'code': wrong.code, 'error': wrong.text[:4000]}).encode('ascii')
        self.channel.send(protocol.RESPONSE, {}, body)
        self.channel.finish()

    # ---- ports -------------------------------------------------------------------------------------------------------
    def connect(self, request: Request) -> None:
        connect(self._loop, self.channel, request, self._answered, self._programs.entrypoint)

    def _answered(self, code: str, text: str) -> None:
        if code:
            self.refuse(Wrong(code, text))
        else:
            self.answer({})

    # ---- programs ----------------------------------------------------------------------------------------------------
    def start(self, request: Request) -> None:
        command = texts_of(request.get('command'), 'command')
        if not command:
            raise Wrong('bad_request', 'command is empty')
        env = {} if request.get('env') is None else request['env']
        if not isinstance(env, dict):
            raise Wrong('bad_request', 'env must be an object')
        for name, value in env.items():
            if not name or '=' in name or '\0' in name or not isinstance(value, str) or '\0' in value:
                raise Wrong('bad_request', 'env: names and values must be texts without zero bytes')
        terminal = request.get('terminal')
        if terminal is not None and not isinstance(terminal, dict):
            raise Wrong('bad_request', 'terminal must be an object or null')
        size = None if terminal is None else size_of({'rows': 24, 'columns': 80, **terminal})
        attach = request.get('attach') is True
        owns_input = request.get('input') is True
        alone = 0 if size is None else _number(request.get('hangUpAfterMs') or 0, 'hangUpAfterMs', 0)
        cwd = directory_of(request.get('cwd'), self._requests.cwd)
        name = id_of(request)
        if name and (attach or size is not None):
            raise Wrong('bad_request', 'id: a start with a terminal, or with somebody attached, cannot be repeated')
        if name and not self._requests.starts.begin(name, self._told):
            return
        # Frames that come before the program runs wait for it.
        self.channel.on_frame = lambda *frame: self._later.append(frame)
        self.channel.pause()

        def started(program: Optional[Program], wrong: Optional[Wrong]) -> None:
            if name:
                self._requests.starts.done(name, 0 if program is None else program.pid, wrong)
            self._started(attach, owns_input, alone, program, wrong)

        try:
            self._programs.start(command, cwd, env, size, attach or size is not None, started)
        except Exception as error:
            if name:
                self._requests.starts.done(name, 0, error if isinstance(error, Wrong) else Wrong('failed', str(error)))
            raise

    def _told(self, pid: int, wrong: Optional[Wrong]) -> None:
        """Answers a repeated start with what the first one came to."""
        if wrong is not None:
            self.refuse(wrong)
        else:
            self.answer_last({'pid': pid, 'input': 0})

    def _started(self, attach: bool, owns_input: bool, alone: int, program: Optional[Program], wrong: Optional[Wrong]) -> None:
        self.channel.resume()
        if wrong is not None:
            self.refuse(wrong)
            return
        assert program is not None
        program.hang_up_after = alone / 1000
        if not attach:
            program.wait_for_reader()
            self.answer_last({'pid': program.pid, 'input': 0})
            return
        self.answer({'pid': program.pid, 'input': 0})
        self._attached(program, dict.fromkeys(program.sources, 0), owns_input)

    def _attached(self, program: Program, at: Dict[str, int], owns_input: bool) -> None:
        if self.channel.ended:
            return
        Attachment(self.channel, program, at, owns_input)
        self.channel.deliver(self._later)
        self._later = []

    def attach(self, request: Request) -> None:
        program = self._programs.find(request.get('pid'))
        at = {}
        for stream, source in program.sources.items():
            place = _number(request.get(stream, 0), stream, -1)
            if place > source.ring.end:
                raise Wrong('bad_request', '%s: only %d bytes have come' % (stream, source.ring.end))
            at[stream] = source.ring.end if place < 0 else place
        owns_input = request.get('input') is True
        if owns_input:
            program.take_input_over()
        facts = {'running': program.running, 'terminal': program.is_terminal, 'input': program.input_taken}
        self.answer(dict(facts, pid=program.pid))
        self._attached(program, at, owns_input)

    def output(self, request: Request) -> None:
        program = self._programs.find(request.get('pid'))
        stream = request.get('stream', 'stdout')
        if stream not in ('stdout', 'stderr'):
            raise Wrong('bad_request', 'stream must be stdout or stderr')
        place = _number(request.get('from', 0), 'from', -1)
        most = min(_number(request.get('mostBytes') or MAX_FRAME_BYTES, 'mostBytes', 1), MAX_FRAME_BYTES)
        source = program.sources.get(stream)
        name = id_of(request)
        data, begin, asked = b'', max(place, 0), max(place, 0)
        if source is not None:
            ring = source.ring
            # New output is told once: a repeated request gets the bytes of the first one, and no later ones.
            is_repeated = place < 0 and name != '' and name == source.taken_by
            if place < 0:
                asked = source.taken_from if is_repeated else source.taken
            else:
                asked = place
            if asked > ring.end:
                raise Wrong('bad_request', 'from: only %d bytes have come' % ring.end)
            begin = max(asked, ring.start)
            end = source.taken if is_repeated else begin + most
            while begin + len(data) < end:
                piece = ring.read(begin + len(data), end - begin - len(data))
                if not piece:
                    break
                data += piece
            if request.get('text') is True and (program.running or begin + len(data) < ring.end):
                data = whole_characters(data)
            if place < 0 and not is_repeated:
                source.taken_by, source.taken_from, source.taken = name, begin, begin + len(data)
        self.answer(
            {
                'from': begin,
                'next': begin + len(data),
                'lostBytes': begin - asked,
                'running': program.running,
                'exitCode': program.exit_code,
            }
        )
        for at in range(0, max(len(data), 1), PIECE_BYTES):
            self.channel.send_data(data[at : at + PIECE_BYTES])
        self.channel.send(protocol.END, {})
        self.channel.finish()

    def wait(self, request: Request) -> None:
        program = self._programs.find(request.get('pid'))
        seconds = min(_number(request.get('timeoutMs', 0), 'timeoutMs', 0) / 1000, MOST_WAIT_SECONDS)
        if not program.running or seconds == 0:
            self.answer_last({'running': program.running, 'exitCode': program.exit_code})
            return

        def tell() -> None:
            timer.cancel()
            if tell in program.on_end:
                program.on_end.remove(tell)
            if not self.channel.ended:
                self.answer_last({'running': program.running, 'exitCode': program.exit_code})

        program.on_end.append(tell)
        timer = self._loop.later(seconds, tell)
        self.channel.on_end = tell

    def processes(self, _request: Request) -> None:
        listed = [_entry_of(program) for program in self._programs.by_pid.values()]
        value = {'processes': listed}
        if len(json.dumps(value)) > MOST_ANSWER_BYTES // 2:
            for entry in listed:
                entry['env'] = []
                entry['command'] = [word[:200] for word in entry['command'][:4]]
        self.answer_last(value)

    def kill(self, request: Request) -> None:
        program = self._programs.find(request.get('pid'))
        program.kill(signal_of(request.get('signal') or 'KILL'))
        self.answer_last({})

    def reload(self, request: Request) -> None:
        paths = request.get('paths')
        if paths is not None and not (isinstance(paths, list) and all(isinstance(path, str) for path in paths)):
            raise Wrong('bad_request', 'paths must be a list of texts')
        ask_to_reload(self._loop, self.channel, paths, self.answer_last, self.refuse)

    def end(self, _request: Request) -> None:
        self._requests.on_end(lambda: self.answer_last({}))


_CALLS: Dict[str, Callable[[Served, Request], None]] = {
    'connect': Served.connect,
    'start': Served.start,
    'attach': Served.attach,
    'output': Served.output,
    'wait': Served.wait,
    'processes': Served.processes,
    'kill': Served.kill,
    'reload': Served.reload,
    'end': Served.end,
}


def connect(
    loop: Loop, channel: Channel, request: Request, answered: Callable[[str, str], object], entry: Optional[Program]
) -> PortConnection:
    """Goes on as a connection to the port that the request names. Raises Wrong or SettingsError."""
    port = port_of(request.get('port'), 'port')
    seconds = min(_number(request.get('waitMs', 0), 'waitMs', 0) / 1000, MOST_WAIT_SECONDS)
    return PortConnection(loop, channel, port, seconds, answered, entry)


def directory_of(value: Any, base: str) -> str:
    """A directory for a program: the text of a request, below the base."""
    if value is None or value == '':
        return base
    if not isinstance(value, str) or '\0' in value:
        raise Wrong('bad_request', 'cwd must be a path')
    return os.path.join(base, value)


def whole_characters(data: bytes) -> bytes:
    """UTF-8 without a character at its end of which bytes are still missing."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if length > back else data
    return data


def _entry_of(program: Program) -> Dict[str, Any]:
    return {
        'pid': program.pid,
        'command': program.command,
        'cwd': program.cwd,
        'env': program.named_env,
        'running': program.running,
        'exitCode': program.exit_code,
        'signal': program.signal,
        'startedAtMs': int(program.started_at * 1000),
        'terminal': program.is_terminal,
    }


def _number(value: Any, field: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 2**53:
        raise Wrong('bad_request', '%s must be a number from %d' % (field, least))
    return int(value)


def _ignored(_kind: int, _header: Header, _body: bytes) -> None:
    pass
