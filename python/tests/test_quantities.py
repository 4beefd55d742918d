"""The parser of cpu and memory, on every suffix and on what people write by mistake."""

from __future__ import annotations

import unittest
from typing import Any, List, Tuple

from longshore.quantities import cpu_millicores, memory_mib


class Cpu(unittest.TestCase):
    def test_numbers_are_cores_and_m_is_thousandths(self) -> None:
        cases: List[Tuple[Any, int]] = [
            (1, 1000),
            (1.0, 1000),
            (0.1, 100),
            (0.125, 125),
            ('2', 2000),
            ('0.5', 500),
            ('.5', 500),
            ('500m', 500),
            ('500M', 500),
            (' 250 m ', 250),
            (64, 64000),
            ('1500.5m', 1501),
        ]
        for value, expected in cases:
            with self.subTest(value=value):
                self.assertEqual(cpu_millicores(value), expected)

    def test_anything_else_is_refused_by_name(self) -> None:
        for value in ('', 'two', '1x', '1gi', '-1', 0, -1, '0', '0m', True, None, float('nan'), float('inf'), [1], '1 2'):
            with self.subTest(value=value), self.assertRaisesRegex(ValueError, '^cpu: '):
                cpu_millicores(value)  # type: ignore[arg-type]


class Memory(unittest.TestCase):
    def test_every_suffix(self) -> None:
        cases: List[Tuple[Any, int]] = [
            (128, 128),
            ('128', 128),
            ('128m', 128),
            ('128mb', 128),
            ('128mi', 128),
            ('128mib', 128),
            ('2g', 2000),
            ('2gb', 2000),
            ('2gi', 2048),
            ('2gib', 2048),
            ('1.5gi', 1536),
            ('1.1g', 1100),
            ('512Mi', 512),
            ('1 GiB', 1024),
            (0.5, 1),
            (256.0, 256),
        ]
        for value, expected in cases:
            with self.subTest(value=value):
                self.assertEqual(memory_mib(value), expected)

    def test_anything_else_is_refused_by_name(self) -> None:
        values: List[Any] = ['', 'lots', '1k', '1t', '1tb', '5 5', '-1g', 0, '0g', False, None, {}]
        for value in values:
            with self.subTest(value=value), self.assertRaisesRegex(ValueError, '^memory: '):
                memory_mib(value)
