"""`docs/python-reference.md` is made from the source of the module, and `help(…)` explains every parameter."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import unittest
from typing import Any, Set

import longshore

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
_EXPLAINED = re.compile(r'^ *([a-z_]+(?:, [a-z_]+)*): ', re.MULTILINE)


def explained(one: Any) -> Set[str]:
    """Parameters that a docstring explains, each at the beginning of a line."""
    return {name for found in _EXPLAINED.findall(one.__doc__) for name in found.split(', ')}


class Reference(unittest.TestCase):
    page = ''

    @classmethod
    def setUpClass(cls) -> None:
        made = subprocess.run([sys.executable, os.path.join(ROOT, 'scripts', 'python_reference.py')], stdout=subprocess.PIPE, check=True)
        cls.page = made.stdout.decode('utf-8')

    def test_is_current(self) -> None:
        with open(os.path.join(ROOT, 'docs', 'python-reference.md'), encoding='utf-8') as file:
            self.assertEqual(file.read(), self.page, 'else: npm run generate')

    def test_has_every_public_name(self) -> None:
        modules = {'env', 'schema'}
        missing = [name for name in longshore.__all__ if name not in modules and '### `%s`' % name not in self.page]
        self.assertEqual(missing, [])

    def test_lists_parameters_alone(self) -> None:
        # A line of prose that begins with a word and a colon is no parameter.
        self.assertIn("- `retries`: how often a task is tried again", self.page)
        self.assertIn('- `disks`, `docker_enabled`, `use_vm`: refused.', self.page)
        entry = self.page.split('### `Volume`')[1].split('###')[0]
        self.assertEqual(re.findall(r'^- `(.+?)`:', entry, re.MULTILINE), ['name', 'mount_path', 'driver'])


class Help(unittest.TestCase):
    def test_explains_every_parameter(self) -> None:
        common = explained(longshore.endpoint)
        for one, inherited in (
            (longshore.endpoint, set()),
            (longshore.task_queue, common),
            (longshore.function, common | {'retries'}),
            (longshore.schedule, common | explained(longshore.function)),
            (longshore.asgi, common),
            (longshore.realtime, common),
            (longshore.Pod, common | {'checkpoint_readiness_%s' % name for name in ('path', 'port', 'timeout', 'interval')}),
            (longshore.Sandbox, common),
            *((made, set()) for made in (longshore.Image, longshore.QueueDepthAutoscaler, longshore.TaskPolicy, longshore.Volume)),
            *((made, set()) for made in (longshore.CloudBucketConfig, longshore.ReadinessProbe, longshore.LLM, longshore.Context)),
        ):
            with self.subTest(getattr(one, '__name__', one)):
                parameters = set(inspect.signature(one).parameters) - {'function'}
                self.assertEqual(parameters - explained(one) - inherited, set())
                self.assertEqual(explained(one) - parameters, set(), 'no parameters')

    def test_every_public_method_says_what_it_does(self) -> None:
        silent = []
        for name in longshore.__all__:
            one = getattr(longshore, name)
            if not inspect.isclass(one) or issubclass(one, BaseException):
                continue
            for member, value in inspect.getmembers(one):
                if member.startswith('_') or member == 'described' or not (inspect.isroutine(value) or isinstance(value, property)):
                    continue
                silent += [] if value.__doc__ else ['%s.%s' % (name, member)]
        self.assertEqual(silent, [])
