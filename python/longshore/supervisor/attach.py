"""Readers of a program: a connection that is attached to it, and the container's own output."""

from __future__ import annotations

import os

from ..runner import protocol
from ..runner.protocol import PIECE_BYTES
from .loop import WRITE
from .programs import INPUT_BYTES, Reader, signal_of
from .wrongs import Wrong

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, Tuple

    from ..runner.protocol import Header
    from .channel import Channel
    from .loop import Loop
    from .programs import Program


class Attachment(Reader):
    """A connection that gets the output of a program from a place on, and gives it input."""

    def __init__(self, channel: Channel, program: Program, at: Dict[str, int], owns_input: bool) -> None:
        self.at = at
        #: Whether what it gives is counted, and the count told to it.
        self.owns_input = owns_input
        self._told = program.input_taken
        self._channel = channel
        self._program = program
        channel.on_frame = self._on_frame
        channel.on_room = self.news
        channel.on_closed.append(self._leave)
        program.on_input_room.append(self._input_has_room)
        program.add_reader(self)
        self.news()

    # ---- output ------------------------------------------------------------------------------------------------------
    def news(self) -> None:
        channel, moved = self._channel, False
        for stream, source in self._program.sources.items():
            ring = source.ring
            while not channel.full and not channel.ended and self.at[stream] < ring.end:
                at = max(self.at[stream], ring.start)
                data = ring.read(at, PIECE_BYTES)
                self.at[stream] = at + len(data)
                moved = True
                channel.send(protocol.DATA, {'stream': stream, 'at': at}, data)
        if moved:
            self._program.flow()
        if not self._program.running and not channel.full and not channel.ended and not self._behind():
            channel.send(protocol.EXIT, {'exitCode': self._program.exit_code, 'signal': self._program.signal})
            channel.finish()
            self._leave()

    def _behind(self) -> bool:
        return any(self.at[stream] < source.ring.end for stream, source in self._program.sources.items())

    def stalled_for(self, now: float) -> float:
        return now - self._channel.moved_at if self._channel.unsent else 0.0

    def cut_off(self) -> None:
        self._channel.close()

    def _leave(self) -> None:
        self._program.remove_reader(self)
        if self._input_has_room in self._program.on_input_room:
            self._program.on_input_room.remove(self._input_has_room)

    # ---- input -------------------------------------------------------------------------------------------------------
    def _on_frame(self, kind: int, header: Header, body: bytes) -> None:
        if kind == protocol.DATA:
            self._program.give(body)
            if self.owns_input:
                self._count(len(body))
            if self._program.input_full:
                self._channel.pause()
        elif kind == protocol.END:
            self._program.end_input()
        elif kind == protocol.CONTROL:
            self._control(header)

    def _count(self, size: int) -> None:
        program = self._program
        program.input_taken += size
        if program.input_taken - self._told >= INPUT_BYTES:
            self._told = program.input_taken
            self._channel.send(protocol.CONTROL, {'input': self._told})

    def _input_has_room(self) -> None:
        self._channel.resume()

    def _control(self, header: Header) -> None:
        if 'signal' in header:
            try:
                self._program.kill(signal_of(header['signal']))
            except Wrong:
                pass  # nothing answers a control frame
        elif 'rows' in header:
            try:
                self._program.resize(*size_of(header))
            except Wrong:
                pass


class ContainerOutput(Reader):
    """The container's own output: takes what the entrypoint prints."""

    def __init__(self, loop: Loop, program: Program) -> None:
        self.at = {'stdout': 0, 'stderr': 0}
        self._loop = loop
        self._program = program
        self._fds = {'stdout': 1, 'stderr': 2}
        self._watched: Dict[str, bool] = {}
        for fd in (1, 2):
            try:
                os.set_blocking(fd, False)
            except OSError:
                pass
        program.add_reader(self)

    @property
    def behind(self) -> bool:
        return any(self.at[stream] < source.ring.end for stream, source in self._program.sources.items())

    def news(self) -> None:
        for stream in self._program.sources:
            self._push(stream)

    def _push(self, stream: str) -> None:
        ring, fd, moved = self._program.sources[stream].ring, self._fds[stream], False
        waits = False
        while self.at[stream] < ring.end:
            at = max(self.at[stream], ring.start)
            try:
                sent = os.write(fd, ring.read(at, PIECE_BYTES))
            except BlockingIOError:
                waits = True
                break
            except OSError:
                sent = ring.end - at  # nobody keeps the container's output any longer
            self.at[stream] = at + sent
            moved = True
        if waits != self._watched.get(stream, False):
            self._watched[stream] = waits
            if waits:
                self._loop.watch(fd, WRITE, lambda _events: self._push(stream))
            else:
                self._loop.forget(fd)
        if moved:
            self._program.flow()

    def cut_off(self) -> None:
        pass  # the engine's log is never given up


def size_of(raw: Any) -> Tuple[int, int]:
    """Rows and columns of a terminal. Raises Wrong."""
    rows, columns = raw.get('rows'), raw.get('columns')
    for name, value in (('rows', rows), ('columns', columns)):
        if not isinstance(value, int) or not 1 <= value <= 65535:
            raise Wrong('bad_request', 'terminal.%s must be a number from 1 to 65535' % name)
    return rows, columns
