"""Tracebacks of failed calls in callers' programs: real programs, and a played installation."""

from __future__ import annotations

import asyncio
import os
import traceback
import unittest
from typing import Any, Callable, List
from unittest import mock

from longshore import GatewayError, TaskError, endpoint, function, task_queue

from .test_interrupts import Programs

#: What the container of a task printed: an earlier attempt, then the last.
PRINTED = [
    'Traceback (most recent call last):',
    'OSError: earlier',
    'a print',
    'Traceback (most recent call last):',
    '  File "/mnt/code/app.py", line 7, in long',
    "    return {}['x']",
    "KeyError: 'x'",
    '',
    'During handling of the above exception, another exception occurred:',
    '',
    'Traceback (most recent call last):',
    '  File "/mnt/code/app.py", line 9, in long',
    '    raise ValueError(n)',
    'ValueError: 3',
]
REMOTE = '\n'.join(PRINTED[3:])


class Uncaught(Programs):
    def setUp(self) -> None:
        super().setUp()
        for number in range(1, 9):
            self.ends['t-%d' % number] = {'status': 'ERROR', 'result': {'error': 'ValueError: 3'}}
        self.installation.answers['GET /api/v1/logs/w'] = {'logs': [{'message': line} for line in PRINTED]}

    def said(self, text: str) -> str:
        program = self.started(text)
        _, said = program.communicate(timeout=30)
        self.assertEqual(program.returncode, 1, said)
        return said

    def test_the_programs_own_line_comes_first_then_the_traceback_of_the_container(self) -> None:
        for text in (
            'for one in long.map([1, 2]):\n    print(one)',
            'list(later.starmap([(1, 2)], ordered=False))',
            'long.remote(3)',
            'long.put(3).result(wait=True)',
            'Client().get_task_by_id(long.put(3)).subscribe()',
            'import asyncio\nasyncio.run(long.async_remote(3))',
        ):
            with self.subTest(text):
                said = self.said(text)
                self.assertNotIn(os.path.join('longshore', ''), said)
                lines = said.splitlines()
                self.assertEqual(lines[0], 'Traceback (most recent call last):')
                self.assertIn('app.py", line %d, in <module>' % (self.first_line() + text.count('\n', 0, text.index('long.') if 'long.' in text else 0)), lines[1])
                local, _, remote = said.partition('in its container (`longshore logs --task t-')
                self.assertRegex(local, r'longshore\.results\.TaskError: task t-\d ended as ERROR: ValueError: 3\n')
                self.assertEqual(remote.partition('\n')[2].rstrip('\n'), REMOTE)

    def first_line(self) -> int:
        """Number of the first line of the program's own text."""
        from .test_interrupts import APP

        return APP.count('\n') + 1

    def test_without_a_traceback_of_its_container_the_failure_says_where_its_output_is(self) -> None:
        for logs in ((403, {'message': 'no'}), {'logs': []}, {'logs': [{'message': 'a print'}]}):
            self.installation.answers['GET /api/v1/logs/w'] = logs
            said = self.said('long.remote(3)')
            self.assertNotIn('in its container', said)
            self.assertRegex(said, r'ended as ERROR: ValueError: 3\n\nwhat it printed: `longshore logs --task t-\d`\n$')

    def test_a_refused_call_shows_the_programs_line_alone(self) -> None:
        self.installation.answers['POST /function/long'] = (400, {'message': 'Invalid deployment version'})
        said = self.said("import os\nos.environ['LONGSHORE_RUN'] = ''\nlong.put(1)")
        self.assertNotIn(os.path.join('longshore', ''), said)
        self.assertIn('long.put(1)', said)

    def test_a_hook_of_the_program_still_gets_its_failures(self) -> None:
        said = self.said("import sys\nsys.excepthook = lambda kind, value, trace: print('mine', kind.__name__, value, file=sys.stderr)\nlong.remote(3)")
        self.assertTrue(said.startswith('mine TaskError task t-1 ended'), said)
        said = self.said('import sys\nclass Own(Exception): pass\ntry:\n    long.remote(3)\nexcept TaskError as failure:\n    raise Own() from failure')
        self.assertIn('direct cause', said)
        self.assertIn('Own', said.splitlines()[-1])


def frames(call: Callable[[], Any], kind: Any) -> List[str]:
    """The functions between this one and the failure."""
    try:
        call()
    except kind as failure:
        return [one.name for one in traceback.extract_tb(failure.__traceback__)][1:]
    raise AssertionError('it did not fail')


class Caught(unittest.TestCase):
    def test_a_caught_failure_has_one_frame_of_the_module(self) -> None:
        @function(name='f')
        def f(n: int) -> int:
            return n

        @endpoint(name='e')
        def e() -> None: ...

        @task_queue(name='q')
        def q() -> None: ...

        def refused(*given: Any, **named: Any) -> Any:
            raise GatewayError('refused', 500)

        with mock.patch('longshore.client.put', refused), mock.patch('longshore.client.put_many', refused), mock.patch('longshore.client.invoke', refused):
            for call, frame in (
                (lambda: f.put(1), 'put'),
                (lambda: f.spawn(1), 'put'),
                (lambda: f.remote(1), 'remote'),
                (lambda: e.invoke(), 'invoke'),
                (lambda: q.put(), 'put'),
                (lambda: list(f.map([1])), 'results'),
            ):
                with self.subTest(frame):
                    self.assertEqual(frames(call, GatewayError)[1:][-1:], [frame])
                    self.assertLessEqual(len(frames(call, GatewayError)), 3)
            self.assertIn('async_remote', frames(lambda: asyncio.run(f.async_remote(1)), GatewayError)[-1])

    def test_what_a_program_raises_itself_keeps_all_its_frames(self) -> None:
        @function(name='f')
        def f(n: int) -> int:
            return n

        def inputs() -> Any:
            yield 1
            raise ValueError('mine')

        self.assertEqual(frames(lambda: list(f.map(inputs())), ValueError)[-1], 'inputs')
        self.assertTrue(issubclass(TaskError, RuntimeError))


if __name__ == '__main__':
    unittest.main()
