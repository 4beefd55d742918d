"""`Output` in a container, whose socket a small real HTTP server plays."""

from __future__ import annotations

import gc
import io
import json
import os
import socket
import tempfile
import threading
import unittest
import warnings
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, List, Tuple
from unittest import mock

from longshore import Context, Output
from longshore.output import OutputError

HOST = 'http://gateway.longshore.internal'


class Agent(HTTPServer):
    """An agent's socket, with an installation behind it."""

    address_family = socket.AF_UNIX

    def __init__(self, path: str) -> None:
        super().__init__(path, Handler)  # type: ignore[arg-type]
        self.objects: Dict[str, bytes] = {}
        self.saved: List[Any] = []
        self.refuses = ''

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)

    def get_request(self) -> Any:
        return self.socket.accept()[0], ('agent', 0)


class Handler(BaseHTTPRequestHandler):
    server: Agent

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers['Content-Length'] or 0))
        status, value = self.answer('%s %s' % (self.command, self.path), body)
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_PUT = do_POST = do_GET

    def answer(self, line: str, body: bytes) -> Tuple[int, Any]:
        server = self.server
        if server.refuses and server.refuses in line:
            return 507, {'message': 'no room'}
        if line == 'GET /api/v1/workspace/current':
            return 200, {'external_id': 'w'}
        if line == 'POST /api/v1/gateway/objects':
            asked = json.loads(body)
            address = '%s/api/v1/gateway/objects/upload/o-%s?signature=s' % (HOST, asked['hash'])
            return 200, {'ok': True, 'objectId': 'o-' + asked['hash'], 'presignedUrl': address}
        if line.startswith('PUT /api/v1/gateway/objects/upload/'):
            server.objects[line.rsplit('/', 1)[1].partition('?')[0]] = body
            return 200, {}
        if line.startswith('GET /api/v1/gateway/objects/'):
            return 200, {'ok': True, 'exists': 'o-' + line.rsplit('/', 1)[1] in server.objects}
        if line == 'POST /api/v1/output/w':
            server.saved.append(json.loads(body))
            return 201, {'id': 'out-%d' % len(server.saved)}
        if line.startswith('GET /api/v1/output/w/out-'):
            return 200, {'url': 'https://here' + line.partition(' ')[2]}
        return 500, {'message': line}

    def log_message(self, *_given: Any) -> None:
        pass


class Outputs(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        path = os.path.join(self.directory, 's.sock')
        self.agent = Agent(path)
        threading.Thread(target=self.agent.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(self.agent.server_close)
        self.addCleanup(self.agent.shutdown)
        environ = {'CONTAINER_ID': 'c', 'LONGSHORE_GATEWAY_SOCKET': path}
        for patched in (
            mock.patch.dict(os.environ, environ, clear=True),
            mock.patch('longshore.task_context._CurrentContext._source', lambda: Context(task_id='t-1')),
        ):
            patched.start()
            self.addCleanup(patched.stop)

    def write(self, name: str, data: bytes) -> str:
        path = os.path.join(self.directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as file:
            file.write(data)
        return path

    def bytes_of(self, at: int) -> bytes:
        return self.agent.objects[self.agent.saved[at]['object_id']]

    def test_a_file_is_saved_for_its_task_and_has_an_address(self) -> None:
        output = Output(path=self.write('a.txt', b'abc'))
        with self.assertRaisesRegex(OutputError, 'save it first'):
            output.public_url()
        self.assertFalse(output.exists())
        self.assertIs(output.save(), output)
        saved = self.agent.saved[0]
        self.assertEqual((output.id, saved['task_id'], saved['name'], self.bytes_of(0)), ('out-1', 't-1', 'a.txt', b'abc'))
        self.assertEqual(output.public_url(expires=60), 'https://here/api/v1/output/w/out-1/url?expires_in=60')
        self.assertIn('expires_in=604800', output.public_url(10**9))
        # Published apps write -1 for an address that stays.
        self.assertIn('expires_in=604800', output.public_url(-1))
        self.assertTrue(output.exists())
        self.assertEqual((output.stat().size, output.stat().to_dict()['size']), (3, 3))

    def test_a_directory_is_saved_as_a_zip_file(self) -> None:
        self.write('d/one.txt', b'1')
        self.write('d/e/two.txt', b'2')
        Output(path=os.path.join(self.directory, 'd')).save()
        self.assertEqual(self.agent.saved[0]['name'], 'd.zip')
        with zipfile.ZipFile(io.BytesIO(self.bytes_of(0))) as packed:
            self.assertEqual(sorted(name for name in packed.namelist() if not name.endswith('/')), ['e/two.txt', 'one.txt'])

    def test_an_open_file_and_an_image_are_saved(self) -> None:
        class Image:
            def save(self, path: str, format: str) -> None:
                with open(path, 'wb') as file:
                    file.write(format.encode())

        Output.from_file(io.BytesIO(b'abc'), name='x/b.bin').save()
        Output.from_pil_image(Image(), format='jpeg').save()
        self.assertEqual((self.agent.saved[0]['name'], self.bytes_of(0), self.bytes_of(1)), ('b.bin', b'abc', b'jpeg'))
        self.assertTrue(self.agent.saved[1]['name'].endswith('.jpeg'))

    def test_a_copy_goes_with_its_output_without_a_warning(self) -> None:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter('always')
            output = Output.from_file(io.BytesIO(b'abc'), name='b.bin').save()
            directory = os.path.dirname(output.path)
            self.assertTrue(os.path.isdir(directory))
            del output
            gc.collect()
            self.assertFalse(os.path.exists(directory))
        self.assertEqual([str(one.message) for one in said], [])

    def test_two_saves_are_two_outputs(self) -> None:
        output = Output(path=self.write('a.txt', b'abc'))
        output.save()
        output.save()
        self.assertEqual((len(self.agent.saved), len(self.agent.objects), output.id), (2, 2, 'out-2'))

    def test_a_refusal_is_an_error_that_says_why(self) -> None:
        output = Output(path=self.write('a.txt', b'abc'))
        for at in ('POST /api/v1/gateway/objects', 'PUT ', 'POST /api/v1/output'):
            self.agent.refuses = at
            with self.assertRaisesRegex(OutputError, 'cannot save output a.txt: no room'):
                output.save()
        self.assertIsNone(output.id)

    def test_outside_of_a_task_there_is_none(self) -> None:
        path = self.write('a.txt', b'abc')
        with self.assertRaises(FileNotFoundError):
            Output(path=path + 'x')
        with mock.patch('longshore.task_context._CurrentContext._source', None), self.assertRaisesRegex(OutputError, 'on_start'):
            Output(path=path)
        with mock.patch.dict(os.environ):
            del os.environ['CONTAINER_ID']
            with self.assertRaisesRegex(OutputError, 'in a container only'):
                Output(path=path)


if __name__ == '__main__':
    unittest.main()
