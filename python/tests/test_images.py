"""Definitions of images, by the constructor and by the methods of the published packages."""

from __future__ import annotations

import json
import os
import tempfile
import unittest
from typing import Any, Callable
from unittest import mock

from longshore import DefinitionError, Image, Pod, PythonVersion, QueueDepthAutoscaler, function, schedule
from longshore.recipes import recipe


class Images(unittest.TestCase):
    def setUp(self) -> None:
        environ = mock.patch.dict(os.environ)
        environ.start()
        self.addCleanup(environ.stop)
        os.environ.pop('CONTAINER_ID', None)

    def test_methods_add_in_their_order(self) -> None:
        image = (
            Image('python3.12', env_vars='A=1')
            .apt_install()
            .pip_install('numpy', 'scipy')
            .run_commands('mkdir /a')
            .apt_install('ffmpeg', 'git')
            .add_python_packages(['six'])
            .env({'B': '2'})
        )
        described = image.described()
        commands = [step['command'] for step in described['buildSteps']]
        self.assertIn(' --no-install-recommends ffmpeg git && ', commands.pop(3))
        self.assertEqual(commands, ['numpy', 'scipy', 'mkdir /a', 'six'])
        self.assertEqual(described['envVars'], ['A=1', 'B=2'])
        self.assertEqual(Image(env_vars='A=1').with_envs(['B=2'], clear=True).env_vars, ['B=2'])

    def test_python_versions_are_texts_and_members(self) -> None:
        image = Image(PythonVersion.Python310)
        self.assertEqual(image.python_version, 'python3.10')
        self.assertEqual(image.add_python_version(PythonVersion.Python312).python_version, 'python3.12')
        self.assertEqual(json.dumps(image.described()['pythonVersion']), '"python3.12"')
        self.assertEqual((PythonVersion.Python311.value, '%s' % PythonVersion.Python311), ('python3.11', 'python3.11'))

    def test_an_image_that_was_built_is_named_by_its_id(self) -> None:
        made = '0123456789abcdef' * 2
        self.assertEqual(Image.from_id(made).base_image, 'longshore.internal/' + made)
        self.assertEqual(Image(image_id=made).base_image, 'longshore.internal/' + made)
        self.assertEqual(Image.from_registry('r.example/i:1').base_image, 'r.example/i:1')
        self.assertEqual(Image(base_image=None).base_image, '')

    def test_local_files_are_linked_where_they_are_wanted(self) -> None:
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            with open('a b.txt', 'w', encoding='utf-8'):
                pass
            image = Image().add_local_path('*.txt').add_local_file('a b.txt').add_local_file('./a b.txt', '/data/words')
            self.assertEqual([step['command'] for step in image.added], ["mkdir -p /data && ln -sfnT '/mnt/code/a b.txt' /data/words"])
            for path in ('/etc/hosts', '../x', 'none'):
                self.refused('local_path', lambda path=path: Image().add_local_file(path))
            self.refused('copy', lambda: Image().add_local_file('a b.txt', '/x', copy=True))
            os.chdir(here)

    def test_micromamba_and_its_packages(self) -> None:
        image = Image().micromamba().add_micromamba_packages(['numpy', 'scipy'], ['bioconda']).pip_install('six')
        self.assertEqual(image.python_version, 'micromamba3.11')
        self.assertEqual(
            [(step['type'], step['command']) for step in image.added],
            [('micromamba', 'numpy'), ('micromamba', 'scipy'), ('micromamba', '-c bioconda'), ('pip', 'six')],
        )
        self.assertEqual(Image('python3.12').micromamba().micromamba().python_version, 'micromamba3.12')
        self.refused('python_version', lambda: Image('python3.13').micromamba())

    def test_a_build_with_a_gpu_names_it(self) -> None:
        self.assertEqual(Image().build_with_gpu('A10G').described()['gpu'], 'A10G')
        self.assertEqual(Image().build_with_gpu(['H100', 'A100']).gpu, 'H100,A100')
        self.assertNotIn('gpu', Image().described())

    def test_a_dockerfile_ends_with_its_target_and_has_its_arguments(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'Dockerfile')
            with open(path, 'w', encoding='utf-8') as file:
                file.write('FROM a AS one\nARG V=1\nARG W\nRUN x\nFROM b as two\nRUN y\nFROM c\nRUN z\n')
            build: Callable[..., str] = lambda **more: Image.from_dockerfile(path, **more).dockerfile
            self.assertTrue(build().endswith('FROM c\nRUN z\n'))
            self.assertTrue(build(target='TWO').endswith('FROM b as two\nRUN y\n'))
            self.assertTrue(build(target='0').endswith('RUN x\n'))
            self.assertIn('\nARG V="a\\"b\\$c"\nARG W="2"\n', build(target='one', build_args={'V': 'a"b$c', 'W': 2}))
            self.refused('target', lambda: build(target='three'))
            self.refused('build_args', lambda: build(build_args={'X': '1'}))

    def test_what_images_do_not_have_is_refused_with_the_way_out(self) -> None:
        refusals = {
            'with_secrets': lambda: Image().with_secrets(['A']),
            'add_micromamba_packages': lambda: Image().add_micromamba_packages(['a']),
            'with_docker': lambda: Image().with_docker(),
            'base_image_creds': lambda: Image(base_image='r.example/i', base_image_creds=['DOCKERHUB_USERNAME']),
            'credentials': lambda: Image.from_registry('r.example/i', ['DOCKERHUB_USERNAME']),
            'build': lambda: Image().build(),
            'exists': lambda: Image().exists(),
        }
        for name, call in refusals.items():
            with self.subTest(name):
                self.refused(name, call)

    def test_an_image_that_changes_later_stays_as_it_was_in_an_earlier_handler(self) -> None:
        with mock.patch.dict(os.environ):
            os.environ.pop('CONTAINER_ID', None)
            image = Image(python_packages=['numpy']).add_commands(['true'])
            # A statement changes the image, as in the published packages; so does a chain.
            image.pip_install('six')

            @function(image=image)
            def first() -> None: ...

            image.pip_install('torch').with_envs({'A': '1'}).run_commands('late').build_with_gpu('T4')
            image.python_packages.append('late')

            @function(image=image)
            def second() -> None: ...

            pod = Pod(image=image)
            image.pip_install('later')

        self.assertEqual([step['command'] for step in first.options['image']['buildSteps']], ['true', 'six'])
        self.assertEqual(first.options['image']['pythonPackages'], ['numpy'])
        self.assertNotIn('envVars', first.options['image'])
        for options in (second.options, pod.options, recipe(pod._given)):
            self.assertEqual([step['command'] for step in options['image']['buildSteps']], ['true', 'six', 'torch', 'late'])

    def refused(self, name: str, call: Callable[[], Any]) -> None:
        with self.assertRaises(DefinitionError) as raised:
            call()
        self.assertTrue(str(raised.exception).startswith(name + ': '), raised.exception)


class Positional(unittest.TestCase):
    def test_an_autoscaler_takes_its_bounds_in_the_published_order(self) -> None:
        scaler = QueueDepthAutoscaler(5, 2, 1)
        self.assertEqual((scaler.max_containers, scaler.tasks_per_container, scaler.min_containers), (5, 2, 1))

    def test_a_schedule_takes_its_times_first(self) -> None:
        with mock.patch.dict(os.environ):
            os.environ.pop('CONTAINER_ID', None)

            @schedule('0 3 * * *', name='nightly')
            def handler() -> None: ...

        self.assertEqual(json.loads(handler.options['extra'])['when'], '0 3 * * *')
        self.assertEqual(handler.deployment_name, 'nightly')


if __name__ == '__main__':
    unittest.main()
