"""Compares `docs/python.md` with the module: new parameters, defaults and names must be written there."""

from __future__ import annotations

import ast
import inspect
import os
import re
import unittest
from typing import Any, Dict, List
from unittest import mock

import longshore
from longshore import LLM, Context, Flow, Image, Placement, Pod, QueueDepthAutoscaler, ReadinessProbe, Sandbox, Secret, TaskPolicy, Volume, asgi, endpoint, function, realtime, schedule, task_queue

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs', 'python.md')
#: In the order in which the page gives their defaults.
DECORATORS = (endpoint, task_queue, function, schedule)
_ROW = re.compile(r'^\| `(\w+)` \| ([^|]+) \|', re.MULTILINE)
_NONE = '–'


class Documentation(unittest.TestCase):
    page = ''

    @classmethod
    def setUpClass(cls) -> None:
        with open(PAGE, encoding='utf-8') as file:
            cls.page = file.read()

    def test_every_parameter_of_a_decorator_has_a_row_with_its_defaults(self) -> None:
        said: Dict[str, List[Any]] = {}
        for name, cell in _ROW.findall(self.page):
            self.assertNotIn(name, said, 'it has two rows')
            said[name] = [_NONE if one == _NONE else ast.literal_eval(one.strip('`')) for one in cell.strip().split(' / ')]
        self.assertEqual({name: values * 4 if len(values) == 1 else values for name, values in said.items()}, self.defaults())

    def defaults(self) -> Dict[str, List[Any]]:
        """Defaults by parameter, for each decorator; the decorated function is no parameter."""
        signatures = [dict(inspect.signature(one).parameters) for one in DECORATORS]
        for parameters in signatures:
            del parameters['function']
        names = {name for parameters in signatures for name in parameters}
        return {name: [one[name].default if name in one else _NONE for one in signatures] for name in names}

    def test_asgi_and_realtime_have_the_parameters_of_endpoint_but_for_those_of_inputs(self) -> None:
        of_endpoint = inspect.signature(endpoint)
        wanted = [one for one in of_endpoint.parameters.values() if one.name not in ('keep_inputs', 'flow')]
        for one in (asgi, realtime):
            self.assertEqual(inspect.signature(one), of_endpoint.replace(parameters=wanted))

    def test_so_has_everything_that_is_given_to_them(self) -> None:
        said = dict(re.findall(r'`(\w+\(\w+)=…\)`[^|]*\| ([^|]*)\|', self.page))
        for made in (Flow, Image, LLM, Placement, QueueDepthAutoscaler, ReadinessProbe, Secret, TaskPolicy, Volume):
            for name, parameter in inspect.signature(made).parameters.items():
                with self.subTest('%s(%s=)' % (made.__name__, name)):
                    cell = said['%s(%s' % (made.__name__, name)].strip().strip('`')
                    self.assertEqual(ast.literal_eval(cell) if cell else parameter.empty, parameter.default)

    def test_pods_and_sandboxes_have_rows_for_what_differs_from_an_endpoint(self) -> None:
        said = dict(re.findall(r'^\| `(\w+\(\w+)=…\)` \| `([^`]*)` \|', self.page, re.MULTILINE))
        of_endpoint = inspect.signature(endpoint).parameters
        # For app files of other platforms: accepted, or refused with a text.
        others = {'disks', 'tcp', 'docker_enabled', 'use_vm', 'context', 'app_kind', 'serving_protocol'}
        for made in (Pod, Sandbox):
            for name, parameter in inspect.signature(made).parameters.items():
                cell = said.get('%s(%s' % (made.__name__, name))
                if cell is not None:
                    self.assertEqual(ast.literal_eval(cell), parameter.default, name)
                elif name not in others and not name.startswith('checkpoint_'):
                    self.assertIn(name, of_endpoint)
                    self.assertEqual(parameter.default or None, of_endpoint[name].default or None, name)

    def test_every_name_of_the_module_and_of_the_context_is_there(self) -> None:
        for name in (*longshore.__all__, *Context.__slots__):
            with self.subTest(name):
                self.assertRegex(self.page, r'\b%s\b' % name)
        for kind in (longshore.Endpoint, longshore.TaskQueue, longshore.Function, longshore.Schedule):
            for name, _ in inspect.getmembers(kind, inspect.isfunction):
                # `described` is for the command line.
                if not name.startswith('_') and name != 'described':
                    self.assertIn('`handler.%s(' % name, self.page)

    def test_its_examples_are_definitions(self) -> None:
        examples = re.findall(r'```python\n(.*?)```', self.page, re.DOTALL)
        self.assertGreaterEqual(len(examples), 2)
        with mock.patch.dict(os.environ):
            os.environ.pop('CONTAINER_ID', None)
            for text in examples:
                with self.subTest(text.splitlines()[0]):
                    names: Dict[str, Any] = {'__name__': 'app'}
                    exec(compile(text, 'docs/python.md', 'exec'), names)
                    self.assertTrue(any(hasattr(one, '__longshore_function__') or isinstance(one, Pod) or one is Sandbox for one in names.values()))
