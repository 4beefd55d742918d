"""The parser of cpu and memory, on every suffix and on what people write by mistake. The cases are the scheduler's parser's too."""

from __future__ import annotations

import json
import os
import unittest
from typing import Any, Callable, Dict

from longshore.quantities import cpu_millicores, memory_mib

_CASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'test', 'fixtures', 'quantities.json')


class Quantities(unittest.TestCase):
    cases: Dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        with open(_CASES, encoding='utf-8') as file:
            cls.cases = json.load(file)

    def check(self, name: str, parse: Callable[[Any], int]) -> None:
        accepted, refused = self.cases[name]['accepted'], self.cases[name]['refused']
        # Values that JSON cannot hold are refused too.
        refused = [*refused, float('nan'), float('inf'), float('-inf'), '9' * 400, b'1']
        self.assertGreater(min(len(accepted), len(refused)), 10)
        for value, expected in accepted:
            with self.subTest(accepted=value):
                self.assertEqual(parse(value), expected)
        for value in refused:
            with self.subTest(refused=value), self.assertRaisesRegex(ValueError, '^%s: ' % name):
                parse(value)

    def test_cpu_is_cores_or_with_m_thousandths(self) -> None:
        self.check('cpu', cpu_millicores)

    def test_memory_is_mib_or_has_a_unit(self) -> None:
        self.check('memory', memory_mib)


if __name__ == '__main__':
    unittest.main()
