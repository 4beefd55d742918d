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

    def test_a_task_that_waits_says_what_for_once_and_each_change(self) -> None:
        pull = 'pulling image x: %d of 5 layers'
        answers: List[Dict[str, Any]] = [
            {'summary': 'task t-1 waits', 'details': ['3 wait before it']},
            {'summary': 'c-1 starts', 'waits_for': 'its image', 'details': [pull % 1]},
            {'summary': 'c-1 starts', 'waits_for': 'its image', 'details': [pull % 1]},
            {'summary': 'c-1 starts', 'waits_for': 'its image', 'details': [pull % 2]},
        ]
        containers: List[Dict[str, Any]] = [{'containerId': 'c-0', 'stubId': 'other', 'status': 'PENDING'}]
        paths: List[str] = []

        def call(path: str, what: str) -> Dict[str, Any]:
            paths.append(path)
            if path.endswith('/containers'):
                return {'containers': containers}
            if not answers:
                raise GatewayError('nobody answers')
            return answers.pop(0)

        now = [0.0]
        with mock.patch.object(following, 'call', call), mock.patch.object(following.time, 'monotonic', lambda: now[0]):
            out = Terminal()
            look = following.follower('t-1', out)
            assert look is not None
            task = {'status': 'PENDING', 'stub': {'external_id': 's-1'}}
            look(task)
            self.assertEqual(paths, [])
            for _ in range(6):
                now[0] += 5
                look(task)
                look(task)
                containers[:] = [{'containerId': 'c-1', 'stubId': 's-1', 'status': 'PENDING'}]
        said = ['task t-1 waits; 3 wait before it', pull % 1, pull % 2]
        self.assertEqual(out.getvalue(), ''.join('waiting: %s\n' % line for line in said))
        self.assertEqual(paths[1], '/api/v1/explain/w/t-1')
        self.assertEqual(paths[3], '/api/v1/explain/w/c-1')

    def test_only_a_terminal_of_a_persons_machine_sees_it(self) -> None:
        self.assertIsNone(following.follower('t-1', io.StringIO()))
        with mock.patch.dict(os.environ, {'CONTAINER_ID': 'c'}):
            self.assertIsNone(following.follower('t-1', Terminal()))


if __name__ == '__main__':
    unittest.main()
