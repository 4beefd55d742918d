"""`function.remote`, `map` and `put` against a small real HTTP server that plays an installation."""

from __future__ import annotations

import json
import os
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, List, Tuple
from unittest import mock

from longshore import GatewayError, TaskError, function, mapping, results, schedule, task_queue


class Server(HTTPServer):
    """An installation whose tasks end after a few queries."""

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), Handler)
        self.tasks: Dict[str, Dict[str, Any]] = {}
        self.looks: Dict[str, int] = {}
        self.put: List[Tuple[str, Any]] = []
        #: Number of calls in each request with many.
        self.requests: List[int] = []
        #: Bound on tasks that wait at a time.
        self.room = 1000
        #: Number of requests that get 503, as from an absent scheduler.
        self.away = 0
        self.end: Any = lambda kwargs: ('COMPLETE', kwargs)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        server = self.server
        data = self.rfile.read(int(self.headers['Content-Length']))
        if self.headers['Content-Type'] == 'application/x-ndjson':
            return self.put_many([json.loads(line) for line in data.split(b'\n')])
        body = json.loads(data)
        if sum(one['status'] == 'PENDING' for one in server.tasks.values()) >= server.room:
            return self.answer(429, {'error': 'exceeded max pending tasks: %d' % server.room})
        server.put.append((self.path, body))
        task_id = 't-%d' % len(server.put)
        server.tasks[task_id] = {'status': 'PENDING', 'body': body, 'result': None}
        self.answer(200, {'task_id': task_id})

    def put_many(self, bodies: List[Any]) -> None:
        server = self.server
        server.requests.append(len(bodies))
        ids: List[Any] = []
        for body in bodies:
            if sum(one['status'] == 'PENDING' for one in server.tasks.values()) >= server.room:
                ids.append(None)
                continue
            server.put.append((self.path, body))
            ids.append('t-%d' % len(server.put))
            server.tasks[ids[-1]] = {'status': 'PENDING', 'body': body, 'result': None}
        if any(ids):
            self.answer(200, {'task_ids': ids})
        else:
            self.answer(429, {'error': 'exceeded max pending tasks: %d' % server.room})

    def do_GET(self) -> None:
        server = self.server
        if server.away > 0:
            server.away -= 1
            return self.answer(503, {'message': 'not yet'})
        if self.path == '/api/v1/workspace/current':
            return self.answer(200, {'external_id': 'w-1'})
        task_id = self.path.rsplit('/', 1)[1]
        if self.path != '/api/v1/task/w-1/%s' % task_id or task_id not in server.tasks:
            return self.answer(404, {'message': 'task not found'})
        task = server.tasks[task_id]
        server.looks[task_id] = server.looks.get(task_id, 0) + 1
        if server.looks[task_id] >= 2:
            task['status'], task['result'] = server.end(task['body'])
        self.answer(200, {key: task[key] for key in ('status', 'result')})

    def answer(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...


@function(name='add')  # type: ignore[untyped-decorator]
def add(a: int, b: int = 1) -> int:
    return a + b


@task_queue(name='sizes')  # type: ignore[untyped-decorator]
def size(text: str) -> int:
    return len(text)


@schedule(when='@hourly')  # type: ignore[untyped-decorator]
def tidy() -> str:
    return 'tidy'


class Remote(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        url = 'http://127.0.0.1:%d' % self.server.server_address[1]
        for patch in (
            mock.patch.dict(os.environ, {'LONGSHORE_URL': url, 'LONGSHORE_TOKEN': 'key'}, clear=True),
            # The requests of the comparison would be among those that are counted here.
            mock.patch('longshore.differing.begin'),
            mock.patch.object(results, '_FIRST_WAIT_SECONDS', 0.001),
            mock.patch.object(results, '_LONGEST_WAIT_SECONDS', 0.001),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def test_remote_gives_what_the_handler_returned(self) -> None:
        self.server.end = lambda body: ('COMPLETE', body['args'][0] + body['kwargs']['b'])
        self.assertEqual(add.remote(2, b=3), 5)
        self.assertEqual(self.server.put, [('/function/add', {'args': [2], 'kwargs': {'b': 3}})])
        self.assertEqual(add(2), 3)
        self.assertEqual(add.local(2, b=5), 7)

    def test_put_waits_for_nothing(self) -> None:
        self.assertEqual(add.put(2), 't-1')
        self.assertEqual(self.server.looks, {})

    def test_a_schedule_can_be_called_too(self) -> None:
        self.server.end = lambda body: ('COMPLETE', 'tidy')
        self.assertEqual(tidy.remote(), 'tidy')
        self.assertEqual(self.server.put[0][0], '/schedule/tidy')

    def test_another_end_than_complete_is_raised_with_its_reason(self) -> None:
        self.server.end = lambda body: ('ERROR', {'error': "KeyError: 'x'"})
        with self.assertRaisesRegex(TaskError, "task t-1 ended as ERROR: KeyError: 'x'") as caught:
            add.remote(1)
        self.assertEqual((caught.exception.status, caught.exception.task_id), ('ERROR', 't-1'))
        self.server.end = lambda body: ('CANCELLED', None)
        with self.assertRaisesRegex(TaskError, 'ended as CANCELLED: nothing is known of why'):
            add.remote(1)

    def test_an_installation_that_is_away_for_a_moment_is_asked_again(self) -> None:
        self.server.away = 3
        self.assertEqual(add.remote(1), {'args': [1], 'kwargs': {}})

    def test_one_that_stays_away_ends_the_waiting(self) -> None:
        self.server.away = 1_000_000
        with mock.patch.object(results, '_SILENT_SECONDS', 0.05), self.assertRaisesRegex(GatewayError, 'cannot read task t-1'):
            add.remote(1)

    def test_map_gives_results_in_order_and_waits_where_the_queue_is_full(self) -> None:
        self.server.end = lambda body: ('COMPLETE', body['args'][0] * 10)
        self.server.room = 3
        self.assertEqual(list(add.map(range(8))), [n * 10 for n in range(8)])
        self.assertEqual(list(add.map([])), [])

    def test_map_puts_all_calls_in_one_request(self) -> None:
        self.server.end = lambda body: ('COMPLETE', body['args'])
        calls = [1, (2, 3), [4, 5], 'six', {'a': 7}, ([8],)]
        self.assertEqual(list(add.map(calls)), [[1], [2, 3], [4, 5], ['six'], [{'a': 7}], [[8]]])
        self.assertEqual((self.server.requests, self.server.put[0][0]), ([6], '/function/add'))

    def test_a_task_queue_is_mapped_likewise(self) -> None:
        self.server.end = lambda body: ('COMPLETE', len(body['args'][0]))
        self.assertEqual(list(size.map(['a', 'bcd'])), [1, 3])
        self.assertEqual((self.server.requests, self.server.put[0][0]), ([2], '/taskqueue/sizes'))
        with self.assertRaisesRegex(GatewayError, 'its inputs are not JSON'):
            list(size.map([b'pickled by nobody']))

    def test_map_has_a_bound_for_each_request_and_for_what_is_under_way(self) -> None:
        self.server.end = lambda body: ('COMPLETE', body['args'][0])
        with mock.patch('longshore.client._MOST_CALLS', 4), mock.patch.object(mapping, '_AT_A_TIME', 6):
            self.assertEqual(list(add.map(range(9))), list(range(9)))
        self.assertEqual((max(self.server.requests), sum(self.server.requests)), (4, 9))
        with mock.patch('longshore.client._MOST_CALLS_BYTES', 1):
            self.assertEqual(list(add.map(range(3))), [0, 1, 2])

    def test_map_pickles_all_calls_of_a_request_where_one_is_not_json(self) -> None:
        self.server.end = lambda body: ('COMPLETE', sorted(body))
        self.assertEqual(list(add.map([1, {2}])), [['pickle'], ['pickle']])
        self.assertEqual(self.server.put[0][0], '/function/add?longshore_values=pickle')

    def test_map_without_anything_of_its_own_in_a_full_queue_says_so(self) -> None:
        self.server.room = 0
        with self.assertRaisesRegex(GatewayError, 'exceeded max pending tasks: 0'):
            list(add.map([1]))


if __name__ == '__main__':
    unittest.main()
