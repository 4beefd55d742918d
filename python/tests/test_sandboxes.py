"""`Sandbox` and `Pod` against a small real server: what is sent, what comes back, and what is an error."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any, Dict, List
from unittest import mock

import beam
from longshore import (
    LLM,
    Client,
    DefinitionError,
    GatewayError,
    Image,
    Pod,
    ReadinessProbe,
    Sandbox,
    SandboxConnectionError,
    SandboxFileSystemError,
    SandboxInstance,
    SandboxProcess,
    SandboxProcessError,
    Volume,
    handlers,
    TokenPressureAutoscaler,
)

from .installation import Installation, Speaker

PACKAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
POD = '/api/v1/gateway/pods/sandbox-1'
FILES = '/api/v1/gateway/containers/sandbox-1/files'
EXEC = '/api/v1/gateway/containers/sandbox-1/exec'
OK: Dict[str, Any] = {'ok': True, 'errorMsg': ''}


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Installation()
        self.addCleanup(self.server.close)
        environ = {'LONGSHORE_URL': self.server.url, 'LONGSHORE_TOKEN': 't'}
        patched = mock.patch.dict(os.environ, environ)
        patched.start()
        self.addCleanup(patched.stop)
        os.environ.pop('CONTAINER_ID', None)
        self.answers = self.server.answers
        self.answers.update(
            {
                'POST /api/v1/gateway/stubs': {'ok': True, 'stubId': 's-1', 'errMsg': ''},
                'POST /api/v1/gateway/pods': dict(OK, containerId='sandbox-1', stubId='s-1'),
                'POST %s/connect' % POD: dict(OK, stubId='s-1'),
                'POST /api/v1/gateway/containers/sandbox-1/stop': OK,
            }
        )

    def made(self) -> SandboxInstance:
        return SandboxInstance('sandbox-1', 's-1', (self.server.url, 't'))


class Creation(Case):
    def test_a_sandbox_is_a_stub_and_a_container_that_runs_and_stops(self) -> None:
        sandbox = Sandbox(cpu=2, memory='1gi', name='tools', env={'A': '1'}, keep_warm_seconds=-1, allow_list=['10.0.0.0/8'], ports=[80])
        with sandbox.create() as box:
            self.assertEqual((box.sandbox_id(), box.stub_id, box.ok), ('sandbox-1', 's-1', True))
        self.assertEqual([path for _, path, _ in self.server.seen][-1], '/api/v1/gateway/containers/sandbox-1/stop')
        self.assertTrue(box.terminate())
        self.assertEqual(len(self.server.seen), 4)
        (stub,) = self.server.bodies('/api/v1/gateway/stubs')
        expected = {
            'stubType': 'sandbox',
            'name': 'tools',
            'appName': 'tools',
            'cpu': 2000,
            'memory': 1024,
            'env': ['A=1'],
            'keepWarmSeconds': -1,
            'allowList': ['10.0.0.0/8'],
            'ports': [80],
            'entrypoint': [],
            'authorized': True,
            'imageId': '',
            'objectId': '',
            'volumes': [],
        }
        self.assertEqual({name: stub[name] for name in expected}, expected)
        sandbox.create()
        self.assertEqual(len(self.server.bodies('/api/v1/gateway/stubs')), 1, 'a stub is made once')

    def test_published_sandboxes_and_pods_are_open_to_callers_without_a_token(self) -> None:
        beam.Sandbox(1, 128, name='open').create()
        self.assertIs(self.server.bodies('/api/v1/gateway/stubs')[0]['authorized'], False)
        self.assertIs(beam.Pod('shop', ['run'], [80]).options['authorized'], False)
        self.assertIs(beam.Pod(authorized=True).options['authorized'], True)
        self.assertIsInstance(beam.Pod(), Pod)

    def test_volumes_are_made_and_an_image_that_was_built_is_used(self) -> None:
        self.answers['POST /api/v1/gateway/volumes'] = {'ok': True, 'volume': {'id': 'v-1'}}
        self.answers['POST /api/v1/gateway/images/verify-build'] = {'exists': True, 'imageId': 'longshore.internal/1'}
        Sandbox(image=Image(python_packages=['numpy']), volumes=[Volume('data', '/data')], pool='a', gpu='T4').create()
        (asked,) = self.server.bodies('/api/v1/gateway/images/verify-build')
        self.assertEqual((asked['pythonPackages'], asked['pool'], asked['machineGpu']), (['numpy'], 'a', 'T4'))
        (stub,) = self.server.bodies('/api/v1/gateway/stubs')
        self.assertEqual((stub['imageId'], stub['volumes']), ('longshore.internal/1', [{'id': 'v-1', 'mountPath': '/data'}]))

    def test_refusals_are_errors_with_their_reason(self) -> None:
        self.answers['POST /api/v1/gateway/pods'] = {'ok': False, 'errorMsg': 'there are 200 sandboxes'}
        with self.assertRaisesRegex(SandboxConnectionError, '^cannot create a sandbox: there are 200 sandboxes$'):
            Sandbox().create()
        self.answers['POST /api/v1/gateway/stubs'] = {'ok': False, 'errMsg': 'Memory must be 32GiB or less.'}
        with self.assertRaisesRegex(GatewayError, 'Memory must be'):
            Sandbox(memory='64gi').create()
        with self.assertRaisesRegex(SandboxConnectionError, 'the memory of a sandbox is not kept'):
            Sandbox().create_from_memory_snapshot('c-1')

    def test_a_sandbox_that_does_not_start_is_stopped_and_says_why(self) -> None:
        self.answers['POST %s/connect' % POD] = {'ok': False, 'errorMsg': 'image x was not found'}
        with self.assertRaisesRegex(SandboxConnectionError, 'image x was not found'):
            Sandbox().create()
        self.assertEqual(self.server.seen[-1][1], '/api/v1/gateway/containers/sandbox-1/stop')

    def test_a_sandbox_is_found_again_by_its_id(self) -> None:
        box = Sandbox().connect('sandbox-1')
        self.assertEqual((box.container_id, box.stub_id), ('sandbox-1', 's-1'))
        with self.assertRaisesRegex(SandboxConnectionError, 'cannot connect to other: no such route'):
            Sandbox().connect('other')
        again = pickle.loads(pickle.dumps(box))
        self.assertEqual((again.container_id, again.stub_id, again.at), ('sandbox-1', 's-1', (self.server.url, 't')))
        self.assertNotIn(b'127.0.0.1', pickle.dumps(box))

    def test_a_container_needs_a_client_of_its_own(self) -> None:
        with mock.patch.dict(os.environ, CONTAINER_ID='c', LONGSHORE_GATEWAY_SOCKET='/nowhere', LONGSHORE_TOKEN='container'):
            with self.assertRaisesRegex(GatewayError, r'give client=Client\(token, api_url=…\)'):
                Sandbox().create()
            client = Client(token='t', api_url=self.server.url)
            self.assertEqual(Sandbox(client=client).create().container_id, 'sandbox-1')
            self.assertEqual(Pod(name='in a container').options, {'name': 'in a container'})

    def test_bad_parameters_name_themselves(self) -> None:
        wrong: Any = Pod
        for made, parameter in (
            (lambda: Sandbox(block_network=True, allow_list=['10.0.0.0/8']), 'allow_list'),
            (lambda: Sandbox(docker_enabled=True), 'docker_enabled'),
            (lambda: Sandbox(use_vm=True), 'use_vm'),
            (lambda: Sandbox(disks=['d']), 'disks'),
            (lambda: Sandbox(ports=[0]), 'ports'),
            (lambda: Pod(ports=65536), 'ports'),
            (lambda: Pod(ports=True), 'ports'),
            (lambda: Pod(ports=[80, 80]), 'ports'),
            (lambda: Pod(ports=[65536]), 'ports'),
            (lambda: Pod(ports=list(range(1, 22))), 'ports'),
            (lambda: Pod(entrypoint='python3 -m http.server'), 'entrypoint'),
            (lambda: wrong(entrypoint=[1]), 'entrypoint'),
            (lambda: wrong(readiness_probe='/'), 'readiness_probe'),
            (lambda: Pod(serving={}), 'serving'),
            (lambda: LLM(context_length=-1), 'context_length'),
            (lambda: LLM(metrics_path='metrics'), 'metrics_path'),
            (lambda: wrong(tcp=1), 'tcp'),
            (lambda: ReadinessProbe(path='/', command=['true']), 'command'),
            (lambda: ReadinessProbe(interval_seconds=0), 'interval_seconds'),
        ):
            with self.subTest(parameter), self.assertRaisesRegex(DefinitionError, '^%s: ' % parameter):
                made()


class Pods(Case):
    def test_a_pod_that_serves_a_model_says_so(self) -> None:
        scaler = TokenPressureAutoscaler(4, 32, min_containers=1)
        served = LLM(context_length=32768, cache_tokens=180_000, engine='vllm')
        described = Pod(ports=[8000], serving=served, autoscaler=scaler).described('app:site', '')
        llm = {'context_length': 32768, 'cache_tokens': 180_000, 'engine': 'vllm'}
        self.assertEqual(described['serving'], {'serving_protocol': 'openai', 'llm': llm})
        self.assertEqual(
            described['autoscaler'], {'type': 'llm_token_pressure', 'maxContainers': 4, 'tasksPerContainer': 32, 'minContainers': 1}
        )
        self.assertEqual(Pod(serving_protocol='openai').described('app:site', '')['serving'], {'serving_protocol': 'openai', 'llm': {}})
        self.assertNotIn('serving', Pod(serving_protocol='grpc').described('app:site', ''))

    def test_a_pod_is_described_for_a_deployment(self) -> None:
        pod = Pod('shop', ['node', 'server.js'], [3000, 3001], readiness_probe=ReadinessProbe('/health', 3000), timeout=30)
        described = pod.described('app:site', '')
        expected = {
            'stubType': 'pod/deployment',
            'name': 'site',
            'appName': 'shop',
            'entrypoint': ['node', 'server.js'],
            'ports': [3000, 3001],
            'concurrentRequests': 256,
            'keepWarmSeconds': 600,
            'autoscaler': None,
            'timeout': 30,
            'authorized': True,
            'readinessProbe': {
                'type': 'http',
                'port': 3000,
                'path': '/health',
                'command': [],
                'intervalSeconds': 1,
                'timeoutSeconds': 5,
            },
        }
        self.assertEqual({name: described[name] for name in expected}, expected)
        self.assertEqual(ReadinessProbe(command=['pg_isready']).described()['type'], 'command')
        self.assertEqual(ReadinessProbe().described()['type'], 'tcp')

    def test_describe_finds_pods_beside_handlers(self) -> None:
        text = (
            'import beam\nfrom longshore import Pod, Sandbox, endpoint\nsite = Pod(entrypoint=["run"], ports=[80])\n'
            'other = beam.Pod(name="named")\nbox = Sandbox()\n@endpoint\ndef handler(a): ...\n'
        )
        answer = self.describe(text, 'app.py')
        found = [(one['name'], one['stubType'], one['requiredInputs']) for one in answer['handlers']]
        self.assertEqual(found, [('site', 'pod/deployment', None), ('named', 'pod/deployment', None), ('handler', 'endpoint', ['a'])])
        answer = self.describe(text, 'app.py:site')
        self.assertEqual((answer['handlers'][0]['handler'], answer['others']), ('app:site', ['other', 'handler']))
        self.assertIn('@realtime, and is no Pod', self.describe(text, 'app.py:box')['error'])
        answer = self.describe('from longshore import Pod\nPod().create()\n', 'app.py')
        self.assertRegex(answer['error'], r'^app.py:2: create: makes a container of the Pod while the file is read')

    def test_a_published_file_that_makes_its_pod_is_read(self) -> None:
        text = (
            'import beam\nsite = beam.Pod(entrypoint=["run"], ports=8080)\nmade = site.create()\n'
            'print("at", made.url, made.urls(), made.status(), made.wait(), made.terminate())\n'
        )
        (described,) = self.describe(text, 'app.py:site')['handlers']
        self.assertEqual((described['stubType'], described['ports']), ('pod/deployment', [8080]))
        self.assertEqual(self.server.bodies('/api/v1/gateway/pods'), [])

    def describe(self, text: str, target: str) -> Dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, 'app.py'), 'w', encoding='utf-8') as file:
                file.write(text)
            environ = dict(os.environ, PYTHONPATH=PACKAGES, PYTHONDONTWRITEBYTECODE='1')
            ran = subprocess.run(
                [sys.executable, '-m', 'longshore.describe', target], cwd=folder, env=environ, capture_output=True, timeout=60, check=False
            )
            answer: Dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
            return answer

    def test_a_container_is_made_of_the_folder_by_the_command_line(self) -> None:
        asked: List[Any] = []

        def prepared(definition: Dict[str, Any], root: str, what: str, at: Any) -> str:
            asked.append((definition['stubType'], definition['entrypoint'], root))
            return 's-1'

        self.answers['GET %s/urls' % POD] = dict(OK, urls={'8000': 'http://here/8000', '9': 'http://here/9'})
        self.answers['GET /api/v1/gateway/containers'] = {'ok': True, 'containers': [{'containerId': 'sandbox-1', 'status': 'RUNNING'}]}
        pod = Pod(entrypoint=['run'], ports=[8000, 9])
        with mock.patch('longshore.undeployed.prepared_definition', prepared):
            made = pod.create()
            pod.create(entrypoint=['other', ''])
            pod.create()
        folder = os.path.dirname(PACKAGES)
        self.assertEqual([(kind, entrypoint) for kind, entrypoint, _ in asked], [('pod', ['run']), ('pod', ['other', ''])])
        self.assertTrue(os.path.samefile(asked[0][2], PACKAGES), folder)
        self.assertEqual((made.container_id, made.url, made.urls()[9]), ('sandbox-1', 'http://here/8000', 'http://here/9'))
        self.assertEqual((made.status(), made.wait(timeout=0)), ('RUNNING', 'RUNNING'))
        self.answers['GET /api/v1/gateway/containers'] = {'ok': True, 'containers': []}
        self.assertIsNone(made.exit_code)
        self.answers['GET /api/v1/workspace/current'] = {'external_id': 'w-1'}
        self.answers['GET /api/v1/explain/w-1/sandbox-1'] = {'container': {'exit_code': 3}}
        self.assertEqual((made.wait(), made.exit_code), ('STOPPED', 3))
        self.assertTrue(made.terminate())
        self.answers['POST /api/v1/gateway/containers/sandbox-1/stop'] = {'ok': False, 'errorMsg': 'Container not found'}
        self.assertFalse(made.terminate())

    def test_the_command_line_is_given_the_definition_and_the_installation(self) -> None:
        from longshore.undeployed import prepared_definition

        with tempfile.TemporaryDirectory() as folder:
            command = os.path.join(folder, 'longshore')
            with open(command, 'w', encoding='utf-8') as file:
                file.write(
                    '#!/bin/sh\necho "$@" $LONGSHORE_URL $LONGSHORE_TOKEN > %s/noted\ncat >> %s/noted\necho \'{"stubId": "s-9"}\'\n'
                    % (folder, folder)
                )
            os.chmod(command, 0o755)
            with mock.patch('longshore.undeployed._command', lambda what: [command]):
                self.assertEqual(prepared_definition({'name': 'a'}, '/root', 'cannot', ('http://u', 'k')), 's-9')
            with open(os.path.join(folder, 'noted'), encoding='utf-8') as file:
                self.assertEqual(file.read(), 'prepare - --root /root --json http://u k\n{"name": "a"}')

    def test_nothing_is_made_while_a_file_is_read(self) -> None:
        with mock.patch.object(handlers, 'is_reading', True):
            for make in (Pod().create, Sandbox().create):
                with self.assertRaisesRegex(DefinitionError, "put it below if __name__ == '__main__'"):
                    make()


class Operations(Case):
    def test_values_that_make_no_sense_are_errors_of_the_module(self) -> None:
        box = self.made()
        for route in ('POST %s/ttl', 'POST %s/ports/expose', 'POST %s/exec'):
            self.answers[route % POD] = (400, {'code': 3, 'message': 'parsing field'})
        calls: List[Any] = [lambda: box.update_ttl('x'), lambda: box.expose_port('x')]  # type: ignore[arg-type]
        for call in calls + [lambda: box.process.exec('ls', cwd=5), lambda: box.process.exec('')]:  # type: ignore[arg-type]
            with self.assertRaises(SandboxProcessError):
                call()
        with self.assertRaisesRegex(SandboxFileSystemError, 'data must be bytes'):
            box.fs.write_bytes('/tmp/a', 'text')  # type: ignore[arg-type]
        self.answers['GET %s/processes' % POD] = dict(OK, processes=[])
        with self.assertRaisesRegex(SandboxProcessError, "'x'"):
            box.process.get_process('x')  # type: ignore[arg-type]
        self.answers['POST %s/ttl' % POD] = (500, {'message': 'broken'})
        with self.assertRaises(GatewayError):
            box.update_ttl(5)

    def test_ports_time_network_and_images(self) -> None:
        box = self.made()
        self.answers.update(
            {
                'POST %s/ports/expose' % POD: dict(OK, url='http://here/80'),
                'GET %s/urls' % POD: dict(OK, urls={'80': 'http://here/80'}),
                'POST %s/ttl' % POD: OK,
                'POST %s/network/update' % POD: OK,
                'POST %s/create-image-from-filesystem' % POD: dict(OK, imageId='i-1'),
                'POST %s/snapshot-memory' % POD: {'ok': False, 'errorMsg': 'memory is not kept'},
            }
        )
        self.assertEqual(box.expose_port(80), 'http://here/80')
        self.assertEqual(box.list_urls(), {80: 'http://here/80'})
        box.update_ttl(-1)
        box.update_network_permissions(block_network=True)
        box.update_network_permissions(allow_list=['10.0.0.0/8'])
        self.assertEqual(box.create_image_from_filesystem(), 'i-1')
        bodies = [body for _, _, body in self.server.seen]
        self.assertEqual(
            bodies,
            [
                {'stubId': 's-1', 'port': 80},
                None,
                {'ttl': -1},
                {'stubId': 's-1', 'blockNetwork': True, 'allowList': []},
                {'stubId': 's-1', 'blockNetwork': False, 'allowList': ['10.0.0.0/8']},
                {'stubId': 's-1'},
            ],
        )
        with self.assertRaisesRegex(SandboxProcessError, 'cannot keep the memory of sandbox-1: memory is not kept'):
            box.snapshot_memory()
        with self.assertRaisesRegex(ValueError, 'allow_list'):
            box.update_network_permissions(True, ['10.0.0.0/8'])

    def test_the_end_of_a_sandbox(self) -> None:
        box = self.made()
        self.answers['GET /api/v1/gateway/containers'] = {'containers': [{'containerId': 'sandbox-1', 'status': 'RUNNING'}]}
        self.assertEqual((box.status(), box.poll()), ((-1, 'RUNNING'), None))
        with self.assertRaisesRegex(SandboxProcessError, 'did not end within 0 s'):
            box.wait(timeout=0)
        self.answers['GET /api/v1/gateway/containers'] = {'containers': []}
        # An installation that does not say how it ended.
        self.assertEqual((box.status(), box.wait(), box.poll(), box.end_reason), ((None, 'STOPPED'), None, None, ''))
        self.answers['GET /api/v1/workspace/current'] = {'external_id': 'w-1'}
        self.answers['GET /api/v1/explain/w-1/sandbox-1'] = {'container': {'exit_code': 137, 'reason': 'oom'}}
        self.assertEqual((box.status(), box.wait(), box.poll(), box.end_reason), ((137, 'STOPPED'), 137, 137, 'oom'))


class Programs(Case):
    def setUp(self) -> None:
        super().setUp()
        self.answers['POST %s/exec' % POD] = dict(OK, pid=7, done=False, exitCode=-1, stdout='', stderr='')
        self.box = self.made()

    def started(self, *args: str, **more: Any) -> SandboxProcess:
        return self.box.process.exec(*(args or ('ls',)), **more)

    def test_a_program_is_started_with_its_words_directory_and_variables(self) -> None:
        process = self.started('echo', 'a b', "it's", cwd='/tmp', env={'A': '1'})
        self.assertEqual((process.pid, process.args, process.exit_code), (7, ['echo', 'a b', "it's"], -1))
        (body,) = self.server.bodies('%s/exec' % POD)
        self.assertEqual(body, {'command': """echo 'a b' 'it'"'"'s'""", 'cwd': '/tmp', 'env': {'A': '1'}, 'wait': False})
        with self.assertRaisesRegex(SandboxProcessError, 'exec was given none'):
            self.box.process.exec()
        self.answers['POST %s/exec' % POD] = {'ok': False, 'errorMsg': 'cwd: /nowhere does not exist'}
        with self.assertRaisesRegex(SandboxProcessError, 'cannot run ls: cwd: /nowhere does not exist'):
            self.started('ls', cwd='/nowhere')

    def test_output_comes_by_lines_until_the_end(self) -> None:
        heard: List[Any] = []

        def play(asked: Dict[str, Any], to: Speaker) -> None:
            to.send({'pid': 7, 'running': True})
            to.frame(9, b'there?')
            heard.append(to.receive())
            to.send(b'\x01one\ntw', pieces=3)
            to.send(b'\x02bad\n')
            to.send('\x01o é'.encode()[:4])
            to.send(b'\x01' + 'é'.encode()[1:] + b'\nlast')
            to.send({'exitCode': 3, 'signal': ''})

        self.server.play = play
        process = self.started()
        self.assertEqual(list(process.stdout), ['one\n', 'two é\n', 'last'])
        self.assertEqual((process.wait(), process.exit_code, process.stderr.read()), (3, 3, 'bad\n'))
        self.assertEqual((list(process.stdout), process.stdout.read()), ([], ''))
        self.assertEqual(self.server.attached, [{'pid': 7, 'stdout': 0, 'stderr': 0}])
        self.assertIn(('WS', EXEC, 'Bearer t'), self.server.seen)
        self.assertEqual(heard, [(10, b'there?')])

    def test_a_connection_that_is_lost_goes_on_where_it_ended(self) -> None:
        def play(asked: Dict[str, Any], to: Speaker) -> None:
            to.send({'pid': 7, 'running': True})
            if asked['stdout'] == 0:
                to.send(b'\x01' + b'x' * 70_000 + b'\n')
                to.send({'lost': {'stream': 'stdout', 'bytes': 5}})
                return
            to.send(b'\x01end')
            to.send({'exitCode': 0, 'signal': ''})

        self.server.play = play
        process = self.started()
        with mock.patch('longshore.processes._PAUSE_SECONDS', 0.01):
            self.assertEqual(process.wait(), 0)
        self.assertEqual(process.stdout.read(), 'x' * 70_000 + '\nend')
        self.assertEqual(process.stdout.lost_bytes, 5)
        self.assertEqual([one['stdout'] for one in self.server.attached], [0, 70_006])

    def test_a_loop_that_ends_early_lets_the_program_go(self) -> None:
        told: List[Any] = []
        over = threading.Event()

        def play(asked: Dict[str, Any], to: Speaker) -> None:
            to.send({'pid': 7, 'running': True})
            to.send(b'\x01ready\nmore\n'[asked['stdout'] :] if not asked['stdout'] else b'\x01later\n')
            told.append(to.receive()[0])
            over.set()

        self.server.play = play
        process = self.started()
        for line in process.stdout:
            self.assertEqual(line, 'ready\n')
            break
        self.assertTrue(over.wait(10))
        self.assertEqual(told, [8], 'the connection is closed')
        over.clear()
        self.assertEqual(process.stdout.read(), 'more\nlater\n')
        self.assertTrue(over.wait(10))
        self.assertEqual([one['stdout'] for one in self.server.attached], [0, 11])

    def test_a_wait_ends_in_time_and_the_program_goes_on(self) -> None:
        self.server.play = lambda asked, to: to.receive() and None
        process = self.started()
        with self.assertRaisesRegex(SandboxProcessError, r'program 7 did not end within 0\.1 s'):
            process.wait(timeout=0.1)
        self.assertEqual(process.exit_code, -1)

    def test_a_program_that_is_not_known_is_an_error(self) -> None:
        def play(asked: Dict[str, Any], to: Speaker) -> None:
            to.send({'error': {'code': 'not_found', 'message': 'there is no program 7'}})

        self.server.play = play
        with self.assertRaisesRegex(SandboxProcessError, 'there is no program 7'):
            self.started().wait()

    def test_both_streams_are_read_as_they_come(self) -> None:
        def play(asked: Dict[str, Any], to: Speaker) -> None:
            to.send(b'\x02first\n')
            to.send(b'\x01second\n')
            to.send({'exitCode': 0, 'signal': ''})

        self.server.play = play
        self.assertEqual(list(self.started().logs), ['first\n', 'second\n'])

    def test_code_is_run_and_its_output_is_there(self) -> None:
        def play(asked: Dict[str, Any], to: Speaker) -> None:
            if asked.get('cwd') == '/nowhere':
                to.send({'error': {'code': 'not_found', 'message': 'the directory /nowhere: No such file or directory'}})
                return
            to.send({'pid': 9, 'running': True})
            to.send(b'\x01out\n')
            to.send(b'\x02err\n')
            if 'command' in asked:
                return  # the connection is lost
            to.send({'exitCode': 1, 'signal': ''})

        self.server.play = play
        with mock.patch('longshore.processes._PAUSE_SECONDS', 0.01):
            ran = self.box.process.run_code('1', cwd='/tmp', env={'A': '1'})
        self.assertEqual((ran.pid, ran.exit_code, ran.stdout, ran.stderr), (9, 1, 'out\nout\n', 'err\nerr\n'))
        self.assertEqual(ran.result, 'out\nout\nerr\nerr\n')  # type: ignore[union-attr]
        started = {'command': ['python3', '-c', '1'], 'cwd': '/tmp', 'env': {'A': '1'}, 'terminal': None}
        self.assertEqual(self.server.attached, [started, {'pid': 9, 'stdout': 4, 'stderr': 4}])
        with self.assertRaisesRegex(SandboxProcessError, 'cannot run python3: the directory /nowhere'):
            self.box.run_code('1', cwd='/nowhere')
        self.assertIsInstance(self.box.run_code("print('é')", blocking=False), SandboxProcess)
        self.assertEqual(self.server.bodies('%s/exec' % POD)[0]['command'], """python3 -c 'print('"'"'é'"'"')'""")

    def test_input_is_a_file_without_a_name(self) -> None:
        self.answers['PUT %s' % FILES] = OK
        for stdin in ('text', b'text', io.BytesIO(b'text')):
            self.server.seen.clear()
            self.started('cat', stdin=stdin)
            (put, run) = self.server.seen
            path = run[2]['command'].split(' ')[2]
            self.assertEqual(run[2]['command'], 'exec 0< %s && rm -f %s && exec cat' % (path, path))
            self.assertEqual((put[0], put[2]), ('PUT', b'text'))
            self.assertIn('mode=600', put[1])

    def test_programs_are_listed_asked_and_ended(self) -> None:
        one = {'pid': 7, 'cmd': 'sleep 5', 'cwd': '/', 'env': ['A=1=2'], 'exitCode': -1, 'running': True}
        self.answers['GET %s/processes' % POD] = dict(OK, processes=[one, dict(one, pid=8, cmd="echo 'open", exitCode=0)])
        self.answers['GET %s/status' % POD] = dict(OK, status='running', exitCode=-1)
        self.answers['POST %s/kill' % POD] = OK
        every = self.box.process.list_processes()
        self.assertEqual(sorted(every), [7, 8])
        process = self.box.process.get_process(7)
        self.assertEqual((process.args, process.cwd, process.env, process.exit_code), (['sleep', '5'], '/', {'A': '1=2'}, -1))
        self.assertEqual((every[8].args, every[8].exit_code), (["echo 'open"], 0))
        self.assertEqual(process.status(), (-1, 'running'))
        process.kill()
        self.assertEqual(self.server.seen[-1][2], {'pid': 7})
        with self.assertRaisesRegex(SandboxProcessError, 'there is no program 9 in sandbox-1'):
            self.box.process.get_process(9)

    def test_methods_are_there_as_coroutines(self) -> None:
        def play(asked: Dict[str, Any], to: Speaker) -> None:
            to.send({'pid': 7, 'running': True})
            to.send(b'\x01a\nb\n')
            to.send({'exitCode': 0, 'signal': ''})

        self.server.play = play

        async def story() -> List[Any]:
            async with self.box.aio as box:
                process = await box.process.exec('ls')
                lines = [line async for line in process.stdout]
                return [lines, await process.wait(), process.pid, (await box.process.run_code('1')).stdout]

        self.assertEqual(asyncio.run(story()), [['a\n', 'b\n'], 0, 7, 'a\nb\n'])
        self.assertTrue(self.box.terminated)


class Files(Case):
    def setUp(self) -> None:
        super().setUp()
        self.fs = self.made().fs
        self.stored: Dict[str, bytes] = {}

        def put(query: Dict[str, str], body: bytes) -> Any:
            self.stored[query['path']] = body
            return OK

        def get(query: Dict[str, str], body: bytes) -> Any:
            found = self.stored.get(query['path'])
            return found if found is not None else (404, {'message': '%s does not exist' % query['path']})

        self.answers['PUT %s' % FILES] = put
        self.answers['GET %s' % FILES] = get

    def test_files_go_as_they_are_in_both_directions(self) -> None:
        data = os.urandom(300_000)
        with tempfile.TemporaryDirectory() as folder:
            here, there = os.path.join(folder, 'here'), '/tmp/a b.bin'
            with open(here, 'wb') as file:
                file.write(data)
            self.fs.upload_file(here, there)
            self.assertEqual(self.stored[there], data)
            self.fs.download_file(there, os.path.join(folder, 'back'))
            with open(os.path.join(folder, 'back'), 'rb') as file:
                self.assertEqual(file.read(), data)
            with self.assertRaisesRegex(SandboxFileSystemError, 'cannot read /none: /none does not exist'):
                self.fs.download_file('/none', os.path.join(folder, 'none'))
            self.assertEqual(sorted(os.listdir(folder)), ['back', 'here'], 'a copy that fails leaves nothing')
        self.fs.write_text('t', 'é', mode=0o600)
        self.assertEqual((self.fs.read_text('t'), self.fs.read_bytes('t')), ('é', b'\xc3\xa9'))
        self.fs.write_bytes('empty', b'')
        self.assertEqual(self.fs.read_bytes('empty'), b'')

    def test_directories_and_what_is_known_of_files(self) -> None:
        one = {
            'name': 'a',
            'isDir': True,
            'size': '12',
            'mode': 493,
            'modTime': '1700000000',
            'permissions': 493,
            'owner': 'root',
            'group': 'root',
        }
        self.answers['GET %s/files/stat' % POD] = dict(OK, fileInfo=one)
        self.answers['GET %s/files' % POD] = dict(OK, files=[one, dict(one, name='b', isDir=False)])
        for route in ('POST %s/directories', 'DELETE %s/directories/%%2Ftmp%%2Fa', 'DELETE %s/files/%%2Ftmp%%2Fa'):
            self.answers[route.replace('%s', POD).replace('%%', '%')] = OK
        info = self.fs.stat_file('/tmp/a')
        self.assertEqual((info.name, info.is_dir, info.size, info.mod_time, info.permissions), ('a', True, 12, 1700000000, 0o755))
        self.assertEqual([(found.name, found.is_dir) for found in self.fs.list_files('/tmp')], [('a', True), ('b', False)])
        self.assertEqual(info, self.fs.list_files('/tmp')[0])
        self.fs.create_directory('/tmp/a')
        self.fs.remove('/tmp/a')
        self.fs.delete_file('/tmp/a')
        asked = [(method, path) for method, path, _ in self.server.seen]
        self.assertIn(('GET', '%s/files/stat?containerPath=%%2Ftmp%%2Fa' % POD), asked)
        self.assertEqual([method for method, path in asked if path.endswith('%2Ftmp%2Fa')], ['GET', 'GET', 'DELETE', 'DELETE'])

    def test_a_wait_for_a_file_ends_with_it_or_in_time(self) -> None:
        answers = [
            {'ok': False, 'errorMsg': '/a does not exist'},
            dict(OK, fileInfo={'name': 'a', 'size': 1}),
            dict(OK, fileInfo={'name': 'a', 'size': 2}),
        ]
        self.answers['GET %s/files/stat' % POD] = lambda query, body: answers.pop(0) if len(answers) > 1 else answers[0]
        self.assertEqual(self.fs.wait_for('/a', size=2).size, 2)
        self.answers['GET %s/files/stat' % POD] = {'ok': False, 'errorMsg': '/a does not exist'}
        with self.assertRaises(TimeoutError):
            self.fs.wait_for('/a', timeout=0)
        self.answers['GET %s/files/stat' % POD] = {'ok': False, 'errorMsg': 'permission denied'}
        with self.assertRaisesRegex(SandboxFileSystemError, 'permission denied'):
            self.fs.wait_for('/a')

    def test_texts_are_found_and_replaced(self) -> None:
        places = {'start': {'line': 1, 'column': 2}, 'end': {'line': 1, 'column': 4}}
        found = [{'path': '/a', 'matches': [{'range': places, 'content': 'line'}]}]
        self.answers['POST %s/files/find' % POD] = dict(OK, results=found)
        self.answers['POST %s/files/replace' % POD] = dict(OK, results=found)
        (result,) = self.fs.find_in_files('/', 'i.')
        match = result.matches[0]
        self.assertEqual((result.path, match.content, match.range.start.column, match.range.end.line), ('/a', 'line', 2, 1))
        self.fs.replace_in_files('/', 'a.b', 'c')
        self.fs.replace_in_files('/', 'a.b', 'c', regex=True)
        self.assertEqual([body['pattern'] for _, _, body in self.server.seen], ['i.', 'a\\.b', 'a.b'])


if __name__ == '__main__':
    unittest.main()
