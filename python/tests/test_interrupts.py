"""Ctrl-C in programs that wait, and what a map leaves behind: real programs, and a played installation."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any, Dict, List

from .installation import Installation

PACKAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
APP = """
import asyncio, sys
from longshore import Client, TaskError, endpoint, function, task_queue

@function(name='long')
def long(*inputs): ...

@task_queue(name='later')
def later(*inputs): ...

@endpoint(name='page')
def page(): ...

async def gathered():
    await asyncio.gather(*(long.async_remote(n) for n in range(3)))

async def in_time():
    try:
        await asyncio.wait_for(long.async_remote(1), 0.3)
    except asyncio.TimeoutError:
        print('too late')

"""


class Programs(unittest.TestCase):
    def setUp(self) -> None:
        self.installation = Installation()
        self.addCleanup(self.installation.close)
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = made.name
        self.put: List[Any] = []
        #: Statuses by task; others run for ever.
        self.ends: Dict[str, Any] = {}
        self.cancelled: List[str] = []
        #: Set: a cancellation is answered.
        self.answers = threading.Event()
        self.answers.set()
        self.asked_to_cancel = threading.Event()
        #: A task was looked at twice: the program waits.
        self.looked = threading.Event()
        self.looks = 0
        answers = self.installation.answers
        answers['GET /api/v1/workspace/current'] = {'external_id': 'w'}
        answers['POST /function/long'] = answers['POST /taskqueue/later'] = self.on_put
        answers['POST /endpoint/page'] = self.on_page
        answers['POST /api/v1/gateway/tasks/stop'] = self.on_stop
        self.let_go = threading.Event()
        self.addCleanup(self.let_go.set)
        self.addCleanup(self.answers.set)

    def on_put(self, _query: Any, body: Any) -> Any:
        lines = body.split(b'\n') if isinstance(body, bytes) else [body]
        ids = []
        for line in lines:
            task_id = 't-%d' % (len(self.put) + 1)
            self.put.append(line)
            ids.append(task_id)
            self.installation.answers['GET /api/v1/task/w/' + task_id] = lambda _query, _body, of=task_id: self.on_look(of)
        return {'task_id': ids[0]} if not isinstance(body, bytes) else {'task_ids': ids}

    def on_look(self, task_id: str) -> Any:
        self.looks += 1
        if self.looks > 1:
            self.looked.set()
        return self.ends.get(task_id, {'status': 'RUNNING'})

    def on_stop(self, _query: Any, body: Any) -> Any:
        self.asked_to_cancel.set()
        self.answers.wait(30)
        self.cancelled += body['taskIds']
        return {'ok': True}

    def on_page(self, _query: Any, _body: Any) -> Any:
        self.looked.set()
        self.let_go.wait(30)
        return {}

    def started(self, text: str, **options: Any) -> 'subprocess.Popen[str]':
        with open(os.path.join(self.folder, 'app.py'), 'w', encoding='utf-8') as file:
            file.write(APP + text)
        clean = {name: value for name, value in os.environ.items() if name not in ('CONTAINER_ID', 'LONGSHORE_GATEWAY_SOCKET')}
        environ = dict(clean, PYTHONPATH=PACKAGES, PYTHONDONTWRITEBYTECODE='1', LONGSHORE_URL=self.installation.url, LONGSHORE_TOKEN='t')
        piped: Dict[str, Any] = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options}
        program = subprocess.Popen([sys.executable, 'app.py'], cwd=self.folder, env=environ, text=True, **piped)
        self.addCleanup(program.kill)
        return program


class Interrupts(Programs):
    def interrupted(self, text: str) -> Any:
        """What a program says, and how it ends, when Ctrl-C comes while it waits."""
        program = self.started(text)
        self.assertTrue(self.looked.wait(20))
        program.send_signal(signal.SIGINT)
        out, said = program.communicate(timeout=20)
        return program.returncode, out, said

    def test_what_a_program_waits_for_is_cancelled_and_one_line_says_so(self) -> None:
        for text, tasks in (
            ('long.remote(60)', 1),
            ('long.put(1).result(wait=True)', 1),
            ('later.spawn(1).subscribe()', 1),
            ("list(long.map(range(7)))", 7),
            ("list(later.starmap([(1, 2), (3, 4)], ordered=False))", 2),
        ):
            with self.subTest(text):
                self.put.clear()
                self.cancelled.clear()
                self.looked.clear()
                self.looks = 0
                code, _, said = self.interrupted(text)
                self.assertEqual(said, 'stopped: %s\n' % ('task t-1 was cancelled' if tasks == 1 else '%d tasks were cancelled' % tasks))
                self.assertEqual(code, -signal.SIGINT)
                self.assertEqual(sorted(self.cancelled), ['t-%d' % n for n in range(1, tasks + 1)])

    def test_an_event_loop_cancels_what_it_waits_for(self) -> None:
        program = self.started('asyncio.run(gathered())')
        while len(self.put) < 3 or not self.looked.is_set():
            time.sleep(0.01)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=20)
        self.assertEqual((said, sorted(self.cancelled)), ('stopped: 3 tasks were cancelled\n', ['t-1', 't-2', 't-3']))
        program = self.started('asyncio.run(in_time())')
        out, said = program.communicate(timeout=20)
        self.assertEqual((out, said, self.cancelled[3:]), ('too late\n', '', ['t-4']))

    def test_a_program_may_catch_it(self) -> None:
        text = 'try:\n    long.remote(1)\nexcept KeyboardInterrupt:\n    print("caught")'
        self.assertEqual(self.interrupted(text), (0, 'caught\n', 'stopped: task t-1 was cancelled\n'))

    def test_the_task_of_another_program_goes_on(self) -> None:
        self.on_put({}, {})
        code, _, said = self.interrupted("Client().get_task_by_id('t-1').result(wait=True)")
        self.assertEqual((code, said), (-signal.SIGINT, 'task t-1 goes on: `longshore task stop t-1` cancels it\n'))
        self.assertEqual(self.cancelled, [])

    def test_a_call_of_an_endpoint_is_left_and_the_line_says_how_to_stop_it(self) -> None:
        code, _, said = self.interrupted('page.invoke()')
        self.assertEqual((code, said), (-signal.SIGINT, 'left: a call of page that has begun goes on; `longshore task list --status RUNNING` has its id, for `longshore task stop`\n'))

    def test_the_second_leaves_at_once(self) -> None:
        self.answers.clear()
        program = self.started('long.remote(60)')
        self.assertTrue(self.looked.wait(20))
        program.send_signal(signal.SIGINT)
        self.assertTrue(self.asked_to_cancel.wait(20))
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=5)
        self.assertEqual(said, 'left at once: `longshore task stop t-1` cancels what goes on\n')

    def test_a_cancellation_that_is_refused_says_how(self) -> None:
        self.installation.answers['POST /api/v1/gateway/tasks/stop'] = {'ok': False, 'errMsg': 'no'}
        _, _, said = self.interrupted('long.remote(60)')
        self.assertEqual(said, 'cannot cancel task t-1: no; `longshore task stop t-1` cancels what goes on\n')


class Maps(Programs):
    """What a map gives and leaves behind."""

    def ended(self, text: str) -> Any:
        program = self.started(text)
        out, said = program.communicate(timeout=20)
        return out, said

    def end(self, task_id: str, result: Any, status: str = 'COMPLETE') -> None:
        self.ends[task_id] = {'status': status, 'result': result, 'stub': {'type': 'function'}}

    def test_results_come_as_they_come(self) -> None:
        for n in (3, 1, 2):
            self.end('t-%d' % n, n)
        self.ends['t-1'] = {'status': 'RUNNING'}

        def look(_query: Any, _body: Any) -> Any:
            # The first ends after the others were read.
            if {'t-2', 't-3'} <= {path[-3:] for _, path, _ in self.installation.seen}:
                self.end('t-1', 1)
            return self.ends['t-1']

        put = self.on_put

        def on_put(query: Any, body: Any) -> Any:
            answer = put(query, body)
            self.installation.answers['GET /api/v1/task/w/t-1'] = look
            return answer

        self.installation.answers['POST /function/long'] = on_put
        self.assertEqual(self.ended('print(list(long.map([1, 2, 3], ordered=False)))'), ('[2, 3, 1]\n', ''))

    def test_a_failure_is_raised_and_the_others_are_cancelled(self) -> None:
        self.end('t-1', 1)
        self.end('t-2', {'error': 'ValueError: two'}, 'ERROR')
        for ordered in ('', ', ordered=False'):
            self.put.clear()
            self.cancelled.clear()
            out, said = self.ended('try:\n    list(long.map(range(5)%s))\nexcept TaskError as error:\n    print(error)' % ordered)
            self.assertEqual((out, said), ('task t-2 ended as ERROR: ValueError: two\n', ''))
            self.assertEqual(self.cancelled, ['t-3', 't-4', 't-5'])

    def test_failures_may_be_results(self) -> None:
        self.end('t-1', {'error': 'ValueError: one'}, 'ERROR')
        self.end('t-2', 2)
        out, said = self.ended('print([str(one) for one in long.map(range(2), return_exceptions=True)])')
        self.assertEqual((out, said, self.cancelled), ("['task t-1 ended as ERROR: ValueError: one', '2']\n", '', []))

    def test_what_nobody_takes_is_cancelled(self) -> None:
        self.end('t-1', 1)
        text = 'for one in long.map(range(3)):\n    break\nprint("next")'
        self.assertEqual(self.ended(text), ('next\n', ''))
        self.assertEqual(self.cancelled, ['t-2', 't-3'])
        self.put.clear()
        self.cancelled.clear()
        out, said = self.ended('results = long.map(range(3))\nprint(next(results))')
        self.assertEqual((out, said), ('1\n', 'stopped: 2 tasks were cancelled, because nobody waits for the result\n'))
        self.assertEqual(self.cancelled, ['t-2', 't-3'])

    def test_inputs_of_starmap_are_unpacked(self) -> None:
        self.end('t-1', 1)
        self.end('t-2', 2)
        self.assertEqual(self.ended('print(list(long.starmap(zip([1, 2], [3, 4]))))'), ('[1, 2]\n', ''))
        self.assertEqual(self.put, [b'{"args": [1, 3], "kwargs": {}}', b'{"args": [2, 4], "kwargs": {}}'])
        self.assertIn("TypeError: starmap: each input is a tuple or a list of positional inputs, not 'ab'", self.ended("list(long.starmap(['ab']))")[1])

    def test_a_terminal_shows_how_many_are_done(self) -> None:
        self.end('t-2', 2)
        ours, theirs = pty.openpty()
        program = self.started('import longshore.mapping as m; m._PROGRESS_AFTER_SECONDS = 0\nfor one in long.map(range(3)): print(one)', stderr=theirs)
        os.close(theirs)
        shown = b''
        while b'long: 1 of 3 done' not in shown:
            shown += os.read(ours, 1000)
        self.end('t-1', {'error': 'no'}, 'ERROR')
        self.assertEqual(program.communicate(timeout=20)[0], '')
        while b'ended as ERROR' not in shown:
            shown += os.read(ours, 1000)
        # The line is cleared before anything else is printed.
        self.assertRegex(shown, rb'\r\x1b\[Klong: 1 of 3 done[^\n]*\r\x1b\[K(Traceback|  )')
        os.close(ours)


if __name__ == '__main__':
    unittest.main()
