"""The shims `beam` and `beta9`: every name of the published packages, and what becomes of it."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import unittest
from importlib import import_module
from typing import Any

import beam
import beta9
import longshore
from longshore.published import SERVED, UNSERVED, NotServedError

from .published_names import BEAM, BETA9, PARAMETERS

PYTHON = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
PAGE = os.path.join(PYTHON, '..', 'docs', 'published-names.md')


class Published(unittest.TestCase):
    def test_every_name_is_in_the_table_once(self) -> None:
        self.assertEqual(set(SERVED) & set(UNSERVED), set())
        for name in {*BETA9, *BEAM}:
            with self.subTest(name):
                self.assertTrue(name in SERVED or name in UNSERVED)

    def test_each_shim_gives_every_name_and_those_of_longshore(self) -> None:
        for shim, names in ((beta9, BETA9), (beam, BEAM)):
            for name in {*names, *longshore.__all__}:
                with self.subTest('%s.%s' % (shim.__name__, name)):
                    self.assertIn(name, shim.__all__)
                    self.assertIsNotNone(getattr(shim, name))

    def test_a_served_name_is_the_modules_own(self) -> None:
        for name, (module, attribute) in SERVED.items():
            with self.subTest(name):
                home = import_module('longshore.' + module)
                self.assertIs(getattr(beam, name), getattr(home, attribute) if attribute else home)
                self.assertIs(getattr(beta9, name), getattr(beam, name))

    def test_a_name_that_is_not_served_says_so_when_it_is_used(self) -> None:
        for name, why in UNSERVED.items():
            found = getattr(beam, name)
            for use in (lambda one: one(), lambda one: one.create(), lambda one: type('Mine', (one,), {})):
                with self.subTest(name), self.assertRaises(NotServedError) as raised:
                    use(found)
                self.assertEqual(str(raised.exception), '%s: %s' % (name, why))
            self.assertNotIsInstance(1, found)

    def test_an_unknown_name_is_no_name(self) -> None:
        for module in (beam, beta9, longshore, beam.experimental):
            with self.assertRaises(AttributeError):
                _ = module.Nonsense

    def test_the_decorators_take_the_published_parameters(self) -> None:
        for name, parameters in PARAMETERS.items():
            own = inspect.signature(getattr(longshore, name)).parameters
            self.assertEqual([one for one in parameters.split() if one not in own], [], name)

    def test_the_shims_take_them_by_position_in_the_published_order(self) -> None:
        from longshore.published_decorators import _ORDERS

        self.assertEqual(_ORDERS, PARAMETERS)

    def test_app_files_import_as_they_do_with_the_packages(self) -> None:
        text = '\n'.join(
            (
                'from %s import *',
                'from %s import Pod, Sandbox, env, schema, integrations',
                'from %s.schema import Schema, String',
                'from %s.integrations import MCPServer, VLLM',
                'from %s.experimental import Signal, Bot',
                'import %s.env as where',
                'assert env.is_local() and where.is_local() and issubclass(Schema, schema.Schema)',
                'assert Pod(entrypoint=["run"]) and Sandbox(cpu=1)',
                'try: integrations.VLLM()',
                'except NotImplementedError as error: print(error)',
            )
        )
        for shim in ('beam', 'beta9'):
            ran = run(text.replace('%s', shim))
            self.assertEqual(ran.stdout, 'VLLM: %s\n' % UNSERVED['VLLM'], ran.stderr)

    def test_importing_a_shim_loads_nothing_more_than_its_table(self) -> None:
        ran = run("import sys, beam; print([one for one in sys.modules if one.startswith('longshore')])")
        self.assertEqual(ran.stdout, "['longshore', 'longshore.published']\n", ran.stderr)

    def test_the_page_has_every_name(self) -> None:
        with open(PAGE, encoding='utf-8') as file:
            rows = re.findall(r'^\| `(\w+)` \| (yes|no)\b', file.read(), re.MULTILINE)
        self.assertEqual(dict(rows), {name: 'yes' if name in SERVED else 'no' for name in sorted({*SERVED, *UNSERVED})})
        self.assertEqual(len(rows), len(dict(rows)))


def run(text: str) -> Any:
    environ = {name: value for name, value in os.environ.items() if name != 'CONTAINER_ID'}
    return subprocess.run(
        [sys.executable, '-c', text],
        env=dict(environ, PYTHONPATH=PYTHON, PYTHONDONTWRITEBYTECODE='1'),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


if __name__ == '__main__':
    unittest.main()
