"""The last bytes of an output, by their place in the whole."""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False  # `typing` itself costs 3 ms of every cold start
if TYPE_CHECKING:
    from typing import Any, Deque, Tuple

RING_BYTES = 1024 * 1024
#: Smaller pieces are put together, so that many of them do not cost much more than their bytes.
_JOINED_BYTES = 32 * 1024


class Ring:
    """Keeps the newest `capacity` bytes; `start` and `end` are places in the whole output."""

    def __init__(self, capacity: int = RING_BYTES) -> None:
        self.capacity = capacity
        self.start = 0
        self.end = 0
        #: Place of a part in the whole, and the part.
        self._parts: Deque[Tuple[int, Any]] = deque()

    def __len__(self) -> int:
        return self.end - self.start

    def add(self, data: bytes) -> None:
        last = self._parts[-1][1] if self._parts else None
        if isinstance(last, bytearray) and len(last) + len(data) <= _JOINED_BYTES:
            last += data
        elif len(data) < _JOINED_BYTES:
            self._parts.append((self.end, bytearray(data)))
        else:
            self._parts.append((self.end, data))
        self.end += len(data)
        self.shrink(self.capacity)

    def shrink(self, most: int) -> None:
        """Drops the oldest bytes above that number."""
        self.start = max(self.start, self.end - most)
        parts = self._parts
        while parts and parts[0][0] + len(parts[0][1]) <= self.start:
            parts.popleft()

    def read(self, at: int, most: int) -> bytes:
        """Bytes from a place on, which must not be before `start`; empty at the end. May be fewer than there are."""
        if at >= self.end:
            return b''
        for place, part in self._parts:
            if at < place + len(part):
                first = at - place
                if first == 0 and len(part) <= most and isinstance(part, bytes):
                    return part
                return bytes(memoryview(part)[first : first + most])
        return b''
