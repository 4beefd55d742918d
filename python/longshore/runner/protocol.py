"""Frames between the runner, the agent and the scheduler: Python's only definition of the kind numbers.

A frame is 4 bytes of length (big-endian, of the rest, at most 1 MiB), 1 byte of kind, 2 bytes of header length, the
header (JSON) and the body (bytes). Unknown kinds and header fields are ignored, so that neighbouring versions
understand each other.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    Header = Dict[str, Any]

    Frame = Tuple[int, Header, bytes]

VERSION = 1
MAX_FRAME_BYTES = 1024 * 1024
#: Longer results travel as `chunk` frames of PART_BYTES before their `result`.
INLINE_BYTES = 256 * 1024
PART_BYTES = 512 * 1024
#: Bound on an input in parts, and on a result.
MAX_BODY_BYTES = 64 * 1024 * 1024

HELLO = 1
WELCOME = 2
STARTING = 3
READY = 4
FAILED = 5
RUN = 6
STARTED = 7
CHUNK = 8
RESULT = 9
ACKED = 10
CANCEL = 11
LOG = 12
KILL = 13
DRAIN = 14
EXITED = 15
# Frames of `streams.sock`.
STREAM = 16
REQUEST = 17
RESPONSE = 18
DATA = 19
END = 20
READING = 21
MESSAGE = 22
CLOSE = 23
# Frames of supervisors (docs/supervisor-protocol.md).
CONTROL = 24
EXIT = 25
# Frames of a development server (docs/runner-protocol.md).
RETIRE = 26
RETURNED = 27
#: Between its processes alone: the files of the modules that the process has imported, a JSON list.
LOADED = 28
#: The container leaves for another one, or stays after all.
INTERRUPT = 29
#: Bound on the body of a DATA or MESSAGE frame.
PIECE_BYTES = 256 * 1024


#: Length of the rest, kind, length of the header.
PREFIX = struct.Struct('>IBH')
_encode = json.JSONEncoder(separators=(',', ':')).encode


def encode_header(header: Header) -> bytes:
    return _encode(header).encode('ascii')


class FrameError(Exception):
    """Bytes that are not a frame: their connection cannot be used any more."""


def pack(kind: int, header: Header, body: bytes = b'') -> bytes:
    """Packs a frame; raises FrameError above a limit."""
    head = encode_header(header)
    length = 3 + len(head) + len(body)
    if length > MAX_FRAME_BYTES or len(head) > 0xFFFF:
        raise FrameError('frame of %d bytes with a header of %d is over the limit' % (length, len(head)))
    return PREFIX.pack(length, kind, len(head)) + head + body


def prefix(kind: int, body_length: int) -> bytes:
    """The beginning of a frame without a header, whose body is sent behind it."""
    return PREFIX.pack(3 + body_length, kind, 0)


def check_prefix(length: int, head_length: int) -> None:
    """Raises FrameError for lengths that no frame has."""
    if length > MAX_FRAME_BYTES or length < 3 + head_length:
        raise FrameError('frame length %d with header length %d' % (length, head_length))


class FrameCutter:
    """Cuts a byte stream into frames, in pieces of any size. With `splits_data`, a DATA frame without a header comes in
    parts, as its bytes do: a large body is neither gathered nor copied."""

    def __init__(self, splits_data: bool = False) -> None:
        self._splits_data = splits_data
        #: The beginning of a frame that has not come whole.
        self._kept = bytearray()
        #: Bytes of a DATA frame that are still to come, where such frames come in parts.
        self._rest = 0

    def feed(self, data: bytes) -> List[Frame]:
        """Frames that `data` completes, oldest first."""
        frames: List[Frame] = []
        at = 0
        if self._rest:  # then nothing is kept
            part = data[: self._rest]
            self._rest -= len(part)
            frames.append((DATA, {}, part))
            if len(part) == len(data):
                return frames
            at = len(part)
        kept = self._kept
        buffer: Any = data
        if kept:
            kept += data
            buffer = kept
        size = len(buffer)
        while size - at >= 7:
            length, kind, head_length = PREFIX.unpack_from(buffer, at)
            check_prefix(length, head_length)
            end = at + 4 + length
            head_end = at + 7 + head_length
            if size < end:
                if self._splits_data and kind == DATA and not head_length:
                    if size > head_end:
                        frames.append((DATA, {}, bytes(buffer[head_end:])))
                    self._rest = end - size
                    at = size
                break
            frames.append((kind, _header(bytes(buffer[at + 7 : head_end])), bytes(buffer[head_end:end])))
            at = end
        if buffer is kept:
            del kept[:at]
        else:
            kept += data[at:]
        if len(kept) >= 4 and int.from_bytes(kept[:4], 'big') > MAX_FRAME_BYTES:
            raise FrameError('frame length over the limit')
        return frames


def _header(data: bytes) -> Header:
    if not data:
        return {}
    try:
        header = json.loads(data)
    except ValueError as error:
        raise FrameError('header is not JSON') from error
    if not isinstance(header, dict):
        raise FrameError('header is not an object')
    return header
