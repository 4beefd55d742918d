"""The output of a task on the terminal of the program that waits for it."""

from __future__ import annotations

import io
import os
import unittest
from typing import Any, Dict, List
from unittest import mock

from longshore import GatewayError, following


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Following(unittest.TestCase):
    def setUp(self) -> None:
        for patch in (
            mock.patch.dict(os.environ, {'CONTAINER_ID': ''}),
            mock.patch.object(following, 'workspace_of', lambda what: 'w'),
            mock.patch.object(following, '_LATE_SECONDS', 0),
            mock.patch.object(following, 'call', self.call),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.lines: List[Dict[str, Any]] = []
        self.paths: List[str] = []
        self.is_away = False

    def call(self, path: str, what: str) -> Dict[str, Any]:
        self.paths.append(path)
        if self.is_away:
            raise GatewayError('nobody answers')
        after = int(path.split('after_seq=')[1].split('&')[0])
        return {'logs': [line for line in self.lines if line['seq_num'] > after]}

    def test_each_line_comes_once_and_the_last_ones_after_the_end(self) -> None:
        out = Terminal()
        look = following.follower('t-1', out)
        assert look is not None
        look({'status': 'PENDING'})
        self.assertEqual(self.paths, [])
        self.lines.append({'seq_num': 4, 'message': 'one'})
        look({'status': 'RUNNING'})
        self.is_away = True
        look({'status': 'RUNNING'})
        self.is_away = False
        self.lines.append({'seq_num': 9, 'message': 'two'})
        look({'status': 'COMPLETE'})
        self.assertEqual(out.getvalue(), 'one\ntwo\n')
        self.assertEqual(self.paths[-1], '/api/v1/logs/w?task_id=t-1&after_seq=9&limit=1000')

    def test_only_a_terminal_of_a_persons_machine_sees_it(self) -> None:
        self.assertIsNone(following.follower('t-1', io.StringIO()))
        with mock.patch.dict(os.environ, {'CONTAINER_ID': 'c'}):
            self.assertIsNone(following.follower('t-1', Terminal()))


if __name__ == '__main__':
    unittest.main()
