"""The note of a program that reaches a deployed version which is not its file, and LONGSHORE_RUN."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from typing import Any, Dict, Optional

from .installation import Installation

PACKAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
APP = """
from longshore import Image, function
import helper

@function(name='adding', cpu=1%s)
def add(a):
    return helper.one + a

if __name__ == '__main__':
    print(add.put(1), add.put(2))
"""
FILES = {'app.py': APP % '', 'helper.py': 'one = 1\n', 'weights.bin': 'w' * 100}
#: The end of the line: both ways out.
CURES = '`longshore deploy app.py:add` deploys the file, LONGSHORE_RUN=file runs it as it is\n'
NOTE = 'note: calls of adding run its deployed version 3, and the file differs from it (%s): ' + CURES


class Differing(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = made.name
        self.installation = Installation()
        self.addCleanup(self.installation.close)

    def write(self, files: Dict[str, Optional[str]]) -> None:
        for name, content in files.items():
            path = os.path.join(self.folder, name)
            if content is None:
                os.remove(path)
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, 'w', encoding='utf-8') as file:
                file.write(content)

    def environ(self, **more: str) -> Dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if name not in ('CONTAINER_ID', 'LONGSHORE_GATEWAY_SOCKET')}
        path = os.pathsep.join([PACKAGES, self.folder])
        return dict(clean, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE='1', LONGSHORE_URL=self.installation.url, LONGSHORE_TOKEN='t', **more)

    def deploy(self, files: Dict[str, Any], handler: str = 'app:add', target: str = 'app.py:add', cwd: str = '') -> None:
        """The files become the deployed version of `adding`."""
        self.write(files)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, 'w') as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        described = subprocess.run(
            [sys.executable, '-m', 'longshore.describe', target],
            cwd=os.path.join(self.folder, cwd),
            env=self.environ(),
            capture_output=True,
            check=True,
        )
        extra = json.loads(json.loads(described.stdout)['handlers'][0]['extra'])
        older = {'id': 'd-2', 'name': 'adding', 'version': 2, 'stubType': 'function/deployment', 'serving': False}
        serving = dict(older, id='d-3', version=3, serving=True)
        other = dict(older, id='d-9', name='adding-more', version=9, serving=True)
        config = json.dumps({'handler': handler, 'extra': extra})
        self.installation.answers.update(
            {
                'POST /function/adding': {'task_id': 't-1'},
                'GET /api/v1/workspace/current': {'external_id': 'w'},
                'GET /api/v1/gateway/deployments': {'deployments': [older, other, serving]},
                'GET /api/v1/deployment/w/d-3': {'version': 3, 'object_id': 'o', 'stub': {'config': config}},
                'GET /api/v1/object/w/o/download-url': {'url': self.installation.url + '/signed'},
                'GET /signed': packed.getvalue(),
            }
        )

    def said(self, *command: str, cwd: str = '', **environ: str) -> str:
        """What a program prints on stderr, after its two calls."""
        ran = subprocess.run(
            [sys.executable, *(command or ('app.py',))],
            cwd=os.path.join(self.folder, cwd),
            env=self.environ(**environ),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if not environ:
            self.assertEqual(ran.stdout, 't-1 t-1\n', ran.stderr)
        return ran.stderr

    def test_a_file_that_is_as_it_was_deployed_is_called_without_a_word(self) -> None:
        self.deploy(FILES)
        self.assertEqual(self.said(), '')

    def test_one_line_names_what_differs_and_both_ways_out(self) -> None:
        self.deploy(FILES)
        for files, what in (
            ({'app.py': FILES['app.py'] + '# edited\n'}, 'app.py'),
            ({'helper.py': 'one = 2\n'}, 'helper.py'),
            ({'weights.bin': 'x' * 100}, 'weights.bin'),
            ({'weights.bin': None}, 'weights.bin'),
            ({'app.py': APP % ', memory=256'}, 'app.py, settings'),
            ({'app.py': APP % ", image=Image(python_packages=['six'])"}, 'app.py, settings'),
            ({'helper.py': 'import later\none = 1\n', 'later.py': ''}, 'helper.py, later.py'),
        ):
            with self.subTest(what):
                self.write({**FILES, **files})
                self.assertEqual(self.said(), NOTE % what)
                self.write(FILES)

    def test_settings_that_come_from_outside_the_files_differ_too(self) -> None:
        app = 'import os\n' + APP % ", env={'MODE': os.environ.get('MODE', 'a')}"
        self.deploy({**FILES, 'app.py': app})
        self.assertEqual(self.said(), '')
        self.assertEqual(self.said(MODE='b'), NOTE % 'settings')

    def test_the_place_of_a_dockerfile_on_this_machine_is_no_setting(self) -> None:
        from longshore import Image, function
        from longshore.differing import recipe_of

        digests = set()
        for folder in ('here', 'there'):
            self.write({folder + '/Dockerfile': 'FROM debian:12\n'})
            image = Image.from_dockerfile(os.path.join(self.folder, folder, 'Dockerfile'))
            digests.add(recipe_of(function(name='adding', image=image)(len)))
        self.assertEqual(len(digests), 1)

    def test_a_deployment_of_another_file_is_named(self) -> None:
        self.deploy(FILES, handler='old:add')
        self.assertEqual(self.said(), NOTE % 'it was deployed from old.py:add')
        self.deploy(FILES, handler='app:plus')
        self.assertEqual(self.said(), NOTE % 'it was deployed from app.py:plus')

    def test_the_root_is_that_of_the_deployment(self) -> None:
        files = {'src/app.py': FILES['app.py'], 'src/helper.py': 'one = 1\n'}
        self.deploy(files, 'src.app:add', 'app.py:add', 'src')
        self.assertEqual(self.said('src/app.py'), '')
        self.assertEqual(self.said('app.py', cwd='src'), '')
        self.write({'src/helper.py': 'one = 3\n'})
        self.assertEqual(self.said('app.py', cwd='src'), NOTE % 'src/helper.py')

    def test_output_that_the_program_writes_beside_its_app_and_its_callers_do_not_count(self) -> None:
        self.deploy({**FILES, 'app.log': 'before\n'})
        with open(os.path.join(self.folder, 'app.log'), 'a', encoding='utf-8') as log:
            ran = subprocess.run(
                [sys.executable, 'app.py'], cwd=self.folder, env=self.environ(), stdout=log, stderr=subprocess.PIPE, text=True, check=False
            )
        self.assertEqual(ran.stderr, '')
        self.deploy(FILES)
        self.write({'main.py': 'from app import add\nprint(add.put(1), add.put(2))\n'})
        self.assertEqual(self.said('main.py'), '')

    def test_a_token_that_may_only_call_gets_no_note_and_no_error(self) -> None:
        self.deploy(FILES)
        self.write({'helper.py': 'one = 2\n'})
        self.installation.answers['GET /api/v1/gateway/deployments'] = (403, {'message': 'no'})
        self.assertEqual(self.said(), '')
        self.deploy(FILES)
        self.installation.answers['GET /signed'] = b'no archive'
        self.assertEqual(self.said(), '')

    def test_the_variable_makes_calls_run_the_file(self) -> None:
        self.deploy(FILES)
        self.installation.answers['POST /function/id/s-1'] = {'task_id': 't-2'}
        command = os.path.join(self.folder, 'longshore')
        self.write(
            {
                'longshore': '#!/bin/sh\necho prepared >&2\necho \'{"stubId": "s-1"}\'\n',
                'run.py': 'import longshore.undeployed as u\nu._command = lambda what: [%r]\nfrom app import add\nprint(add.put(1), add.put(2))\n'
                % command,
            }
        )
        os.chmod(command, 0o755)
        self.assertEqual(self.said('run.py', LONGSHORE_RUN='file'), 'prepared\n')
        self.assertEqual([path for _, path, _ in self.installation.seen if 'function' in path], ['/function/id/s-1'] * 2)
        self.assertIn(
            "GatewayError: LONGSHORE_RUN: must be 'file', by which calls run the app file as it is, not 'files'",
            self.said(LONGSHORE_RUN='files'),
        )

    def test_containers_compare_nothing(self) -> None:
        self.deploy(FILES)
        self.write({'helper.py': 'one = 2\n'})
        self.assertEqual(self.said(CONTAINER_ID='c', LONGSHORE_RUN='file'), '')


if __name__ == '__main__':
    unittest.main()
