"""Names that no module defines: a line that is rarely run would fail with a NameError there."""

import builtins
import pathlib
import symtable
import unittest

PYTHON = pathlib.Path(__file__).resolve().parents[1]
ALWAYS = set(dir(builtins)) | {'__file__', '__name__', '__doc__', '__path__', '__spec__', '__builtins__'}


def undefined(path):
    """Names that some scope of the file reads as globals, and that nothing in the file defines."""
    module = symtable.symtable(path.read_text(), str(path), 'exec')
    tables = [module]
    used, made = set(), set()
    for table in tables:
        tables.extend(table.get_children())
        for symbol in table.get_symbols():
            is_module = table is module
            if is_module or symbol.is_declared_global():
                if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                    made.add(symbol.get_name())
            if symbol.is_referenced() and (is_module or symbol.is_global()):
                used.add(symbol.get_name())
    return sorted(used - made - ALWAYS)


class Names(unittest.TestCase):
    def test_each_name_is_defined(self):
        files = sorted(PYTHON.glob('*/*.py'))
        self.assertGreater(len(files), 40)
        for path in files:
            with self.subTest(file=str(path.relative_to(PYTHON))):
                if 'import *' not in path.read_text():
                    self.assertEqual(undefined(path), [])
