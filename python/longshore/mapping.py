"""
`map` of a handler: a call for each input, and the results as a loop takes them. Loaded at its first use.

Must stay true: what nobody waits for any more is cancelled. That is so after a failure that is raised, after `break`, at
Ctrl-C and at the end of the program.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Optional, Sequence, TextIO

from .client import GatewayError
from .failures import shallow
from .interrupts import cancelled, waited, was_cancelled
from .results import OVER, Reader, TaskError, pauses, result_of

PutMany = Callable[[Sequence[Sequence[Any]]], List[Optional[str]]]

#: Bound on calls of one `map` that are put and not yielded.
_AT_A_TIME = 1000
#: Results after which calls that found no room are tried again, where so many are left.
_TRY_AFTER = 16
#: Bound on a request that follows a full queue.
_AFTER_FULL = 64
#: Statuses of a queue, or of a scheduler, that has no room now.
_NO_ROOM = (429, 503)
#: Tasks that are looked at in one turn, where results come in any order: all get their turn.
_LOOKS = 32
#: Longest pause between two turns where there are more tasks.
_TURN_SECONDS = 0.2
#: Looks beside the one at the first task, for the progress on a terminal.
_LOOKS_ASIDE = 8
#: A map that is over sooner shows no progress.
_PROGRESS_AFTER_SECONDS = 1.0
_PROGRESS_EACH_SECONDS = 0.2

#: Maps that are not over.
_open: 'weakref.WeakSet[Map]' = weakref.WeakSet()


class _Slot:
    """An input of `map`, its task once it is put, and the task's record once it has ended."""

    __slots__ = ('call', 'task_id', 'task')

    def __init__(self, call: Sequence[Any]) -> None:
        self.call = call
        self.task_id: Optional[str] = None
        self.task: Optional[Dict[str, Any]] = None


class Map:
    """One `map`. `put_many` puts as many calls as it may, and is asked again for the others after results of earlier
    ones. name: of the deployment, for the progress."""

    def __init__(self, put_many: PutMany, name: str, ordered: bool = True, return_exceptions: bool = False) -> None:
        self._put_many = put_many
        self._ordered = ordered
        self._return_exceptions = return_exceptions
        self._slots: Deque[_Slot] = deque()
        #: Slots whose tasks have not ended, as far as is known. The next one to look at is the first.
        self._running: Deque[_Slot] = deque()
        self._is_over = False
        #: Number of results after which further calls are tried; 0: now.
        self._until = 0
        self._most = _AT_A_TIME
        self._reader = Reader()
        self._progress = _Progress(name)

    def results(self, inputs: Iterable[Any]) -> Iterator[Any]:
        """Yields the result for each input, a list of positional inputs."""
        source = iter(inputs)
        _open.add(self)
        try:
            while True:
                self._fill(source)
                if not self._slots:
                    return
                slot = self._waited()
                if slot is None:
                    continue
                self._slots.remove(slot)
                self._until -= 1
                self._progress.clear()
                try:
                    result = result_of(slot.task or {}, str(slot.task_id))
                except TaskError as failure:
                    self._progress.failed += 1
                    if not self._return_exceptions:
                        raise
                    result = failure
                yield result
        except (GatewayError, TaskError) as failure:
            raise shallow(failure)
        finally:
            self._progress.end()
            self.close()

    def close(self) -> List[str]:
        """Cancels what was put and has not ended; the ids of those tasks."""
        _open.discard(self)
        left = self._ids()
        self._slots.clear()
        self._running.clear()
        if not left or os.environ.get('CONTAINER_ID'):
            return []
        try:
            cancelled(left)
        except GatewayError:
            return []  # the token may not; the tasks end by themselves
        return left

    def _ids(self) -> List[str]:
        return [str(slot.task_id) for slot in self._running]

    def _waited(self) -> Optional[_Slot]:
        try:
            return waited(self._next, self._ids)
        except KeyboardInterrupt:
            self._running.clear()  # they are cancelled, or it was said that they go on
            raise

    def _fill(self, source: Iterator[Any]) -> None:
        while not self._is_over and len(self._slots) < _AT_A_TIME:
            try:
                self._slots.append(_Slot(next(source)))
                self._progress.inputs += 1
            except StopIteration:
                self._is_over = self._progress.is_counted = True

    def _next(self) -> Optional[_Slot]:
        """Puts what has room, and waits for the next result; None: there may be room for others."""
        waiting = [slot for slot in self._slots if slot.task_id is None]
        if waiting and (self._until <= 0 or len(waiting) == len(self._slots)):
            self._until = self._put(waiting, len(self._slots) > len(waiting), self._most)
            # Behind a full queue, further requests are small: most of their calls would find no room.
            self._most = _AFTER_FULL if self._until > 0 else _AT_A_TIME
        first = next((slot for slot in self._slots if slot.task_id is not None), None)
        if first is None:
            raise GatewayError('no call of map was taken', 429)
        if not self._ordered:
            return self._any()
        self._wait_for(first)
        if self._slots[0] is first:
            return first
        # The queue took a later call than the first, which waits for room.
        self._until = 0
        return None

    def _any(self) -> _Slot:
        """Waits until any task has ended."""
        for pause in pauses():
            for _ in range(min(_LOOKS, len(self._running))):
                slot = self._running[0]
                self._running.rotate(-1)
                if self._look(slot):
                    return slot
            self._progress.show()
            time.sleep(min(pause, _TURN_SECONDS) if len(self._running) > _LOOKS else pause)
        raise AssertionError('pauses have no end')

    def _wait_for(self, wanted: _Slot) -> None:
        """Waits until this task has ended. Others are looked at for the progress alone."""
        if wanted.task is not None:
            return
        for pause in pauses():
            if self._look(wanted):
                return
            if self._progress.show():
                for _ in range(min(_LOOKS_ASIDE, len(self._running))):
                    slot = self._running[0]
                    self._running.rotate(-1)
                    if slot is not wanted:
                        self._look(slot)
            time.sleep(pause)

    def _look(self, slot: _Slot) -> bool:
        """Whether the task has ended."""
        task = self._reader.read(str(slot.task_id))
        if task is None or task.get('status') not in OVER:
            return False
        slot.task = task
        self._running.remove(slot)
        self._progress.done += 1
        return True

    def _put(self, waiting: List[_Slot], has_others: bool, most: int) -> int:
        """Puts calls, at most so many in a request, until all are put or there is no room. Returns after how many
        results it is worth another try. Raises GatewayError when nothing can be put and there is nothing to wait for."""
        at = 0
        while at < len(waiting):
            try:
                ids = self._put_many([slot.call for slot in waiting[at : at + most]])
            except GatewayError as problem:
                if problem.status not in _NO_ROOM or (at == 0 and not has_others):
                    raise
                return min(_TRY_AFTER, max(1, len(waiting) - at))
            for slot, task_id in zip(waiting[at:], ids):
                slot.task_id = task_id
                if task_id is not None:
                    self._running.append(slot)
            if None in ids:
                return min(_TRY_AFTER, ids.count(None))
            at += len(ids)
        return 0


