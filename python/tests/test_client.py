"""`put`, `invoke` and `get_task` against a small real HTTP server, on a port and on a socket, and their sources of
settings."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import traceback
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, List, Tuple
from unittest import mock

from longshore import GatewayError, endpoint, get_task, task_queue
from longshore.client import NotDeployedError, installation, put


class Server(HTTPServer):
    """Keeps requests, and answers as the test says."""

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), Handler)
        self.seen: List[Tuple[str, str, Any]] = []
        self.keys: List[Any] = []
        #: The same answer for all requests, or a list with one for each.
        self.answer: Any = (200, {'task_id': 't-1'})

    @property
    def url(self) -> str:
        return 'http://127.0.0.1:%d' % self.server_address[1]


class SocketServer(Server):
    """The same on a unix socket, as an agent listens."""

    address_family = socket.AF_UNIX

    def __init__(self, path: str) -> None:
        HTTPServer.__init__(self, path, Handler)  # type: ignore[arg-type]
        self.seen = []
        self.keys = []
        self.answer = (200, {'task_id': 't-1'})

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)

    def get_request(self) -> Any:
        request, _ = self.socket.accept()
        return request, ('agent', 0)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers['Authorization'], None))
        self.reply()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.server.seen.append((self.path, self.headers['Authorization'], json.loads(body)))
        self.server.keys.append(self.headers['Idempotency-Key'])
        self.reply()

    def reply(self) -> None:
        status, answer = self.server.answer.pop(0) if isinstance(self.server.answer, list) else self.server.answer
        if status == 0:
            self.close_connection = True
            return
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        if isinstance(answer, dict) and 'of_task' in answer:
            self.send_header('X-Task-Id', answer['of_task'])
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...


@task_queue(name='re size')  # type: ignore[untyped-decorator]
def resize(path: str, width: int = 1) -> str:
    return '%s %d' % (path, width)


class Put(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        # The requests of the comparison would be among those that are counted here.
        patch = mock.patch('longshore.differing.begin')
        patch.start()
        self.addCleanup(patch.stop)
        # A proxy from the environment cannot reach this machine.
        self.environment(LONGSHORE_URL=self.server.url + '/', LONGSHORE_TOKEN='key', http_proxy='http://127.0.0.1:9')

    def environment(self, **environ: str) -> None:
        patch = mock.patch.dict(os.environ, environ, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        pauses = mock.patch('longshore.client._PAUSES', (0.01, 0.01, 0.01))
        pauses.start()
        self.addCleanup(pauses.stop)

    def refused(self, *args: Any) -> GatewayError:
        with self.assertRaises(GatewayError) as caught:
            resize.put(*args)
        return caught.exception

    def test_positional_and_keyword_inputs_go_to_the_queue_and_the_id_comes_back(self) -> None:
        self.assertEqual(resize.put('a.png', width=3), 't-1')
        self.assertEqual(self.server.seen, [('/taskqueue/re%20size', 'Bearer key', {'args': ['a.png'], 'kwargs': {'width': 3}})])
        self.assertEqual(resize.local('a.png', width=3), 'a.png 3')

    def test_a_call_that_nobody_answered_is_sent_again_under_the_same_key(self) -> None:
        self.server.answer = [(0, {}), (502, b'<html>'), (503, {'error': 'later'}), (200, {'task_id': 't-7'})]
        self.assertEqual(resize.put('a.png'), 't-7')
        self.assertEqual(len(self.server.seen), 4)
        self.assertEqual(len(set(self.server.keys)), 1)
        self.assertRegex(self.server.keys[0], '^[0-9a-f]{32}$')
        self.server.answer = (200, {'task_id': 't-8'})
        resize.put('a.png')
        self.assertNotEqual(self.server.keys[-1], self.server.keys[0])

    def test_the_answer_of_a_task_and_a_refusal_are_final(self) -> None:
        for status, answer in [(504, {'error': 'too long', 'of_task': 't-1'}), (429, {'error': 'full'}), (500, {'error': 'no'})]:
            with self.subTest(status):
                self.server.seen.clear()
                self.server.answer = (status, answer)
                with self.assertRaises(GatewayError) as caught:
                    adder.invoke(1)
                self.assertEqual(caught.exception.status, status)
                self.assertEqual(len(self.server.seen), 1)

    def test_a_workspace_without_room_for_keys_is_called_once_without_one(self) -> None:
        full = (429, {'error': 'no room', 'code': 'too_many_idempotency_keys'})
        self.server.answer = [full, (200, {'task_id': 't-9'})]
        self.assertEqual(resize.put('a.png'), 't-9')
        self.assertEqual([key is None for key in self.server.keys], [False, True])
        self.server.keys.clear()
        self.server.answer = [full, (503, {'error': 'later'})]
        self.refused('x')
        self.assertEqual(len(self.server.keys), 2)

    def test_what_nobody_ever_answers_ends_with_the_last_word(self) -> None:
        self.server.answer = (503, {'error': 'later'})
        self.assertEqual(str(self.refused('x')), 'cannot put a task in re size: later')
        self.assertEqual(len(self.server.seen), 4)

    def test_a_refusal_is_a_sentence_with_its_status(self) -> None:
        cases: Dict[int, Tuple[Any, str]] = {
            429: ({'error': 'exceeded max pending tasks: 100'}, 'cannot put a task in re size: exceeded max pending tasks: 100'),
            401: ({'message': 'Unauthorized'}, 'Unauthorized: the token is not accepted'),
            502: (b'<html>', 'it was answered 502'),
        }
        for status, (answer, sentence) in cases.items():
            with self.subTest(status):
                self.server.answer = (status, answer)
                error = self.refused('x')
                self.assertEqual(error.status, status)
                self.assertIn(sentence, str(error))

    def test_a_name_that_nothing_is_deployed_as_is_said(self) -> None:
        self.server.answer = (400, {'message': 'Invalid deployment'})
        with mock.patch.dict(os.environ, {'CONTAINER_ID': ''}), self.assertRaises(NotDeployedError) as raised:
            put('taskqueue', 're size', [], {})
        self.assertEqual(
            (raised.exception.status, str(raised.exception)),
            (400, 'cannot put a task in re size: Invalid deployment: no task queue is deployed as re size; deploy it with `longshore deploy`'),
        )

    def test_an_answer_without_an_id_is_no_success(self) -> None:
        for answer in ({}, [], b'', {'task_id': 5}):
            with self.subTest(answer=answer):
                self.server.answer = (200, answer)
                self.assertIn('has no task_id', str(self.refused('x')))

    def test_inputs_that_are_no_json_are_named_before_anything_is_sent(self) -> None:
        for value in ({1, 2}, float('nan'), b'x'):
            self.assertIn('its inputs are not JSON', str(self.refused(value)))
        self.assertEqual(self.server.seen, [])

    def test_nobody_there_is_said_with_the_address(self) -> None:
        self.environment(LONGSHORE_URL='http://127.0.0.1:9', LONGSHORE_TOKEN='key')
        self.assertIn('http://127.0.0.1:9 does not answer', str(self.refused('x')))
        # People see one traceback: the reason is in its text.
        told = ''.join(traceback.format_exception(None, self.refused('x'), None))
        self.assertEqual(told.count('Error: '), 1, told)
        self.assertIn('Connection refused', told)


@endpoint(name='adder')  # type: ignore[untyped-decorator]
def adder(a: int, b: int) -> int:
    return a + b


class InAContainer(unittest.TestCase):
    """Only an agent's variables are set."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        path = os.path.join(directory.name, 'gateway.sock')
        self.server = SocketServer(path)
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        environ = {'CONTAINER_ID': 'c', 'LONGSHORE_GATEWAY_SOCKET': path, 'LONGSHORE_TOKEN': 'its own', 'http_proxy': 'http://127.0.0.1:9'}
        patch = mock.patch.dict(os.environ, environ, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_task_is_put_through_the_socket_without_a_credential(self) -> None:
        self.assertEqual(resize.put('a.png', width=3), 't-1')
        self.assertEqual(self.server.seen, [('/taskqueue/re%20size', None, {'args': ['a.png'], 'kwargs': {'width': 3}})])

    def test_an_endpoint_is_invoked_and_its_answer_comes_back(self) -> None:
        self.server.answer = (200, 3)
        self.assertEqual(adder.invoke(1, b=2), 3)
        self.assertEqual(self.server.seen, [('/endpoint/adder', None, {'args': [1], 'kwargs': {'b': 2}})])
        self.server.answer = (500, {'error': "KeyError: 'x'"})
        with self.assertRaisesRegex(GatewayError, "cannot invoke adder: KeyError: 'x'") as caught:
            adder.invoke()
        self.assertEqual(caught.exception.status, 500)

    def test_what_an_endpoint_yields_is_a_list_unless_it_failed(self) -> None:
        self.server.answer = (200, b'data: {"n":1}\n\ndata: {"n":2}\n\n')
        self.assertEqual(adder.invoke(), [{'n': 1}, {'n': 2}])
        self.server.answer = (200, b'')
        self.assertEqual(adder.invoke(), [])
        self.server.answer = (200, b'data: {"n":1}\n\nevent: error\ndata: {"error":"KeyError: 1"}\n\n')
        with self.assertRaisesRegex(GatewayError, 'cannot invoke adder: KeyError: 1'):
            adder.invoke()

    def test_a_task_is_read_in_the_workspace_of_the_container(self) -> None:
        self.server.answer = [(200, {'external_id': 'w-1'}), (200, {'id': 't-1', 'status': 'COMPLETE'})]
        self.assertEqual(get_task('t-1')['status'], 'COMPLETE')
        self.assertEqual([path for path, _, _ in self.server.seen], ['/api/v1/workspace/current', '/api/v1/task/w-1/t-1'])

    def test_what_was_not_sent_and_what_may_have_been_lost_is_sent_again_under_its_key(self) -> None:
        away = (503, {'code': 'scheduler_away', 'message': 'the scheduler cannot be reached now'})
        self.server.answer = [away, away, (200, {'task_id': 't-9'})]
        self.assertEqual(resize.put('x'), 't-9')
        self.server.answer = [(502, {'code': 'call_lost', 'message': 'not known'}), (200, {'task_id': 't-10'})]
        self.assertEqual(resize.put('x'), 't-10')
        self.assertEqual([self.server.keys[0]] * 3, self.server.keys[:3])
        self.assertEqual(self.server.keys[3], self.server.keys[4])
        self.assertNotEqual(self.server.keys[0], self.server.keys[3])

    def test_no_agent_is_said(self) -> None:
        os.environ['LONGSHORE_GATEWAY_SOCKET'] += '.gone'
        with self.assertRaisesRegex(GatewayError, 'the agent of this machine does not answer'):
            resize.put('x')


class Installation(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, 'contexts.json')

    def write(self, value: Any) -> None:
        with open(self.path, 'w', encoding='utf-8') as file:
            json.dump(value, file)

    def found(self, **environ: str) -> Tuple[str, str]:
        with mock.patch.dict(os.environ, {'LONGSHORE_CONTEXT_FILE': self.path, **environ}, clear=True):
            return installation()

    def test_the_environment_wins_over_the_context_file_each_by_itself(self) -> None:
        contexts = {'here': {'url': 'http://here:1', 'token': 'file'}, 'there': {'url': 'http://there:1', 'token': 'other'}}
        self.write({'current': 'here', 'contexts': contexts})
        self.assertEqual(self.found(), ('http://here:1', 'file'))
        self.assertEqual(self.found(LONGSHORE_TOKEN='mine'), ('http://here:1', 'mine'))
        self.assertEqual(self.found(LONGSHORE_URL='https://x/', LONGSHORE_TOKEN='mine'), ('https://x', 'mine'))

    def test_the_token_of_a_context_goes_to_its_own_url_alone(self) -> None:
        here = {'url': 'http://here:80', 'token': 'file'}
        there = {'url': 'https://there', 'token': 'other'}
        self.write({'current': 'here', 'contexts': {'here': here, 'there': there}})
        self.assertEqual(self.found(LONGSHORE_URL='http://HERE/'), ('http://HERE', 'file'))
        self.assertEqual(self.found(LONGSHORE_URL='https://there:443'), ('https://there:443', 'other'))
        for url in ('http://there', 'https://here', 'http://here:81', 'http://here/x', 'http://here:99999'):
            with self.assertRaisesRegex(GatewayError, 'no token for %s is known; set LONGSHORE_TOKEN' % url):
                self.found(LONGSHORE_URL=url)
        self.write({'current': 'here', 'contexts': {'here': here, 'a': there, 'b': there}})
        with self.assertRaisesRegex(GatewayError, 'no token for https://there is known'):
            self.found(LONGSHORE_URL='https://there')

    def test_none_a_damaged_file_and_no_url_are_said(self) -> None:
        with self.assertRaisesRegex(GatewayError, 'no installation is known; set LONGSHORE_URL'):
            self.found()
        for value in (5, {}, {'current': 'x', 'contexts': {}}, {'current': 'x', 'contexts': {'x': 'y'}}):
            self.write(value)
            with self.assertRaisesRegex(GatewayError, 'no installation is known'):
                self.found()
        with self.assertRaisesRegex(GatewayError, 'is not a URL'):
            self.found(LONGSHORE_URL='here:1994', LONGSHORE_TOKEN='t')

    def test_a_container_says_that_it_has_no_way_out(self) -> None:
        self.write({'current': 'here', 'contexts': {'here': {'url': 'http://here:1', 'token': 'file'}}})
        with self.assertRaisesRegex(GatewayError, 'no way to the gateway'):
            self.found(CONTAINER_ID='c', LONGSHORE_TOKEN='container')


if __name__ == '__main__':
    unittest.main()
