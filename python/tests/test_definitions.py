"""App definitions, and `python3 -m longshore.describe` as the command line calls it."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, Tuple
from unittest import mock

import beam
import beta9
import longshore
from longshore import DefinitionError, Image, QueueDepthAutoscaler, Volume, endpoint, function, schedule, task_queue

PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(longshore.__file__)))


class Decorator(unittest.TestCase):
    def test_a_decorated_function_is_callable_as_before(self) -> None:
        @endpoint(name='x')  # type: ignore[untyped-decorator]
        def add(a: int, b: int = 1) -> int:
            """Adds."""
            return a + b

        self.assertEqual((add(1), add.local(1, b=3), add.__name__, add.__doc__), (2, 4, 'add', 'Adds.'))

    def test_a_bare_decorator_works(self) -> None:
        @endpoint
        def one() -> int:
            return 1

        self.assertEqual((one(), one.options['cpu']), (1, 1000))

    def test_gpus_are_a_name_or_several_in_order(self) -> None:
        for given, names in (
            ('H100', 'H100'),
            (' H100 , a100-80', 'H100,a100-80'),
            (['H200', 'H100'], 'H200,H100'),
            (('any',), 'any'),
            ('H100-MIG-3g.40gb', 'H100-MIG-3g.40gb'),
            ('', ''),
            (None, ''),
            ([], ''),
        ):
            with self.subTest(given):
                self.assertEqual(endpoint(gpu=given)(len).options['gpu'], names)
        self.assertEqual(endpoint(gpu_count=2)(len).options['gpuCount'], 2)
        for given, count, names, number in (
            ('A100:2', 0, 'A100', 2),
            ('A100:2', 2, 'A100', 2),
            (['H100:8', 'H200:8'], 0, 'H100,H200', 8),
            ('any:>=40GiB:cc>=8.9:2', 0, 'any:>=40GiB:cc>=8.9', 2),
            ('H100|A100:>=40GiB', 0, 'H100,A100:>=40GiB', 0),
            ('A100', 4, 'A100', 4),
        ):
            options = endpoint(gpu=given, gpu_count=count)(len).options
            self.assertEqual((options['gpu'], options['gpuCount']), (names, number))
        for given, count in (('A100:2', 3), (['H100:8', 'H200:4'], 0), (['H100:8', 'H200'], 0)):
            with self.assertRaisesRegex(DefinitionError, 'name different numbers of GPUs'):
                endpoint(gpu=given, gpu_count=count)(len)
        with self.assertRaisesRegex(DefinitionError, "gpu: 'x' is no condition in 'A100:x'; there are '>=40GiB'"):
            endpoint(gpu='A100:x')(len)
        for gpu, said in (
            (7, "gpu: must be a model such as 'H100'"),
            (True, 'gpu: must be a model'),
            (['H100', 7], 'gpu: must be text'),
            ('two words', "gpu: 'two words' is not the name of a model"),
            ('12GiB', "gpu: '12GiB' asks for a part of a shared device, which is not possible yet: .* >=12GiB"),
            ('any:40GiB', "gpu: 'any:40GiB' asks for a part"),
            ('any:>=40', "gpu: '>=40' is no condition in 'any:>=40'; there are"),
            ('any:cc>=8:cc>=9', "gpu: 'any:cc>=8:cc>=9' names a condition twice"),
            ('H100,', "gpu: '' is not the name of a model"),
            (['H100', 'h100'], 'gpu: H100 is named twice'),
        ):
            with self.subTest(gpu), self.assertRaisesRegex(DefinitionError, '^' + said):
                endpoint(gpu=gpu)
        for count in (-1, 1.5, '1', True):
            with self.subTest(count), self.assertRaisesRegex(DefinitionError, '^gpu_count: '):
                endpoint(gpu='H100', gpu_count=count)  # type: ignore[arg-type]
        with self.assertRaisesRegex(DefinitionError, '^gpu_count: is 2 although gpu is NO_GPU'):
            endpoint(gpu='NO_GPU', gpu_count=2)

    def test_every_field_that_is_wrong_is_named_at_once(self) -> None:
        with self.assertRaisesRegex(DefinitionError, '^cpu: .*two.*; memory: .*lots.*; workers: '):
            endpoint(cpu='two', memory='lots', workers=0)

    def test_bad_values_name_their_parameter(self) -> None:
        cases: Dict[str, Any] = {
            'cpu': '1q',
            'memory': '1t',
            'gpu': 7,
            'gpu_count': -1,
            'image': 'python:3',
            'on_start': 5,
            'workers': 0,
            'worker_mode': 'threads',
            'concurrent_requests': '2',
            'keep_warm_seconds': 'long',
            'max_pending_tasks': 0,
            'timeout': float('inf'),
            'autoscaler': 3,
            'env': {'1X': 'y'},
            'secrets': 'one',
            'volumes': ['x'],
            'authorized': 'yes',
            'name': 5,
            'app': 5,
            'tracebacks': 1,
            'stop_after_disconnect': 59,
            'start_timeout': 0,
            'min_cuda': 12.8,
            'priority': 'urgent',
            'interruptible': 'yes',
            'pool': ['gpu'],
            'block_network': 1,
            'allow_list': '10.0.0.0/8',
        }
        for name, value in cases.items():
            with self.subTest(name), self.assertRaisesRegex(DefinitionError, '^%s: ' % name):
                endpoint(**{name: value})
        with self.assertRaisesRegex(TypeError, 'colour'):
            endpoint(colour='red')  # type: ignore[call-arg]
        for make, name in (
            (lambda: Image(python_version='python2.7'), 'python_version'),
            (lambda: Image(python_version='python3.15'), 'python_version'),
            (lambda: Image(python_packages=[1]), 'python_packages'),  # type: ignore[list-item]
            (lambda: Image(python_packages='/nowhere/requirements.txt'), 'python_packages'),
            (lambda: QueueDepthAutoscaler(max_containers=0), 'max_containers'),
            (lambda: QueueDepthAutoscaler(min_containers=3, max_containers=2), 'min_containers'),
            (lambda: QueueDepthAutoscaler(tasks_per_container=True), 'tasks_per_container'),
            (lambda: Volume('', 'x'), 'name'),
            (lambda: Volume('../x', 'x'), 'name'),
            (lambda: Volume('x' * 64, 'x'), 'name'),
            (lambda: Volume('x', ''), 'mount_path'),
            (lambda: Volume('x', 'x', driver='tape'), 'driver'),
            (lambda: endpoint(volumes=[Volume('a', 'data'), Volume('b', 'data/')]), 'volumes'),
            (lambda: task_queue(retries=-1), 'retries'),
            (lambda: task_queue(retries='3'), 'retries'),  # type: ignore[arg-type]
            (lambda: task_queue(retry_for=[ValueError()]), 'retry_for'),  # type: ignore[list-item]
            (lambda: task_queue(retry_for=['ValueError']), 'retry_for'),  # type: ignore[list-item]
            (lambda: task_queue()(5), 'task_queue'),
            (lambda: endpoint()(5), 'endpoint'),
        ):
            with self.subTest(name), self.assertRaisesRegex(DefinitionError, '^%s: ' % name):
                make()

    def test_common_mistakes_are_told_with_their_cure(self) -> None:
        cases: Tuple[Tuple[Any, str], ...] = (
            (lambda: Image(python_packages='numpy'), r"python_packages: cannot read numpy: .*packages are a list: \['numpy'\]"),
            (lambda: Image(python_packages='numpy==2.1'), r"packages are a list: \['numpy==2.1'\]"),
            (lambda: Image(python_packages='requirements-x.txt'), r'python_packages: cannot read requirements-x.txt: [^;]*$'),
            (lambda: Image().add_python_packages('numpy'), r"packages: cannot read numpy: .*: \['numpy'\]"),
            (lambda: Image(env_vars=3), r"env_vars: must be \{'NAME': 'value'\} or \['NAME=value'\], not 3"),
            (lambda: Image(env_vars=['A']), r"env_vars: must be 'NAME=value', not 'A'"),
            (lambda: endpoint(env={'1A': 'x'}), r"env: '1A' is not the name of a variable"),
            (lambda: endpoint(volumes=Volume('a', 'a')), r'volumes: must be a list, not Volume\(…\)$'),
            (lambda: endpoint(image=Volume('a', 'a')), r'image: must be Image\(…\), not Volume\(…\)$'),
        )
        for make, said in cases:
            with self.subTest(said), self.assertRaisesRegex(DefinitionError, said):
                make()

    def test_a_call_that_another_kind_has_names_those_of_this_one(self) -> None:
        of: Any = {
            endpoint: ('remote', 'invoke'),
            task_queue: ('invoke', 'put'),
            function: ('invoke', 'remote'),
            longshore.asgi: ('put', 'HTTP'),
            longshore.realtime: ('remote', 'WebSocket'),
        }
        for decorator, (wrong, right) in of.items():
            with self.assertRaisesRegex(AttributeError, r'^@%s has no %s\(…\): .*%s' % (decorator.__name__, wrong, right)):
                getattr(decorator(lambda: 1), wrong)
        with self.assertRaisesRegex(AttributeError, "^'Endpoint' object has no attribute 'nonsense'$"):
            _ = endpoint(lambda: 1).nonsense  # type: ignore[attr-defined]

    def test_python_versions_are_written_in_one_way(self) -> None:
        versions = ('3.11', 'python3.11', 'python3', '3', 'micromamba3.10', longshore.PythonVersion.Python312)
        written = [Image(python_version=version).python_version for version in versions]
        self.assertEqual(written, ['python3.11', 'python3.11', 'python3', 'python3', 'micromamba3.10', 'python3.12'])

    def test_in_a_container_nothing_is_checked(self) -> None:
        with mock.patch.dict(os.environ, {'CONTAINER_ID': 'c'}):
            decorated = endpoint(cpu='nonsense')(len)
            queue = task_queue(cpu='nonsense', name='lengths', retry_for=[OSError])(len)
        self.assertEqual((decorated('abc'), queue.local('abcd')), (3, 4))
        self.assertEqual((queue.deployment_name, queue.retry_for), ('lengths', (OSError,)))

    def test_the_shims_give_the_same_names(self) -> None:
        others = ('Pod', 'Sandbox', 'asgi', 'endpoint', 'function', 'realtime', 'schedule', 'task_queue')
        for name in longshore.__all__:
            if name not in others:
                self.assertIs(getattr(beam, name), getattr(longshore, name))
            self.assertIs(getattr(beta9, name), getattr(beam, name))

    def test_the_context_says_so_when_no_task_runs(self) -> None:
        with mock.patch('longshore.task_context._CurrentContext._source', None), self.assertRaisesRegex(RuntimeError, 'no task'):
            _ = longshore.context.task_id
        with self.assertRaises(AttributeError):
            _ = longshore.context.nonsense


class Describe(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = os.path.realpath(directory.name)

    def write(self, path: str, text: str) -> None:
        full = os.path.join(self.directory, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, 'w', encoding='utf-8') as file:
            file.write(text)

    def describe(self, *arguments: str) -> Tuple[int, Any, str, str]:
        done = subprocess.run(
            [sys.executable, '-m', 'longshore.describe', *arguments],
            cwd=self.directory,
            env={'PYTHONPATH': PACKAGES, 'PATH': os.environ.get('PATH', ''), 'PYTHONDONTWRITEBYTECODE': '1', 'CONTAINER_ID': 'x'},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        for handler in answer.get('handlers', ()):
            # Their digest, by which a program finds that a deployed version has other parameters.
            extra = json.loads(handler['extra'])
            self.assertRegex(extra.pop('recipe', '0' * 16), '^[0-9a-f]{16}$')
            handler['extra'] = json.dumps(extra, separators=(',', ':'))
        return done.returncode, answer, done.stdout, done.stderr

    def test_a_misspelt_parameter_names_the_one_that_was_meant(self) -> None:
        for text, error, hint in (
            ('@endpoint(memroy=512)\ndef f(): pass\n', "app.py:2: TypeError: endpoint() got an unexpected", 'Did you mean memory? `help(longshore.endpoint)`'),
            ('x = Volume(name="a", mount="a")\n', 'app.py:2: TypeError: ', 'Did you mean mount_path? `help(longshore.Volume)`'),
            ('@endpoint(xyzzy=1)\ndef f(): pass\n', 'app.py:2: TypeError: endpoint() got', '`help(longshore.endpoint)` and'),
            ('def g(): pass\ng(memory=1)\n', 'app.py:3: TypeError: g() got', ''),
            ('int(memory=1)\n', 'app.py:2: TypeError: ', ''),
        ):
            # Older versions of Python do not name the class.
            if 'Volume' in text and sys.version_info < (3, 10):
                continue
            with self.subTest(text):
                self.write('app.py', 'from longshore import Volume, endpoint\n' + text)
                said = self.refused('app.py')
                self.assertEqual((said[0].startswith(error), said[1][: len(hint)] if hint else said[1]), (True, hint), said)

    def test_a_handler_of_web_sockets_says_so(self) -> None:
        self.write('app.py', 'from longshore import asgi, realtime\n@realtime\ndef a(message): pass\n@asgi\ndef b(): pass\n')
        _, answer, _, _ = self.describe('app.py')
        self.assertEqual([one.get('isRealtime') for one in answer['handlers']], [True, None])

    def test_a_module_of_a_folder_above_the_file_names_the_root_to_give(self) -> None:
        self.write('src/lib/app.py', 'import src.models\n')
        self.directory = os.path.join(self.directory, 'src', 'lib')
        _, hint = self.refused('app.py')
        self.assertEqual(hint, 'src is a folder above the file. Give the folder that holds it: --root %s' % self.directory[: -len('/src/lib')])

    def test_a_file_in_a_folder_gives_the_modules_from_the_root(self) -> None:
        self.write('src/models.py', 'def load(): pass\n')
        self.write('src/app.py', 'from longshore import endpoint\nfrom src.models import load\n@endpoint(on_start=load)\ndef serve(): pass\n')
        code, answer, _, _ = self.describe('src/app.py:serve')
        self.assertEqual(code, 0)
        self.assertEqual([answer['handlers'][0][name] for name in ('handler', 'onStart')], ['src.app:serve', 'src.models:load'])

    def refused(self, *arguments: str) -> Tuple[str, str]:
        code, answer, _, _ = self.describe(*arguments)
        self.assertEqual((code, answer['ok']), (1, False))
        return answer['error'], answer['hint']

    def test_the_function_of_on_deploy_is_described_with_its_handler(self) -> None:
        self.write(
            'app.py',
            'from beam import endpoint, function\n'
            '@function(name="weights", cpu=2)\ndef fetch(): pass\n'
            '@endpoint(on_deploy=fetch)\ndef serve(): pass\n',
        )
        code, answer, _, _ = self.describe('app.py:serve')
        self.assertEqual(code, 0)
        found = answer['handlers'][0]
        self.assertEqual(found['onDeploy'], 'app:fetch')
        hook = found['onDeployHandler']
        told = (hook['stubType'], hook['name'], hook['handler'], hook['cpu'])
        self.assertEqual(told, ('function', 'weights', 'app:fetch', 2000))

    def test_everything_said_arrives_as_a_stub_request(self) -> None:
        self.write(
            'app.py',
            """