class _Progress:
    """A line on a terminal, while the program waits: `add: 37 of 200 done, 2 failed`. It is cleared before a result is
    given, so that the program's own output stays whole."""

    def __init__(self, name: str, out: Optional[TextIO] = None) -> None:
        self.inputs = self.done = self.failed = 0
        #: All inputs are known.
        self.is_counted = False
        self._name = name
        self._out = out or sys.stderr
        self._shown = ''
        self._next = time.monotonic() + _PROGRESS_AFTER_SECONDS
        self._is_on = not os.environ.get('CONTAINER_ID') and self._out.isatty()

    def show(self) -> bool:
        """Draws the line, where it is time; whether there is a terminal to show it."""
        if self._is_on and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_EACH_SECONDS
            failed = ', %d failed' % self.failed if self.failed else ''
            self._draw('%s: %d%s done%s' % (self._name, self.done, ' of %d' % self.inputs if self.is_counted else '', failed))
        return self._is_on

    def clear(self) -> None:
        if self._shown:
            self._draw('')

    end = clear

    def _draw(self, text: str) -> None:
        self._shown = text
        self._out.write('\r\x1b[K' + text)
        self._out.flush()


def positional(one: Any) -> List[Any]:
    """The positional inputs of one call of `map`: a tuple or a list has several."""
    return list(one) if isinstance(one, (tuple, list)) else [one]


def unpacked(one: Any) -> List[Any]:
    """The positional inputs of one call of `starmap`."""
    if isinstance(one, (str, bytes)) or not hasattr(one, '__iter__'):
        raise TypeError('starmap: each input is a tuple or a list of positional inputs, not %r' % (one,))
    return list(one)


@atexit.register
def _end_all() -> None:
    """The program ends: nobody takes further results."""
    left = [task_id for one in list(_open) for task_id in one.close()]
    if left:
        print('stopped: %s, because nobody waits for the result' % was_cancelled(left), file=sys.stderr)
