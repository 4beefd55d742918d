"""A supervisor as a process of its own, with the agent's sockets in this one's place: for tests."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any, Dict, Iterator, List, Optional, Tuple

from longshore.runner import protocol
from longshore.runner.protocol import FrameCutter, pack

Frame = Tuple[int, Dict[str, Any], bytes]
SECONDS = 30.0
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_START = 'import sys; sys.path.insert(0, %r); %s; from longshore.supervisor.main import main; main()'


class Peer:
    """The agent's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SECONDS)
        self.socket = connection
        self._cutter = FrameCutter()
        self._frames: List[Frame] = []

    def send(self, kind: int, header: Optional[Dict[str, Any]] = None, body: bytes = b'') -> None:
        self.socket.sendall(pack(kind, header or {}, body))

    def next(self) -> Optional[Frame]:
        """The next frame; None: the connection has ended."""
        while not self._frames:
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionError:
                return None
            if not data:
                return None
            self._frames += self._cutter.feed(data)
        return self._frames.pop(0)

    def expect(self, kind: int) -> Frame:
        frame = self.next()
        if frame is None or frame[0] != kind:
            raise AssertionError('expected a frame of kind %d, not %r' % (kind, frame))
        return frame

    def response(self) -> Dict[str, Any]:
        return dict(json.loads(self.expect(protocol.RESPONSE)[2]))

    def data(self) -> bytes:
        """Bytes up to the clean end."""
        pieces: List[bytes] = []
        while True:
            frame = self.next()
            if frame is None:
                raise AssertionError('cut off')
            if frame[0] == protocol.END:
                return b''.join(pieces)
            if frame[0] != protocol.DATA:
                raise AssertionError('unexpected frame %r' % (frame,))
            pieces.append(frame[2])

    def frames(self) -> Iterator[Frame]:
        while True:
            frame = self.next()
            if frame is None:
                return
            yield frame

    def close(self) -> None:
        self.socket.close()


class Output:
    """What an attached connection brought, up to the end of the program."""

    def __init__(self, peer: Peer, until: bytes = b'') -> None:
        self.text = {'stdout': b'', 'stderr': b''}
        self.next = {'stdout': 0, 'stderr': 0}
        self.lost = 0
        self.exit: Optional[Dict[str, Any]] = None
        for kind, header, body in peer.frames():
            if kind == protocol.DATA:
                stream = header['stream']
                self.lost += header['at'] - self.next[stream]
                self.next[stream] = header['at'] + len(body)
                self.text[stream] += body
                if until and until in self.text[stream]:
                    return
            elif kind == protocol.EXIT:
                self.exit = header

    @property
    def stdout(self) -> bytes:
        return self.text['stdout']


class Agent:
    """The three sockets of a container, with what connects to them."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.listeners: Dict[str, socket.socket] = {}
        self.listen()

    def listen(self) -> None:
        for name in ('agent.sock', 'streams.sock', 'supervisor.sock'):
            path = os.path.join(self.directory, name)
            if os.path.exists(path):
                os.unlink(path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(path)
            listener.listen(128)
            listener.settimeout(SECONDS)
            self.listeners[name] = listener

    def accept(self, name: str) -> Peer:
        return Peer(self.listeners[name].accept()[0])

    def close(self) -> None:
        for name, listener in self.listeners.items():
            listener.close()
            os.unlink(os.path.join(self.directory, name))


class Supervised(unittest.TestCase):
    """Starts supervisors, and ends them."""

    def setUp(self) -> None:
        self.path = tempfile.mkdtemp(prefix='sup')
        self.addCleanup(shutil.rmtree, self.path, True)
        self.work = os.path.join(self.path, 'work')
        os.mkdir(self.work)
        self.agent = Agent(self.path)
        self.addCleanup(self.agent.close)
        self.process: Any = None

    def begin(self, before: str = '', env: Optional[Dict[str, str]] = None, **settings: Any) -> Any:
        """Starts a supervisor with these settings, and waits for nothing."""
        environ = dict(os.environ, LONGSHORE_AGENT_SOCKET=self.path + '/agent.sock', LONGSHORE_SUPERVISOR=json.dumps(settings))
        environ['SUPERVISED_BY'] = self.path
        environ.pop('TERM', None)
        environ.update(env or {})
        command = [sys.executable, '-I', '-S', '-X', 'utf8', '-c', _START % (SOURCE, before or 'pass')]
        process = subprocess.Popen(
            command, cwd=self.work, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.process = process
        self.addCleanup(self._stop, process)
        return process

    def _stop(self, process: Any) -> None:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        # A container would take its programs along.
        for pid in marked_with('SUPERVISED_BY=' + self.path):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass

    # ---- requests ----------------------------------------------------------------------------------------------------
    def open(self, **request: Any) -> Peer:
        """Sends a request on a connection that waits."""
        peer = self.agent.accept('supervisor.sock')
        self.addCleanup(peer.close)
        peer.send(protocol.REQUEST, {}, json.dumps(request).encode())
        return peer

    def ask(self, **request: Any) -> Dict[str, Any]:
        """The answer to a request without a body."""
        peer = self.open(**request)
        answer = peer.response()
        peer.close()
        return answer

    def ask_ok(self, **request: Any) -> Dict[str, Any]:
        answer = self.ask(**request)
        self.assertTrue(answer['ok'], answer)
        return answer

    def refused(self, code: str, word: str = '', **request: Any) -> None:
        answer = self.ask(**request)
        self.assertEqual((answer['ok'], answer.get('code')), (False, code), answer)
        self.assertIn(word, answer['error'])

    def start(self, *command: str, **more: Any) -> int:
        return int(self.ask_ok(type='start', command=list(command), **more)['pid'])

    def attached(self, *command: str, **more: Any) -> Peer:
        peer = self.open(type='start', command=list(command), attach=True, **more)
        answer = peer.response()
        self.assertTrue(answer['ok'], answer)
        self.pid = answer['pid']
        return peer

    def run_to_end(self, *command: str, **more: Any) -> Output:
        peer = self.attached(*command, **more)
        output = Output(peer)
        peer.close()
        return output

    def wait_end(self, pid: int) -> Dict[str, Any]:
        answer = self.ask_ok(type='wait', pid=pid, timeoutMs=int(SECONDS * 1000))
        self.assertFalse(answer['running'])
        return answer

    def output(self, pid: int, **more: Any) -> Tuple[Dict[str, Any], bytes]:
        peer = self.open(type='output', pid=pid, **more)
        return peer.response(), peer.data()


def children_of(pid: int) -> List[int]:
    try:
        with open('/proc/%d/task/%d/children' % (pid, pid)) as file:
            return [int(one) for one in file.read().split()]
    except OSError:
        return []


def marked_with(variable: str) -> List[int]:
    """Processes whose environment has that variable."""
    found = []
    for name in os.listdir('/proc'):
        try:
            with open('/proc/%s/environ' % int(name), 'rb') as file:
                if variable.encode() in file.read().split(b'\0'):
                    found.append(int(name))
        except (OSError, ValueError):
            pass
    return found


def eventually(check: Any, seconds: float = SECONDS) -> None:
    """Waits until the check holds."""
    until = time.monotonic() + seconds
    while not check():
        if time.monotonic() > until:
            raise AssertionError('it never came')
        time.sleep(0.01)


def readable(connection: Any, seconds: float) -> bool:
    return bool(select.select([connection], [], [], seconds)[0])
