"""Calls of handlers without a deployment: which stub they go to, and what prepares it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, List, Optional, Tuple

PACKAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
#: Stands in for the installation: `named` is deployed, every stub can be called. `calls` has the paths.
SERVER = """
import json, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
calls = []
class Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        calls.append(self.path)
        known = '/id/' in self.path or self.path.endswith('/named')
        body = json.dumps({'task_id': 't'} if known else {'message': 'Invalid deployment'}).encode()
        self.send_response(200 if known else 400)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
server = HTTPServer(('127.0.0.1', 0), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
import os
os.environ.update(LONGSHORE_URL='http://127.0.0.1:%d' % server.server_port, LONGSHORE_TOKEN='t')
"""
PRELUDE = 'import longshore.undeployed as u\nu._command = lambda what: [%r]\n'
APP = """
from server import calls
from longshore import function, task_queue
import beam

@function(name='named')
def named(): ...

@task_queue(name='unnamed')
def unnamed(): ...

@beam.function(name='named')
def published(a=1):
    return a
"""


class Undeployed(unittest.TestCase):
    def run_program(self, text: str, run: Tuple[str, ...] = ('app.py',), files: Optional[Dict[str, str]] = None, **environ: str) -> Dict[str, Any]:
        """Runs a program with the app in it, and a command line that notes what it prepares."""
        with tempfile.TemporaryDirectory() as folder:
            command = os.path.join(folder, 'longshore')
            noted = os.path.join(folder, 'noted')
            app = PRELUDE % command + APP + text
            written = {
                'server.py': SERVER,
                'app.py': app,
                'longshore': '#!/bin/sh\necho "$@" >> %s\n[ -z "$FAILS" ] || exit 1\necho \'{"stubId": "s-1"}\'\n' % noted,
                **{name: content or app for name, content in (files or {}).items()},
            }
            for name, content in written.items():
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
                    file.write(content)
            os.chmod(command, 0o755)
            clean = {name: value for name, value in os.environ.items() if name not in ('CONTAINER_ID', 'LONGSHORE_GATEWAY_SOCKET')}
            ran = subprocess.run(
                [sys.executable, *run],
                cwd=folder,
                env=dict(clean, PYTHONPATH=PACKAGES, PYTHONDONTWRITEBYTECODE='1', **environ),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            prepared: List[str] = []
            if os.path.exists(noted):
                with open(noted, encoding='utf-8') as file:
                    prepared = [line.replace(folder, '.') for line in file.read().splitlines()]
            return {'said': ran.stdout, 'error': ran.stderr, 'prepared': prepared}

    def test_a_deployment_is_called_by_its_name(self) -> None:
        ran = self.run_program('named.put(); print(calls)')
        self.assertEqual((ran['said'], ran['prepared']), ("['/function/named']\n", []), ran['error'])

    def test_without_one_the_file_is_prepared_once_and_its_stub_is_called(self) -> None:
        ran = self.run_program('unnamed.put(); unnamed.put(); print(calls)')
        self.assertEqual(ran['said'], "['/taskqueue/unnamed', '/taskqueue/id/s-1', '/taskqueue/id/s-1']\n", ran['error'])
        self.assertEqual(ran['prepared'], ['prepare ./app.py:unnamed --json'])

    def test_a_module_in_a_folder_is_prepared_from_the_folder_that_it_was_imported_from(self) -> None:
        files = {'src/app.py': '', 'main.py': 'from src.app import unnamed\nunnamed.put()'}
        expected = ['prepare ./src/app.py:unnamed --root . --json']
        ran = self.run_program('', ('main.py',), files)
        self.assertEqual(ran['prepared'], expected, ran['error'])
        ran = self.run_program('unnamed.put()', ('-m', 'src.app'), files)
        self.assertEqual(ran['prepared'], expected, ran['error'])
        ran = self.run_program('unnamed.put()', ('src/app.py',), {**files, 'src/server.py': SERVER})
        self.assertEqual(ran['prepared'], ['prepare ./src/app.py:unnamed --json'], ran['error'])

    def test_a_published_file_is_called_as_it_is_whatever_is_deployed(self) -> None:
        threads = 'with ThreadPoolExecutor(4) as pool: list(pool.map(lambda _: published.put(), range(4)))'
        text = 'from concurrent.futures import ThreadPoolExecutor\n%s\nprint(calls)' % threads
        ran = self.run_program(text)
        self.assertEqual(ran['said'], '%s\n' % (['/function/id/s-1'] * 4), ran['error'])
        self.assertEqual(ran['prepared'], ['prepare ./app.py:published --json'])

    def test_a_container_and_the_reader_of_an_app_file_prepare_nothing(self) -> None:
        ran = self.run_program('print(published(5), published.remote(6), calls)', CONTAINER_ID='c')
        self.assertEqual((ran['said'], ran['prepared']), ('5 6 []\n', []), ran['error'])
        ran = self.run_program('u.handlers.is_reading = True\nprint(published(5), calls)\nunnamed.put()')
        self.assertEqual((ran['said'], ran['prepared']), ('None []\n', []), ran['error'])
        self.assertIn('no task queue is deployed as unnamed; deploy it', ran['error'])

    def test_a_preparation_that_fails_is_said(self) -> None:
        ran = self.run_program('unnamed.put()', FAILS='1')
        self.assertRegex(
            ran['error'], r'GatewayError: cannot prepare unnamed: `longshore prepare \S+/app.py:unnamed` failed; its output is above'
        )

    def test_a_published_handler_has_a_development_server(self) -> None:
        ran = self.run_program("published.serve(timeout=5); print('after')")
        self.assertEqual((ran['said'].splitlines()[-1:], ran['prepared']), (['after'], ['serve ./app.py:published']), ran['error'])
        ran = self.run_program('published.serve()', FAILS='1')
        self.assertRegex(ran['error'], r'GatewayError: cannot serve named: `longshore serve \S+/app.py:published` ended with 1')
        inside = self.run_program('published.serve()', CONTAINER_ID='c')
        read = self.run_program('u.handlers.is_reading = True\npublished.serve()')
        for ran in (inside, read):
            self.assertEqual((ran['error'], ran['prepared']), ('', []))

    def test_a_handler_without_a_file_is_not_prepared(self) -> None:
        ran = self.run_program(
            "exec('@function\\ndef hidden(): ...', {'function': function, '__name__': 'none'}, made := {})\nmade['hidden'].put()"
        )
        self.assertIn('no function is deployed as hidden; deploy it', ran['error'])
        self.assertEqual(ran['prepared'], [])


class Positions(unittest.TestCase):
    def test_published_decorators_take_their_parameters_by_position(self) -> None:
        import beam

        os.environ.pop('CONTAINER_ID', None)

        @beam.endpoint(2, '1Gi', 'shop', name='till')
        def handler() -> None: ...

        self.assertEqual([handler.options[name] for name in ('cpu', 'memory', 'appName', 'name')], [2000, 1024, 'shop', 'till'])
        with self.assertRaisesRegex(TypeError, "multiple values for argument 'cpu'"):
            beam.endpoint(2, cpu=1)
        with self.assertRaisesRegex(TypeError, 'unexpected keyword argument'):
            beam.endpoint(colour=1)
        self.assertTrue(json.dumps(beam.schedule('@daily')(handler.local).options['extra']))


if __name__ == '__main__':
    unittest.main()