from longshore import Image, QueueDepthAutoscaler, Volume, endpoint
def load(): return 1
@endpoint(
    name='everything', app='shop', cpu='500m', memory='1gi', gpu=['A10G', 'T4'], gpu_count=2, on_start=load, workers=4,
    image=Image(python_version='3.11', python_packages=['numpy'], commands=['true']).add_python_packages(['scipy']),
    concurrent_requests=3, keep_warm_seconds=-1, max_pending_tasks=7, timeout=60, env={'A': 'b=c'}, secrets=['KEY'],
    autoscaler=QueueDepthAutoscaler(min_containers=1, max_containers=5, tasks_per_container=2, window_seconds=30),
    volumes=[Volume(name='data', mount_path='./data')], authorized=False, tracebacks=True,
    keep_inputs=False,
)
def handler(): ...
""",
        )
        code, answer, _, _ = self.describe('app.py')
        self.assertEqual(code, 0)
        self.assertEqual(
            answer,
            {
                'ok': True,
                'handlers': [
                    {
                        'stubType': 'endpoint',
                        'name': 'everything',
                        'appName': 'shop',
                        'handler': 'app:handler',
                        'onStart': 'app:load',
                        'cpu': 500,
                        'memory': 1024,
                        'gpu': 'A10G,T4',
                        'gpuCount': 2,
                        'pythonVersion': 'python3.11',
                        'imageId': '',
                        'image': {
                            'pythonVersion': 'python3.11',
                            'pythonPackages': ['numpy'],
                            'commands': ['true'],
                            'baseImage': '',
                            'buildSteps': [{'type': 'pip', 'command': 'scipy', 'layer': 1}],
                        },
                        'workers': 4,
                        'concurrentRequests': 3,
                        'keepWarmSeconds': -1,
                        'maxPendingTasks': 7,
                        'timeout': 60,
                        'retries': 0,
                        'autoscaler': {
                            'type': 'queue_depth',
                            'maxContainers': 5,
                            'tasksPerContainer': 2,
                            'minContainers': 1,
                            'windowSeconds': 30,
                        },
                        'env': ['A=b=c'],
                        'secrets': [{'name': 'KEY'}],
                        'volumes': [{'name': 'data', 'mountPath': './data'}],
                        'authorized': False,
                        'callbackUrl': '',
                        'extra': '{"tracebacks":true,"keepInputs":false}',
                        'requiredInputs': [],
                        'place': 'app.py:4',
                    }
                ],
                'others': [],
            },
        )

    def test_the_defaults(self) -> None:
        self.write('app.py', 'from beta9 import endpoint\n@endpoint()\ndef handler(): ...\n')
        _, answer, _, _ = self.describe('app.py:handler')
        found = answer['handlers'][0]
        wanted = {'name': 'handler', 'appName': 'handler', 'cpu': 1000, 'memory': 128, 'workers': 1, 'keepWarmSeconds': 180}
        wanted.update({'maxPendingTasks': 100, 'timeout': 180, 'pythonVersion': 'python3', 'authorized': True, 'onStart': ''})
        self.assertEqual({key: found[key] for key in wanted}, wanted)

    def test_what_a_call_must_give_is_said_by_name(self) -> None:
        for parameters, required in (
            ('', []),
            ('a, b=0', ['a']),
            ('context, text: str, *, top_k, best=1', ['text', 'top_k']),
            ('*items, **more', []),
        ):
            for kind in ('endpoint', 'function'):
                self.write('app.py', 'from longshore import %s\n@%s()\ndef handler(%s): ...\n' % (kind, kind, parameters))
                _, answer, _, _ = self.describe('app.py')
                self.assertEqual(answer['handlers'][0]['requiredInputs'], required)

    def test_exclusive_handlers_say_after_which_silence_they_stop(self) -> None:
        for said, extra in (('True', {'stopAfterDisconnect': True}), ('90', {'stopAfterDisconnect': 90}), ('False', {})):
            self.write('app.py', 'from longshore import endpoint\n@endpoint(stop_after_disconnect=%s)\ndef handler(): ...\n' % said)
            _, answer, _, _ = self.describe('app.py:handler')
            self.assertEqual(json.loads(answer['handlers'][0]['extra']), extra)

    def test_the_time_of_a_start_is_the_apps_to_say(self) -> None:
        for kind in ('endpoint', 'task_queue', 'function', 'asgi', 'realtime'):
            for said, extra in (('start_timeout=3600', 3600), ('start_timeout=None', None), ('', None)):
                self.write('app.py', 'from longshore import %s\n@%s(%s)\ndef work(): ...\n' % (kind, kind, said))
                _, answer, _, _ = self.describe('app.py')
                self.assertEqual(json.loads(answer['handlers'][0]['extra']).get('startTimeout'), extra)
        with self.assertRaisesRegex(DefinitionError, '^start_timeout: must be a whole number of at least 1'):
            longshore.Pod(ports=[8000], start_timeout=0)

    def test_containers_by_schedule_are_said_by_the_autoscaler(self) -> None:
        office = longshore.Warm('0 8 * * 1-5', min=3, until='18:00', timezone='Europe/Berlin')
        self.assertEqual(
            longshore.QueueDepthAutoscaler(max_containers=5, warm=[office]).described()['warm'],
            [{'when': '0 8 * * 1-5', 'timezone': 'Europe/Berlin', 'min': 3, 'until': '18:00'}],
        )
        self.assertNotIn('warm', longshore.QueueDepthAutoscaler().described())
        slow = longshore.QueueDepthAutoscaler(scale_in_per_minute=2)
        self.assertEqual(2, slow.described()['scaleInPerMinute'])
        self.assertNotIn('scaleInPerMinute', longshore.QueueDepthAutoscaler().described())
        with self.assertRaisesRegex(DefinitionError, '^scale_in_per_minute: must be 1000 or less'):
            longshore.QueueDepthAutoscaler(scale_in_per_minute=1001)
        for until in ('6pm', '24:00', '8:00', '', '\u0661\u0668:00'):
            with self.subTest(until), self.assertRaisesRegex(DefinitionError, '^until: must be a time of day'):
                longshore.Warm('@daily', until=until)
        with self.assertRaisesRegex(DefinitionError, '^warm: '):
            longshore.QueueDepthAutoscaler(warm=['0 8 * * *'])  # type: ignore[list-item]

    def test_flow_control_names_a_parameter_of_the_function(self) -> None:
        app = "from longshore import Flow, task_queue\n@task_queue(flow=%s)\ndef work(month, customer=None, *, more=1): ...\n"
        for flow, extra in (
            ('None', None),
            ('Flow(5)', {'concurrency': 5}),
            ("Flow(concurrency=5, key='customer')", {'concurrency': 5, 'key': 'customer', 'position': 1}),
            ("Flow(throttle='100/m', key='customer')", {'throttle': '100/m', 'key': 'customer', 'position': 1}),
            ("Flow(rate='5/10s', on_excess='skip')", {'rate': '5/10s', 'onExcess': 'skip'}),
            ('Flow(priority=-60)', {'priority': -60}),
            ('Flow(debounce=30, debounce_max=300)', {'debounce': 30, 'debounceMax': 300}),
            ("Flow(singleton='replace', cancel_running=True)", {'singleton': 'replace', 'cancelRunning': True}),
            ("Flow(fair_key='customer', weights={'a': 2})", {'fairKey': 'customer', 'fairPosition': 1, 'weights': {'a': 2}}),
            ("Flow(limits={'openai': 10})", {'limits': {'openai': 10}}),
            ("Flow(concurrency=5, key='more')", {'concurrency': 5, 'key': 'more'}),
        ):
            self.write('app.py', app % flow)
            _, answer, _, _ = self.describe('app.py')
            self.assertEqual(json.loads(answer['handlers'][0]['extra']).get('flow'), extra)
        wrong = (
            ({}, 'concurrency: '),
            ({'concurrency': 0}, 'concurrency: '),
            ({'concurrency': 1, 'key': ''}, 'key: '),
            ({'concurrency': 1, 'key': 'k' * 129}, 'key: '),
            ({'key': 'k', 'limits': {'a': 1}}, 'key: '),
            ({'limits': {'a': 0}}, "limits\\['a'\\]: "),
            ({'limits': {'': 1}}, 'limits: '),
            ({'limits': 5}, 'limits: '),
            ({'throttle': '100'}, 'throttle: '),
            ({'throttle': '2000/s'}, 'throttle: '),
            ({'rate': '1/2d'}, 'rate: '),
            ({'rate': '1/s', 'on_excess': 'drop'}, 'on_excess: '),
            ({'throttle': '1/s', 'on_excess': 'skip'}, 'on_excess: '),
            ({'priority': 3601}, 'priority: '),
            ({'debounce': 0}, 'debounce: '),
            ({'debounce': 30, 'debounce_max': 20}, 'debounce_max: '),
            ({'singleton': 'drop'}, 'singleton: '),
            ({'singleton': 'skip', 'debounce': 1}, 'singleton: '),
            ({'singleton': 'skip', 'cancel_running': True}, 'cancel_running: '),
            ({'concurrency': 1, 'weights': {'a': 2}}, 'weights: '),
            ({'fair_key': 'a', 'weights': {'a': 0}}, "weights\\['a'\\]: "),
            ({'fair_key': 'a', 'priority': 0}, 'fair_key: '),
            ({'priority': 0, 'key': 'k'}, 'key: '),
        )
        for flow, text in wrong:
            with self.subTest(text), self.assertRaisesRegex(DefinitionError, '^' + text):
                longshore.Flow(**flow)
        with self.assertRaisesRegex(DefinitionError, '^flow.key: work has no parameter customer'):

            @longshore.task_queue(flow=longshore.Flow(1, key='customer'))
            def work(month: str) -> None: ...

        with self.assertRaisesRegex(DefinitionError, '^flow: must be Flow'):

            @longshore.task_queue(flow=5)  # type: ignore[arg-type]
            def other(month: str) -> None: ...

    def test_a_priority_is_one_of_three_words(self) -> None:
        for kind in ('endpoint', 'task_queue', 'function', 'asgi', 'realtime'):
            for said, extra in (("priority='high'", 'high'), ('priority=None', None), ('', None)):
                self.write('app.py', 'from longshore import %s\n@%s(%s)\ndef work(): ...\n' % (kind, kind, said))
                _, answer, _, _ = self.describe('app.py')
                self.assertEqual(json.loads(answer['handlers'][0]['extra']).get('priority'), extra)
        with self.assertRaisesRegex(DefinitionError, '^priority: must be'):
            longshore.Pod(ports=[8000], priority=5)  # type: ignore[arg-type]

    def test_interruptible_is_told_only_when_asked_for(self) -> None:
        for kind in ('endpoint', 'task_queue', 'function', 'asgi', 'realtime'):
            for said, extra in (('interruptible=True', True), ("interruptible='after_task'", 'after_task'), ('interruptible=False', None), ('', None)):
                self.write('app.py', 'from longshore import %s\n@%s(%s)\ndef work(): ...\n' % (kind, kind, said))
                _, answer, _, _ = self.describe('app.py')
                self.assertEqual(json.loads(answer['handlers'][0]['extra']).get('interruptible'), extra)

    def test_the_least_cuda_version_is_text_of_two_numbers(self) -> None:
        for kind in ('endpoint', 'task_queue', 'function', 'asgi', 'realtime'):
            for said, extra in (("min_cuda='12.8'", '12.8'), ('min_cuda=None', None), ('', None)):
                self.write('app.py', "from longshore import %s\n@%s(gpu='H100', %s)\ndef work(): ...\n" % (kind, kind, said))
                _, answer, _, _ = self.describe('app.py')
                self.assertEqual(json.loads(answer['handlers'][0]['extra']).get('minCuda'), extra)
        for wrong in ('12', '12.8.1', '>=12.8', '', ' 12.8', '12.8\n', '\u0661\u0662.\u0668', 12, True):
            with self.subTest(wrong), self.assertRaisesRegex(DefinitionError, '^min_cuda: must be a CUDA version as text'):
                longshore.Pod(ports=[8000], min_cuda=wrong)  # type: ignore[arg-type]
        linked = endpoint(gpu='H100', gpu_count=2, gpu_link='island')(len).options
        self.assertEqual(json.loads(linked['extra'])['gpuLink'], 'island')
        with self.assertRaisesRegex(DefinitionError, "^gpu_link: must be 'island'"):
            endpoint(gpu='H100', gpu_count=2, gpu_link='ring')(len)
        placed = longshore.Placement(require={'zone': ['a', 'b']}, prefer={'disk': 'nvme'}, spread='zone')
        described = {'require': {'zone': ['a', 'b']}, 'prefer': {'disk': ['nvme']}, 'spread': 'zone'}
        for made in (longshore.Sandbox(placement=placed)._definition, endpoint(placement=placed)(len).options):
            self.assertEqual(json.loads(made['extra'])['placement'], described)
        for wrong, said in (
            ({'require': ['zone']}, 'require: must be values by the key'),
            ({'forbid': {'zone': []}}, 'forbid: zone must have 1 to 16 values'),
            ({'prefer': {'zone': 'a b'}}, "prefer: 'a b' is no value of the label zone"),
            ({'prefer': dict.fromkeys('abcde', 'x')}, 'prefer: may name 4 labels, not 5'),
            ({'spread': 'a b'}, "spread: 'a b' is no key of a label"),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(DefinitionError, '^' + said):
                longshore.Placement(**wrong)  # type: ignore[arg-type]
        with self.assertRaisesRegex(DefinitionError, '^placement: '):
            endpoint(placement={'require': {}})(len)  # type: ignore[arg-type]
        self.assertEqual(json.loads(longshore.Sandbox(gpu='H100', min_cuda='12.8')._definition['extra'])['minCuda'], '12.8')

    def test_workers_are_made_as_the_app_says(self) -> None:
        for kind in ('endpoint', 'task_queue', 'function', 'schedule'):
            for said, extra in (("worker_mode='spawn'", {'workerMode': 'spawn'}), ('worker_mode=None', {})):
                when = "when='@daily', " if kind == 'schedule' else ''
                self.write('app.py', 'from longshore import %s\n@%s(%sworkers=2, %s)\ndef work(): ...\n' % (kind, kind, when, said))
                _, answer, _, _ = self.describe('app.py')
                found = json.loads(answer['handlers'][0]['extra'])
                self.assertEqual({key: found[key] for key in found if key not in ('when', 'timezone')}, extra)

    def test_what_containers_may_reach_is_said_where_it_is_not_everything(self) -> None:
        for said, wanted in (('', {}), ('block_network=True', {'blockNetwork': True}), ("allow_list=['10.0.0.0/8']", {'allowList': ['10.0.0.0/8']})):
            self.write('app.py', 'from longshore import task_queue\n@task_queue(%s)\ndef work(): ...\n' % said)
            _, answer, _, _ = self.describe('app.py')
            found = answer['handlers'][0]
            self.assertEqual({key: found[key] for key in ('blockNetwork', 'allowList') if key in found}, wanted)

    def test_a_pool_is_named_where_one_is_said(self) -> None:
        for said, wanted in (('', None), ("pool='gpu'", {'name': 'gpu'}), ("pool=''", None)):
            for kind in ('endpoint', 'task_queue', 'function', 'schedule'):
                when = "when='@daily', " if kind == 'schedule' else ''
                self.write('app.py', 'from longshore import %s\n@%s(%s%s)\ndef work(): ...\n' % (kind, kind, when, said))
                _, answer, _, _ = self.describe('app.py')
                self.assertEqual(answer['handlers'][0].get('pool'), wanted)

    def test_a_name_that_is_not_served_is_said_without_a_hint_about_libraries(self) -> None:
        self.write('app.py', 'from beam import Bot\nserver = Bot()\n')
        error, hint = self.refused('app.py')
        self.assertEqual((error.split(';')[0], hint), ('app.py:2: Bot: bots are not served', ''))

    def test_a_name_that_the_module_has_not_is_said_with_those_that_it_has(self) -> None:
        for text in ("import longshore\napp = longshore.App('x')\n", 'from longshore import App\n'):
            self.write('app.py', text)
            self.assertRegex(self.refused('app.py')[1], r'^longshore has no App\. Handlers are functions below a decorator: endpoint')

    def test_a_file_that_has_the_name_of_a_module_of_python_is_no_app_file(self) -> None:
        for name in ('os.py', 'sys.py'):
            self.write(name, 'from longshore import endpoint\n@endpoint\ndef handler(): ...\n')
            self.assertEqual(self.refused(name), ('%s has the name of a module of Python itself' % name, 'Rename it.'))
            os.remove(os.path.join(self.directory, name))

    def test_a_file_may_have_a_name_that_is_no_word_of_python(self) -> None:
        self.write('load-data.py', 'from longshore import endpoint\n@endpoint\ndef handler(): ...\n')
        _, answer, _, _ = self.describe('load-data.py')
        self.assertEqual(answer['handlers'][0]['handler'], 'load-data:handler')

    def test_a_base_image_is_the_image_of_its_containers(self) -> None:
        self.write('app.py', "from longshore import Image, endpoint\n@endpoint(image=Image(base_image='r.example/i:1'))\ndef handler(): ...\n")
        _, answer, _, _ = self.describe('app.py')
        self.assertEqual(answer['handlers'][0]['imageId'], 'r.example/i:1')

    def test_a_task_queue_has_defaults_of_its_own(self) -> None:
        self.write('app.py', 'from longshore import task_queue\n@task_queue(timeout=None)\ndef work(): ...\n')
        _, answer, _, _ = self.describe('app.py')
        found = answer['handlers'][0]
        wanted = {'stubType': 'taskqueue', 'name': 'work', 'handler': 'app:work', 'keepWarmSeconds': 10}
        wanted.update({'retries': 3, 'timeout': 0, 'extra': '{}'})
        self.assertEqual({key: found[key] for key in wanted}, wanted)
        self.write(
            'app.py',
            'from longshore import Volume, task_queue\n'
            '@task_queue(retries=5, retry_for=[OSError, KeyError], tracebacks=True, volumes=[Volume("models", "/models")])\n'
            'def work(): ...\n',
        )
        _, answer, _, _ = self.describe('app.py:work')
        found = answer['handlers'][0]
        self.assertEqual((found['timeout'], found['retries'], found['retriedAfter']), (3600, 5, 'after OSError, KeyError'))
        self.assertEqual(json.loads(found['extra']), {'retryFor': ['OSError', 'KeyError'], 'tracebacks': True})
        self.assertEqual(found['volumes'], [{'name': 'models', 'mountPath': '/models'}])

    def test_a_function_gets_a_container_for_each_call_unless_it_says_otherwise(self) -> None:
        self.write('app.py', 'from longshore import QueueDepthAutoscaler, function\n@function\ndef add(): ...\n')
        _, answer, _, _ = self.describe('app.py')
        found = answer['handlers'][0]
        wanted = {'stubType': 'function', 'handler': 'app:add', 'cpu': 125, 'memory': 128, 'timeout': 3600, 'retries': 0}
        wanted.update({'keepWarmSeconds': 0, 'autoscaler': None, 'authorized': True, 'extra': '{}'})
        self.assertEqual({key: found[key] for key in wanted}, wanted)
        text = 'from longshore import QueueDepthAutoscaler, function\n@function(autoscaler=QueueDepthAutoscaler(max_containers=2))\ndef add(): ...\n'
        self.write('app.py', text)
        _, answer, _, _ = self.describe('app.py')
        self.assertEqual(answer['handlers'][0]['autoscaler']['maxContainers'], 2)
        self.assertEqual(answer['handlers'][0]['retriedAfter'], 'after any exception')
        self.write('app.py', text.replace('(autoscaler', '(retries=2, retry_for=OSError, autoscaler'))
        _, answer, _, _ = self.describe('app.py')
        self.assertEqual((answer['handlers'][0]['retries'], answer['handlers'][0]['retriedAfter']), (2, 'after OSError'))

    def test_functions_of_the_published_packages_keep_their_tries(self) -> None:
        self.write('app.py', "from beam import function, schedule\n@function\ndef add(): ...\n@function(retries=1)\ndef one(): ...\n@schedule('@daily')\ndef night(): ...\n")
        _, answer, _, _ = self.describe('app.py')
        found = [(one['retries'], one['retriedAfter']) for one in answer['handlers']]
        self.assertEqual(found, [(retries, 'when its process ends') for retries in (3, 1, 3)])

    def test_a_schedule_says_when_it_runs(self) -> None:
        self.write('app.py', "from longshore import schedule\n@schedule(when=' 0 3 * * * ', timezone='Europe/Berlin')\ndef night(): ...\n")
        _, answer, _, _ = self.describe('app.py')
        found = answer['handlers'][0]
        self.assertEqual((found['stubType'], found['name']), ('schedule', 'night'))
        self.assertEqual(json.loads(found['extra']), {'when': '0 3 * * *', 'timezone': 'Europe/Berlin'})
        self.write('app.py', "from longshore import schedule\n@schedule(when='@hourly')\ndef h(): ...\n")
        _, answer, _, _ = self.describe('app.py')
        self.assertEqual(json.loads(answer['handlers'][0]['extra']), {'when': '@hourly', 'timezone': 'UTC'})
        self.write('app.py', 'from longshore import schedule\n@schedule()\ndef h(): ...\n')
        self.assertIn('when: must say when it runs', self.refused('app.py')[0])
        self.write('app.py', "from longshore import schedule\n@schedule(when='@hourly', timezone=5)\ndef h(): ...\n")
        self.assertIn('timezone: must be text', self.refused('app.py')[0])

    def test_in_a_container_a_schedule_does_not_look_at_its_times(self) -> None:
        with mock.patch.dict(os.environ, {'CONTAINER_ID': 'c'}):
            made = schedule(when=None)(lambda: 5)
        self.assertEqual(made(), 5)

    def test_an_endpoint_and_a_task_queue_take_the_same_but_for_retries(self) -> None:
        parameters = [set(inspect.signature(one).parameters) for one in (endpoint, task_queue)]
        self.assertEqual(parameters[1] - parameters[0], {'retries', 'retry_for', 'dead_letter_days'})
        self.assertEqual(parameters[0] - parameters[1], set())
        parameters = [set(inspect.signature(one).parameters) for one in (task_queue, function, schedule)]
        self.assertEqual(parameters[0] - parameters[1], {'concurrent_requests', 'authorized', 'flow'})
        self.assertEqual(parameters[2] - parameters[1], {'when', 'timezone'})

    def test_a_handler_in_a_class_is_refused_by_its_name(self) -> None:
        self.write('app.py', 'from longshore import endpoint\nclass Model:\n    @endpoint\n    def predict(self): ...\n')
        error, hint = self.refused('app.py')[:2]
        self.assertEqual(error, 'app.py defines no handler: methods cannot be handlers, as Model.predict is')
        self.assertIn('at the top level of the file', hint)

    def test_all_handlers_of_a_file_or_the_one_that_is_named(self) -> None:
        self.write('other.py', 'from longshore import endpoint\n@endpoint()\ndef elsewhere(): ...\n')
        text = 'from longshore import endpoint\nfrom other import elsewhere\n@endpoint()\ndef one(): ...\n'
        self.write('pkg/app.py', text + '@endpoint()\ndef two(): ...\nuno = one\ndef plain(): ...\n')
        _, answer, _, _ = self.describe('pkg/app.py')
        self.assertEqual([found['handler'] for found in answer['handlers']], ['pkg.app:one', 'pkg.app:two'])
        self.assertEqual(answer['others'], [])
        for wanted, others in (('one', ['two']), ('uno', ['two']), ('two', ['one'])):
            _, answer, _, _ = self.describe('pkg/app.py:' + wanted)
            self.assertEqual([found['handler'] for found in answer['handlers']], ['pkg.app:' + wanted])
            self.assertEqual(answer['others'], others)
        self.assertEqual(self.refused('pkg/app.py:none')[0], 'pkg/app.py: has no none')
        self.assertEqual(
            self.refused('pkg/app.py:plain')[0],
            'pkg/app.py: plain is not decorated with @endpoint, @task_queue, @function, @schedule, @asgi or @realtime, and is no Pod',
        )

    def test_prints_go_to_stderr_and_threads_do_not_hold_the_end(self) -> None:
        self.write(
            'app.py',
            'import os, sys, threading, time\nfrom longshore import endpoint\n'
            'print("hi")\nsys.stdout.flush()\nos.system("echo from a shell")\n'
            'threading.Thread(target=time.sleep, args=(600,)).start()\n@endpoint()\ndef handler(): ...\n',
        )
        code, answer, out, err = self.describe('app.py')
        self.assertEqual((code, answer['ok'], len(out.splitlines())), (0, True, 1))
        self.assertIn('hi\n', err)
        self.assertIn('from a shell\n', err)

    def test_a_library_that_is_not_here_is_answered_with_the_way_out(self) -> None:
        self.write('app.py', 'x = 1\nimport not_a_library.part\n')
        error, hint = self.refused('app.py')
        self.assertEqual(error, "app.py:2: ModuleNotFoundError: No module named 'not_a_library'")
        self.assertRegex(hint, '^not_a_library is not installed here.*Import it inside the handler or in on_start.*The container has it by `image=Image')

    def test_a_call_at_the_top_of_the_file_is_answered_with_its_place(self) -> None:
        self.write('app.py', 'from longshore.client import GatewayError\n\nraise GatewayError("nobody answers")\n')
        error, hint = self.refused('app.py')
        self.assertEqual(error, 'app.py:3: GatewayError: nobody answers')
        self.assertRegex(hint, '^Put calls below `if __name__')

    def test_mistakes_of_the_app_itself_say_where(self) -> None:
        cases = {
            'x = 1\n1 / 0\n': 'app.py:2: ZeroDivisionError: division by zero',
            'import sys\nsys.exit(4)\n': 'app.py ends the program while it is imported (exit 4)',
            'from longshore import endpoint\n\n@endpoint(cpu="1q")\ndef h(): ...\n': 'app.py:3: cpu: unknown unit',
            'from longshore import endpoint\n@endpoint(colour=1)\ndef h(): ...\n': 'app.py:2: TypeError: endpoint() got an',
            'def h(:\n': 'app.py:1: SyntaxError',
            'def h(): ...\n': 'app.py defines no handler',
            'from longshore import endpoint\n@endpoint(on_start=lambda: 1)\ndef h(): ...\n': "app.py:2: on_start: '<lambda>' cannot be found",
            'from longshore import endpoint\n@endpoint(on_start="load")\ndef h(): ...\n': "app.py:2: on_start: must be 'module:function', not 'load'",
        }
        for text, error in cases.items():
            with self.subTest(text=text):
                self.write('app.py', text)
                self.assertTrue(self.refused('app.py')[0].startswith(error), self.refused('app.py'))

    def test_a_target_that_cannot_be_an_app_file(self) -> None:
        self.write('my.app.py', '')
        for target, error in (
            ('none.py', 'none.py does not exist'),
            ('app', "'app' is not a Python file"),
            ('../x.py', '../x.py is outside'),
            ('my.app.py', "my.app.py cannot be imported: the name 'my.app' has a dot or a colon"),
        ):
            with self.subTest(target):
                self.assertTrue(self.refused(target)[0].startswith(error), self.refused(target))
        self.assertEqual(self.refused()[0], 'give the app file and perhaps a handler in it: app.py:handler')

    def test_the_examples_can_be_deployed(self) -> None:
        examples = os.path.join(os.path.dirname(PACKAGES), 'examples')
        names = {}
        for folder in sorted(os.listdir(examples)):
            if os.path.isfile(os.path.join(examples, folder, 'app.py')):
                self.directory = os.path.join(examples, folder)
                _, answer, _, _ = self.describe('app.py')
                names[folder] = [found['name'] for found in answer['handlers']]
        own = ('add', 'chat', 'classifier', 'clock', 'diffusion', 'fastapi', 'hello', 'node', 'notebook', 'packages', 'qrcode', 'site', 'slow')
        own += ('stream', 'whisper')
        recipes = {
            'batch_table': ['batch-table'],
            'embeddings': ['embed', 'search', 'fit'],
            'embedding_model': ['embedding-model'],
            'llm_llamacpp': ['llm-llamacpp'],
            'text_generator': ['text-generator'],
            'llm_vllm': ['llm'],
            'webhook_consumer': ['webhook-consumer'],
        }
        others = {'batch': ['batch-count', 'batch-report'], 'commands': ['index'], 'dockerfile': ['elements'], 'on_start': ['primes']}
        self.assertEqual(names, {**{name: [name] for name in own}, **others, **recipes, 'retries': ['orders'], 'secrets': ['sign']})
