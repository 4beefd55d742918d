"""From bytes and query parameters to arguments."""

from __future__ import annotations

import json
import unittest
from typing import Any, Dict, List, Tuple

from longshore.runner.inputs import InputError, arguments, number_or_text


class Arguments(unittest.TestCase):
    def test_what_an_object_becomes(self) -> None:
        cases: List[Tuple[Any, List[Any], Dict[str, Any]]] = [
            ({}, [], {}),
            ({'a': 1, 'b': {'c': None}}, [], {'a': 1, 'b': {'c': None}}),
            ({'args': [1, 'x']}, [1, 'x'], {}),
            ({'args': [1], 'b': 2}, [1], {'b': 2}),
            ({'kwargs': {'a': 1}}, [], {'a': 1}),
            ({'kwargs': {'a': 1}, 'b': 2}, [], {'a': 1}),
            ({'args': [1], 'kwargs': {'a': 1}, 'b': 2}, [1], {'a': 1}),
            ({'args': None, 'kwargs': {'a': 1}}, [], {'a': 1}),
            ({'args': [1], 'kwargs': None}, [1], {}),
            ({'args': 'text', 'b': 2}, [], {'args': 'text', 'b': 2}),
            ({'kwargs': [1]}, [], {'kwargs': [1]}),
        ]
        for given, positional, keywords in cases:
            with self.subTest(given=given):
                self.assertEqual(arguments(json.dumps(given).encode(), None), (positional, keywords))

    def test_an_empty_body_is_no_input(self) -> None:
        self.assertEqual(arguments(b'', {}), ([], {}))
        self.assertEqual(arguments(b' \n', None), ([], {}))

    def test_query_parameters_come_on_top_of_the_keywords(self) -> None:
        query = {'a': '2', 'l': ['1', 'x'], 'one': ['7'], 'none': []}
        self.assertEqual(arguments(b'{"a": 1, "c": 3}', query), ([], {'a': 2, 'c': 3, 'l': [1, 'x'], 'one': 7, 'none': []}))
        self.assertEqual(arguments(b'{"kwargs": {"a": 1}, "z": 1}', {'b': 'x'}), ([], {'a': 1, 'b': 'x'}))

    def test_what_is_no_object_is_refused(self) -> None:
        for body in (b'[1]', b'1', b'"x"', b'null'):
            with self.subTest(body=body), self.assertRaises(InputError):
                arguments(body, None)
        for body in (b'{', b'\xff', b'nonsense'):
            with self.subTest(body=body), self.assertRaises(ValueError):
                arguments(body, None)


class Numbers(unittest.TestCase):
    def test_only_what_is_exactly_a_number_becomes_one(self) -> None:
        for text, expected in (('0', 0), ('-12', -12), ('1.5', 1.5), ('1e3', 1000.0), ('-0.25', -0.25)):
            with self.subTest(text=text):
                self.assertEqual((number_or_text(text), type(number_or_text(text))), (expected, type(expected)))
        for text in ('', '007', '1_000', '+1', ' 1', '1 ', 'nan', 'inf', '1e999', '0x10', '1.', '.5', '١', '9' * 301, 'true'):
            with self.subTest(text=text):
                self.assertEqual(number_or_text(text), text)
