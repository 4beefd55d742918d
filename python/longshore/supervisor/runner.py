"""The supervisor as the one runner process of its container: readiness, and streamed calls to ports.

Must stay true: a result is kept until the agent acknowledged it, and sent again after every new hello. A call that is in hand or
answered is not taken again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import OrderedDict

from ..runner import protocol
from ..runner.protocol import pack
from .channel import FIRST_DELAY, LAST_DELAY, Channel, dial
from .loop import nothing

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from ..runner.protocol import Header
    from .loop import Loop
    from .programs import Program

    Key = Tuple[str, str]

_MOST_UNACKNOWLEDGED = 256
_DIAL_SECONDS = 5.0
_DIAL_AGAIN_SECONDS = 0.02


class Runner:
    """The connection on `agent.sock`, dialled again after each break."""

    def __init__(self, loop: Loop, directory: str, container_id: str, slots: int) -> None:
        self.loop = loop
        self.directory = directory
        self.slots = slots
        self.unacknowledged: 'OrderedDict[Key, bytes]' = OrderedDict()
        self.calls: Dict[Key, Call] = {}
        #: The container's own program, once it runs.
        self.entry: Optional[Program] = None
        #: Called for a drain, with its seconds.
        self.on_drain: Callable[[float], object] = lambda _seconds: None
        #: Called when the agent acknowledged that the start failed.
        self.on_failure_taken: Callable[[], object] = lambda: None
        self._container_id = container_id
        self._channel: Optional[Channel] = None
        self._delay = FIRST_DELAY
        #: Frames that every connection begins with, behind its hello.
        self._greeting: List[bytes] = []
        self._failed = False

    def dial(self) -> None:
        connection = dial(self.directory + '/agent.sock')
        if connection is None:
            self._lost()
            return
        channel = self._channel = Channel(self.loop, connection, self._on_frame, self._lost)
        channel.on_some = self._heard
        holding = [{'taskId': task, 'token': token} for task, token in [*self.calls, *self.unacknowledged]]
        hello = {
            'version': protocol.VERSION,
            'containerId': self._container_id,
            'process': 0,
            'pid': os.getpid(),
            'slots': 0,
            'python': '%d.%d.%d' % sys.version_info[:3],
            'holding': holding[:400],
        }
        channel.send(protocol.HELLO, hello)
        for frame in [*self._greeting, *self.unacknowledged.values()]:
            channel.send_packed(frame)

    def _heard(self) -> None:
        self._delay = FIRST_DELAY

    def _lost(self) -> None:
        self._channel = None
        self.loop.later(self._delay, self.dial)
        self._delay = min(self._delay * 1.5, LAST_DELAY)

    def failed(self) -> None:
        """An error in a call of the loop: the connection begins anew."""
        channel = self._channel
        if channel is not None:
            channel.failed()

    @property
    def connected(self) -> bool:
        return self._channel is not None

    def _send(self, frame: bytes) -> None:
        if self._channel is not None:
            self._channel.send_packed(frame)

    # ---- the start ---------------------------------------------------------------------------------------------------
    def starting(self) -> None:
        self._greet(pack(protocol.STARTING, {'phase': 'on_start'}))

    def ready(self, milliseconds: int) -> None:
        self._greeting = []
        self._greet(pack(protocol.READY, {'mode': 'single', 'slots': self.slots, 'onStartMs': milliseconds}))

    def start_failed(self, text: str) -> None:
        self._failed = True
        self._greeting = []
        self._greet(pack(protocol.FAILED, {'phase': 'on_start', 'error': text}, text.encode('utf-8', 'backslashreplace')))

    def _greet(self, frame: bytes) -> None:
        self._greeting.append(frame)
        self._send(frame)

    # ---- calls -------------------------------------------------------------------------------------------------------
    def _on_frame(self, kind: int, header: Header, _body: bytes) -> None:
        key = (str(header.get('taskId') or ''), str(header.get('token') or ''))
        if kind == protocol.RUN:
            if key[0] and key not in self.calls and key not in self.unacknowledged:
                self.calls[key] = Call(self, key, header)
        elif kind == protocol.ACKED:
            if self._failed:
                self.on_failure_taken()
            self.unacknowledged.pop(key, None)
        elif kind == protocol.CANCEL:
            call = self.calls.get(key)
            if call is not None:
                call.cancel()
        elif kind == protocol.DRAIN:
            grace = header.get('graceMs')
            self.on_drain(max(0.0, grace / 1000) if isinstance(grace, (int, float)) else 0.0)
        elif kind == protocol.KILL:
            os._exit(137)

    def told(self, call: Call, outcome: str, value: Any) -> None:
        """A call is over: its result."""
        if self.calls.pop(call.key, None) is None:
            return
        header = {'taskId': call.key[0], 'token': call.key[1], 'outcome': outcome, 'chunks': 0}
        header['durationMs'] = int((time.monotonic() - call.began) * 1000)
        frame = pack(protocol.RESULT, header, json.dumps(value).encode('ascii'))
        self.unacknowledged[call.key] = frame
        while len(self.unacknowledged) > _MOST_UNACKNOWLEDGED:
            self.unacknowledged.popitem(last=False)
        self._send(frame)

    def started(self, call: Call) -> None:
        self._send(pack(protocol.STARTED, {'taskId': call.key[0], 'token': call.key[1]}))


class Call:
    """One streamed call: a connection on `streams.sock`, then one to a port."""

    def __init__(self, runner: Runner, key: Key, header: Header) -> None:
        self.key = key
        self.began = time.monotonic()
        self._runner = runner
        self._channel: Optional[Channel] = None
        self._port: Any = None
        self._wrong = ''
        self._cancelled = False
        if header.get('started') is not False:
            runner.started(self)
        if header.get('stream') is True:
            self._dial()
        else:
            runner.loop.later(0, lambda: self._tell('error', 'a pod is called at its ports, not with inputs'))

    def _dial(self) -> None:
        if self._cancelled:
            return
        connection = dial(self._runner.directory + '/streams.sock')
        if connection is None:
            if time.monotonic() - self.began > _DIAL_SECONDS:
                self._tell('error', 'the agent takes no connection for the bytes of the call')
            else:
                self._runner.loop.later(_DIAL_AGAIN_SECONDS, self._dial)
            return
        channel = self._channel = Channel(self._runner.loop, connection, self._on_request, nothing)
        channel.on_sent = self._over
        channel.on_closed.append(self._over)
        stream = {'version': protocol.VERSION, 'taskId': self.key[0], 'token': self.key[1]}
        channel.send(protocol.STREAM, stream)

    def _on_request(self, kind: int, _header: Header, body: bytes) -> None:
        from .requests import connect
        from .settings import SettingsError
        from .wrongs import Wrong

        if kind != protocol.REQUEST or self._channel is None:
            return
        try:
            request = json.loads(body)
            if not isinstance(request, dict) or request.get('type') != 'connect':
                raise Wrong('bad_request', 'a pod takes only requests of type connect')
            self._port = connect(self._runner.loop, self._channel, request, self._answered, self._runner.entry)
        except (SettingsError, ValueError) as error:
            self._answered('bad_request', str(error))
        except Wrong as wrong:
            self._answered(wrong.code, wrong.text)

    def _answered(self, code: str, text: str) -> None:
        assert self._channel is not None
        value = {'ok': False, 'code': code, 'error': text} if code else {'ok': True}
        self._channel.send(protocol.RESPONSE, {}, json.dumps(value).encode('ascii'))
        if code:
            self._wrong = text
            self._channel.finish()

    def _over(self) -> None:
        """All was sent, or the connection was closed."""
        if self._wrong:
            self._tell('error', self._wrong)
        elif self._port is not None and self._port.broken:
            from .ports import ENDED_SECONDS

            self._runner.loop.later(ENDED_SECONDS, self._broken)
        elif self._port is not None and (self._port.near_ended or self._port.port_ended):
            self._runner.told(self, 'ok', {'status': 200})
        else:
            self._tell('cancelled', 'the caller left')

    def _broken(self) -> None:
        """The end of the program ends the container, whose end is the call's: nothing is told then."""
        from .ports import has_ended

        entry = self._runner.entry
        if entry is None or not has_ended(entry):
            self._tell('error', 'the program broke the connection off')

    def cancel(self) -> None:
        self._cancelled = True
        self._tell('cancelled', 'task was cancelled')
        if self._port is not None:
            self._port.cut()
        if self._channel is not None:
            self._channel.close()

    def _tell(self, outcome: str, text: str) -> None:
        self._runner.told(self, outcome, {'error': text})
