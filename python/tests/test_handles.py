"""`Client`, `Deployment` and `Task` against a small real HTTP server, and the parameters that came with them."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, List, Tuple
from unittest import mock

from longshore import (
    Client,
    GatewayError,
    GpuType,
    Pool,
    Secret,
    Task,
    TaskError,
    TaskPolicy,
    endpoint,
    function,
    task_queue,
)
from longshore.checks import DefinitionError


class Server(HTTPServer):
    """Answers by method and path; keeps requests."""

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), Handler)
        self.seen: List[Tuple[str, str, str, bytes]] = []
        self.keys: List[Tuple[str, str]] = []
        self.answers: Dict[str, Any] = {'GET /api/v1/workspace/current': {'external_id': 'w'}}

    @property
    def url(self) -> str:
        return 'http://127.0.0.1:%d' % self.server_address[1]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers['Content-Length'] or 0))
        self.server.seen.append((self.command, self.path, self.headers['Authorization'] or '', body))
        self.server.keys.append((self.command, self.headers['Idempotency-Key'] or ''))
        answer = self.server.answers.get('%s %s' % (self.command, self.path))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        data = answer if isinstance(answer, bytes) else json.dumps(answer or {'message': 'not found'}).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PUT = do_GET

    def log_message(self, *_given: Any) -> None:
        pass


class Handles(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        kept = {name: value for name, value in os.environ.items() if name not in ('CONTAINER_ID', 'LONGSHORE_GATEWAY_SOCKET')}
        patched = mock.patch.dict(os.environ, dict(kept, LONGSHORE_URL=self.server.url, LONGSHORE_TOKEN='t'), clear=True)
        patched.start()
        self.addCleanup(patched.stop)

    def answer(self, line: str, value: Any) -> None:
        self.server.answers[line] = value

    def test_a_put_task_is_its_id_and_has_methods(self) -> None:
        self.answer('POST /taskqueue/q', {'task_id': 'one'})
        task = task_queue(name='q')(lambda: None).put()
        self.assertEqual((task, task.id, json.dumps([task]), pickle.loads(pickle.dumps(task))), ('one', 'one', '["one"]', 'one'))
        states = [{'status': 'PENDING'}, {'status': 'RUNNING'}, {'status': 'COMPLETE', 'result': 5, 'outputs': [{'name': 'a'}]}]
        self.answer('GET /api/v1/task/w/one', states[:])
        self.assertEqual((task.status(), task.result()), ('PENDING', None))
        self.assertEqual((task.result(wait=True), task.is_complete(), task.outputs()), (5, True, [{'name': 'a'}]))
        self.answer('GET /api/v1/task/w/one', states[:])
        seen: List[str] = []
        self.assertEqual(task.subscribe(lambda one: seen.append(one['status'])), 5)
        self.assertEqual(seen, ['PENDING', 'RUNNING', 'COMPLETE'])

    def test_a_wait_for_a_task_may_have_an_end_and_the_task_goes_on(self) -> None:
        self.answer('POST /taskqueue/q', {'task_id': 'one'})
        task = task_queue(name='q')(lambda: None).put()
        waits: List[Any] = [
            lambda: task.get(timeout=0.1),
            lambda: task.get(timeout=0),
            lambda: task.result(wait=True, timeout=0.1),
            lambda: task.result(timeout=0.1),
            lambda: asyncio.run(task.async_get(timeout=0.1)),
        ]
        self.answer('GET /api/v1/task/w/one', {'status': 'RUNNING'})
        for wait in waits:
            with self.assertRaisesRegex(TimeoutError, 'task one has not ended within [0.1]+ seconds, and goes on'):
                wait()
        with self.assertRaises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(task.async_get(), 0.1))
        self.assertFalse([seen for seen in self.server.seen if 'stop' in seen[1]])
        self.answer('GET /api/v1/task/w/one', {'status': 'COMPLETE', 'result': 5})
        self.assertEqual([wait() for wait in waits], [5] * 5)
        self.assertEqual((task.get(), asyncio.run(task.async_get())), (5, 5))
        self.answer('GET /api/v1/task/w/one', {'status': 'ERROR', 'result': {'error': 'KeyError'}})
        for wait in waits:
            with self.assertRaisesRegex(TaskError, 'KeyError'):
                wait()

    def test_a_task_that_failed_raises(self) -> None:
        self.answer('GET /api/v1/task/w/one', {'status': 'ERROR', 'result': {'error': 'KeyError'}})
        task = Client().get_task_by_id('one')
        self.assertTrue(task.is_complete())
        with self.assertRaisesRegex(TaskError, 'KeyError') as raised:
            task.result()
        self.assertEqual((raised.exception.task_id, raised.exception.exit_code), ('one', 1))
        with self.assertRaises(GatewayError) as unknown:
            Client().get_task_by_id('other')
        self.assertEqual(unknown.exception.status, 404)

    def test_a_task_runs_again_also_by_its_error(self) -> None:
        self.answer('GET /api/v1/task/w/one', {'status': 'ERROR', 'result': {'error': 'KeyError'}})
        self.answer('POST /api/v1/task/w/one/rerun', {'task_id': 'two', 'rerun_of': 'one'})
        self.answer('GET /api/v1/task/w/two', {'status': 'COMPLETE', 'result': 7})
        client = Client(token='mine', api_url=self.server.url)
        again = client.get_task_by_id('one').rerun()
        self.assertEqual((again, again.result(wait=True)), ('two', 7))
        with self.assertRaises(TaskError) as raised:
            client.get_task_by_id('one').result()
        self.assertEqual(raised.exception.task.rerun().result(wait=True), 7)
        self.assertEqual({seen[2] for seen in self.server.seen}, {'Bearer mine'})
        # Lost answers do not make a second one.
        keys = {key for (method, key) in self.server.keys if method == 'POST'}
        self.assertEqual((len(keys), '' in keys), (2, False))
        with self.assertRaisesRegex(GatewayError, 'cannot run task gone again: .*not found') as unknown:
            Task('gone').rerun()
        self.assertEqual(unknown.exception.status, 404)

    def test_the_error_of_a_task_survives_a_pickle(self) -> None:
        found = pickle.loads(pickle.dumps(TaskError('no luck', 'ERROR', 'one')))
        self.assertEqual((str(found), found.status, found.task_id, found.task), ('no luck', 'ERROR', 'one', 'one'))

    def test_a_deployment_is_called_at_this_address(self) -> None:
        self.answer('GET /api/v1/gateway/stubs/s/url?deploymentId=&urlType=path', {'ok': True, 'url': 'https://else/endpoint/id/s'})
        self.answer('POST /endpoint/id/s', {'n': 1})
        client = Client(token='mine', api_url=self.server.url + '/')
        self.assertEqual(client.get_deployment_by_stub_id('s').submit(input={'a': 1}), {'n': 1})
        self.assertEqual(self.server.seen[-1], ('POST', '/endpoint/id/s', 'Bearer mine', b'{"a": 1}'))
        self.answer('GET /api/v1/gateway/stubs/s/url?deploymentId=&urlType=path', {'ok': True, 'url': 'https://else/function/id/s'})
        self.answer('POST /function/id/s', {'task_id': 'two'})
        self.answer('GET /api/v1/task/w/two', {'status': 'COMPLETE', 'result': 7})
        found = client.get_deployment_by_stub_id('s').submit()
        self.assertIsInstance(found, Task)
        self.assertEqual(client.get_deployment_by_stub_id('s').subscribe(), 7)
        self.assertEqual({seen[2] for seen in self.server.seen}, {'Bearer mine'})

    def test_the_result_of_an_endpoint_is_given_whatever_it_looks_like(self) -> None:
        self.answer('GET /api/v1/gateway/stubs/s/url?deploymentId=&urlType=path', {'ok': True, 'url': 'https://else/endpoint/id/s'})
        deployment = Client().get_deployment_by_stub_id('s')
        self.answer('POST /endpoint/id/s', {'task_id': 'of-another-handler'})
        found = deployment.subscribe()
        self.assertEqual((type(found), found), (dict, {'task_id': 'of-another-handler'}))
        self.answer('POST /endpoint/id/s', b'data: {"n": 1}\n\ndata: {"n": 2}\n\n')
        self.assertEqual(deployment.submit(), [{'n': 1}, {'n': 2}])
        del self.server.answers['POST /endpoint/id/s']
        with self.assertRaisesRegex(GatewayError, r'^cannot call https://else/endpoint/id/s: not found$') as raised:
            deployment.submit()
        self.assertEqual(raised.exception.status, 404)

    def test_a_name_means_its_latest_deployment(self) -> None:
        every = [
            {'name': 'app', 'version': 1, 'id': 'd1', 'stubId': 's1'},
            {'name': 'app', 'version': 2, 'id': 'd2', 'stubId': 's2'},
            {'name': 'app-else', 'version': 9, 'id': 'd9', 'stubId': 's9'},
        ]
        path = '/api/v1/gateway/deployments?limit=1000&filters=%7B%22name%22%3A+%22app%22%7D'
        self.answer('GET ' + path, {'deployments': every})
        self.answer('GET /api/v1/gateway/stubs/s2/url?deploymentId=d2&urlType=path', {'ok': True, 'url': '/endpoint/app/v2'})
        self.assertEqual(Client().get_deployment('app').deployment_id, 'd2')
        self.assertEqual(repr(Client().get_deployment('app')), "Deployment('d2', '/endpoint/app/v2')")
        self.assertEqual(repr(Client()), 'Client()')
        self.assertEqual(repr(Client(token='s3cret', api_url='https://a')), "Client(api_url='https://a')")
        self.answer('GET ' + path.replace('app', 'else'), {'deployments': every})
        with self.assertRaisesRegex(GatewayError, 'there is none'):
            Client().get_deployment('else')

    def test_a_file_is_uploaded_and_has_an_address(self) -> None:
        self.answer('POST /api/v1/gateway/objects', {'ok': True, 'objectId': 'o', 'presignedUrl': self.server.url + '/put'})
        self.answer('PUT /put', {'size': 3})
        self.answer('GET /api/v1/object/w/o/download-url', {'url': self.server.url + '/get'})
        self.answer('GET /get', b'abc')
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, 'a')
            with open(path, 'wb') as file:
                file.write(b'abc')
            url = Client().upload_file(path)
            self.assertIn(('PUT', '/put', '', b'abc'), self.server.seen)
            self.assertEqual((Client().download_file(url, path + '2'), os.path.getsize(path + '2')), (b'abc', 3))


class Parameters(unittest.TestCase):
    def setUp(self) -> None:
        patched = mock.patch.dict(os.environ)
        patched.start()
        self.addCleanup(patched.stop)
        os.environ.pop('CONTAINER_ID', None)

    def test_they_reach_the_stub(self) -> None:
        @function(name='before')
        def before() -> None: ...

        handler = endpoint(
            gpu=[GpuType.H100, 'A10G'],
            secrets=[Secret('ONE'), 'TWO'],
            task_policy=TaskPolicy(max_retries=2, timeout=-1, ttl=60),
            pool=Pool(name='lab'),
            on_deploy=before,
            checkpoint_enabled=True,
        )(lambda: None)
        described = handler.described('app:f', '')
        self.assertEqual(described['gpu'], 'H100,A10G')
        self.assertEqual(described['secrets'], [{'name': 'ONE'}, {'name': 'TWO'}])
        self.assertEqual(described['taskPolicy'], {'maxRetries': 2, 'timeout': -1, 'ttl': 60})
        self.assertEqual((described['pool'], described['checkpointEnabled']), ({'name': 'lab'}, True))
        json.dumps(described)
        self.assertEqual(endpoint(gpu=GpuType.NoGPU)(lambda: None).options['gpu'], '')
        self.assertEqual(endpoint(pool=Pool('lab', gpu='H100'))(lambda: None).options['gpu'], 'H100')

    def test_bad_ones_are_named(self) -> None:
        for make, name in (
            (lambda: TaskPolicy(ttl=86_401), 'ttl'),
            (lambda: TaskPolicy(timeout=-2), 'timeout'),
            (lambda: Pool(name='lab', nodes=2), 'nodes'),
            (lambda: Secret(''), 'name'),
            (lambda: endpoint(disks=[1]), 'disks'),
            (lambda: endpoint(on_deploy=len), 'on_deploy'),
            (lambda: endpoint(task_policy=5), 'task_policy'),  # type: ignore[arg-type]
            (lambda: endpoint(secrets=[5]), 'secrets'),  # type: ignore[list-item]
        ):
            with self.subTest(name), self.assertRaisesRegex(DefinitionError, '^%s: ' % name):
                make()

    def test_a_secret_has_its_value_where_it_was_given(self) -> None:
        with mock.patch.dict(os.environ, {'KEY': 'v'}):
            self.assertEqual(Secret('KEY').value, 'v')
        with self.assertRaisesRegex(KeyError, 'secrets='):
            _ = Secret('KEY_OF_NOBODY').value
        self.assertEqual(repr(Secret('KEY')), "Secret('KEY')")


if __name__ == '__main__':
    unittest.main()
