"""Results that a runner keeps until the agent acknowledges them."""

from __future__ import annotations

import types
import unittest
from typing import Any, List

from longshore.runner import protocol
from longshore.runner.server import MAX_UNACKNOWLEDGED, MAX_UNACKNOWLEDGED_BYTES, Server
from longshore.runner.task import Task


class Link:
    """A connection of an agent that acknowledges nothing."""

    def __init__(self) -> None:
        self.sent: List[bytes] = []

    def send_packed(self, frame: bytes) -> bool:
        self.sent.append(frame)
        return True


class Unacknowledged(unittest.TestCase):
    def setUp(self) -> None:
        application: Any = types.SimpleNamespace(settings=types.SimpleNamespace(slots=1))
        link: Any = Link()
        self.server = Server(application, link, {})

    def answer(self, task_id: str, body: bytes) -> None:
        self.server._answer(Task(task_id, 'token', None, 0), 'ok', body)

    def test_those_of_a_second_of_small_calls_are_kept(self) -> None:
        for number in range(MAX_UNACKNOWLEDGED):
            self.answer('t%d' % number, b'{"ok":true}')
        self.assertIn(('t0', 'token'), self.server.unacknowledged)
        self.answer('one more', b'')
        self.assertNotIn(('t0', 'token'), self.server.unacknowledged)
        self.assertEqual(len(self.server.unacknowledged), MAX_UNACKNOWLEDGED)

    def test_large_ones_are_bounded_by_their_bytes_and_the_newest_is_kept(self) -> None:
        large = b'x' * (MAX_UNACKNOWLEDGED_BYTES // 4)
        for number in range(5):
            self.answer('t%d' % number, large)
        self.assertEqual([key[0] for key in self.server.unacknowledged], ['t1', 't2', 't3', 't4'])
        self.answer('huge', large * 5)
        self.assertEqual([key[0] for key in self.server.unacknowledged], ['huge'])

    def test_an_acknowledged_one_makes_room(self) -> None:
        large = b'x' * (MAX_UNACKNOWLEDGED_BYTES // 2)
        self.answer('a', large)
        self.server.on_frame(protocol.ACKED, {'taskId': 'a', 'token': 'token'}, b'')
        self.assertEqual(self.server.unacknowledged_bytes, 0)
        self.answer('b', large)
        self.answer('c', large)
        self.assertEqual([key[0] for key in self.server.unacknowledged], ['b', 'c'])

    def test_a_hello_names_what_runs_and_then_the_newest_of_1500_results_and_all_of_them_are_repeated(self) -> None:
        running = Task('running', 'token', None, 0)
        self.server.held[running.key] = running
        for number in range(1500):
            self.answer('t%d' % number, b'1')
        holding = [pair['taskId'] for pair in self.server._hello()['holding']]
        self.assertEqual(holding, ['running'] + ['t%d' % number for number in range(1499, 1100, -1)])
        # An agent that is new acknowledges each of them once it has the result.
        frames = protocol.FrameCutter().feed(b''.join(self.server._greeting()))
        self.assertEqual([header['taskId'] for _kind, header, _body in frames], ['t%d' % number for number in range(1500)])
        for _kind, header, _body in frames:
            self.server.on_frame(protocol.ACKED, header, b'')
        self.assertEqual(len(self.server.unacknowledged), 0)
        self.assertEqual(self.server._hello()['holding'], [{'taskId': 'running', 'token': 'token'}])


if __name__ == '__main__':
    unittest.main()
