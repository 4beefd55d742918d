"""`docs/python-reference.md` is made from the source of the module."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')


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
        import longshore

        modules = {'env', 'schema'}
        missing = [name for name in longshore.__all__ if name not in modules and '### `%s`' % name not in self.page]
        self.assertEqual(missing, [])
