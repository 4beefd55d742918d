"""Inputs held to a handler's annotations: what passes, what is converted, what is refused, and in which words."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import sys
import unittest
import uuid
from typing import Any, Callable, Dict, List, Mapping, NewType, Optional, Sequence, Tuple, Union

if sys.version_info >= (3, 8):
    from typing import Literal

import beta9
from longshore import endpoint, function, schema, task_queue
from longshore.runner.call import Application, run_async, run_sync
from longshore.runner.settings import Settings
from longshore.runner.task import Task

UserId = NewType('UserId', int)


class Colour(enum.Enum):
    RED = 'red'
    BLUE = 'blue'


@dataclasses.dataclass
class Item:
    name: str
    count: int = 1
    parts: Optional[List[Item]] = None


class Lines:
    def log(self, _task_id: str, _stream: str, _line: bytes) -> None: ...


def answer_of(handler: Callable[..., Any], body: Any, query: Any = None, stub_type: str = 'endpoint') -> Any:
    """Outcome and answer of a call."""
    task = Task('task-1', 'token', query, 0)
    task.body = body if isinstance(body, bytes) else json.dumps(body).encode()
    task.sink = Lines()
    application = Application(handler, Settings({'STUB_TYPE': stub_type}))
    ignore: Any = lambda _task, _item: None
    outcome, answer = asyncio.run(run_async(application, task, ignore)) if application.is_async else run_sync(application, task, ignore)
    return outcome, json.loads(answer)


def outcome_of(handler: Callable[..., Any], body: Any, query: Any = None, stub_type: str = 'endpoint') -> Any:
    """Outcome of a call, and its value as the handler saw it, or its error."""
    outcome, answer = answer_of(handler, body, query, stub_type)
    return outcome, answer if outcome == 'ok' else answer['error']


def taking(annotation: Any, **default: Any) -> Callable[..., Any]:
    """A handler with one input of that type, which gives back its text."""

    def handler(n, context=None):  # type: ignore[no-untyped-def]
        return repr(n)

    handler.__annotations__ = {'n': annotation}
    if default:
        handler.__defaults__ = (default['default'], None)
    return handler


class Annotated(unittest.TestCase):
    def test_a_refused_caller_is_told_what_the_handler_takes(self) -> None:
        def wrapped(function: Any) -> Any:
            @functools.wraps(function)
            def inner(*args: Any, **keywords: Any) -> Any:
                return function(*args, **keywords)

            return inner

        def first(a: int, context: Any, b: str = '', *, c: int, d: int = 1) -> None: ...
        def second(a: int, **more: int) -> None: ...
        def third(*, a: int = 0) -> None: ...
        async def fourth(a): ...  # type: ignore[no-untyped-def]
        def fifth() -> None: ...

        for handler, body, said in (
            (first, {}, 'the handler takes a, c and optionally b, d'),
            (wrapped(first), {'a': 'x'}, 'the handler takes a, c and optionally b, d'),
            (second, {'a': 1, 'b': 'x'}, 'the handler takes a and any other name'),
            (third, {'x': 1}, 'the handler takes optionally a'),
            (fourth, {'x': 1}, 'the handler takes a'),
            (fifth, {'x': 1}, 'the handler takes no inputs'),
        ):
            with self.subTest(said=said):
                outcome, answer = answer_of(handler, body)
                self.assertEqual((outcome, answer['detail']), ('invalid', said))

    def test_values_of_the_json_type_pass_as_they_are(self) -> None:
        for annotation, given in (
            (int, 5),
            (int, 10**30),
            (float, 1.5),
            (bool, True),
            (str, 'abc'),
            (None, None),
            (Optional[int], None),
            (Optional[int], 3),
            (Union[int, str], 'x'),
            (List[int], [1, 2]),
            (Sequence[str], []),
            (Dict[str, int], {'a': 1}),
            (Mapping[str, Any], {'a': [1]}),
            (dict, {'a': None}),
            (list, [None]),
            (Literal['a', 1], 1),
            (UserId, 7),
            ('int', 4),
            ('List[int]', [4]),
            # Nothing is known of these.
            (Any, {'x': 1}),
            ('NoSuchName', 'x'),
            ('List[NoSuchName]', 3),
            (Callable[[], int], 3),
            (complex, 'x'),
            (object, None),
            ('not python(', 1),
        ):
            with self.subTest(annotation=annotation, given=given):
                self.assertEqual(outcome_of(taking(annotation), {'n': given}), ('ok', repr(given)))

    def test_the_number_type_of_json_becomes_that_of_the_annotation(self) -> None:
        for annotation, given, shown in (
            (float, 5, '5.0'),
            (float, -0, '0.0'),
            (float, 2**53 + 1, '9007199254740993'),
            (int, 3.0, '3'),
            (int, -1e3, '-1000'),
            (int, 9007199254740992.0, '9007199254740992'),
            (int, 9007199254740993, '9007199254740993'),
            (Optional[float], 2, '2.0'),
            (Optional[int], 2.0, '2'),
            (List[float], [1, 2.5], '[1.0, 2.5]'),
            (Dict[str, int], {'a': 4.0}, "{'a': 4}"),
            (Tuple[int, float], [1.0, 1], '(1, 1.0)'),
            # A union takes the type that needs no change.
            (Union[int, float], 3.0, '3.0'),
            (Union[float, int], 3, '3'),
            (Union[str, float], 3, '3.0'),
            (Union[List[float], List[int]], [1], '[1]'),
            (Union[List[int], List[float]], [1.0], '[1.0]'),
            (Union[Dict[str, float], Dict[str, int]], {'a': 1}, "{'a': 1}"),
            ('Item', {'name': 'a', 'count': 2.0}, repr(Item('a', 2))),
        ):
            with self.subTest(annotation=annotation, given=given):
                self.assertEqual(outcome_of(taking(annotation), {'n': given}), ('ok', shown))
        for text, shown in (('3', '3.0'), ('3.5', '3.5')):
            self.assertEqual(outcome_of(taking(float), {}, {'n': [text]}), ('ok', shown))
        self.assertEqual(outcome_of(taking(int), {}, {'n': ['3.0']}), ('ok', '3'))

    def test_other_types_are_refused_with_the_name_of_the_field(self) -> None:
        for annotation, given, said in (
            (int, 'abc', 'n: must be a whole number, not text'),
            (int, True, 'n: must be a whole number, not true'),
            (int, 1.5, 'n: must be a whole number, not 1.5'),
            (int, 1e300, 'n: must be a whole number without a point or an exponent beyond 2^53, not 1e+300'),
            (float, 10**400, 'n: must be a number within 1.8e308, not a whole number'),
            (Union[int, bool], 1.5, 'n: must be a whole number or true or false, not 1.5'),
            (int, None, 'n: must be a whole number, not null'),
            (float, '1.5', 'n: must be a number, not text'),
            (float, False, 'n: must be a number, not false'),
            (bool, 1, 'n: must be true or false, not a whole number'),
            (str, 5, 'n: must be text, not a whole number'),
            (str, {}, 'n: must be text, not an object'),
            (None, 0, 'n: must be null, not a whole number'),
            (Optional[int], 'x', 'n: must be a whole number or null, not text'),
            (Union[int, List[str]], [1], 'n[0]: must be text, not a whole number'),
            (List[int], [1, 'b'], 'n[1]: must be a whole number, not text'),
            (List[int], 'ab', 'n: must be an array, not text'),
            (Tuple[int, str], [1], 'n: must be an array of 2, not of 1'),
            (Dict[str, List[int]], {'a': [None]}, 'n.a[0]: must be a whole number, not null'),
            (dict, [], 'n: must be an object, not an array'),
            (Literal['a', 1], True, "n: must be 'a' or 1, not true"),
            (UserId, 'x', 'n: must be a whole number, not text'),
            ('int', 'x', 'n: must be a whole number, not text'),
            ('Optional[Item]', {'name': 1}, 'n.name: must be text, not a whole number'),
            (Colour, 'green', "n: must be 'red' or 'blue', not 'green'"),
            (datetime.datetime, 'soon', "n: must be a date with a time such as 2030-01-31T12:00:00Z, not 'soon'"),
            (bytes, 'no base64!', "n: must be base64 text, not 'no base64!'"),
            (Item, {'count': 1}, 'n.name: is missing'),
            (Item, {'name': 'a', 'x': 1}, 'n.x: is no field'),
            (Item, {'name': 'a', 'parts': [{'name': 'b', 'count': 'c'}]}, 'n.parts[0].count: must be a whole number, not text'),
        ):
            with self.subTest(annotation=annotation, given=given):
                self.assertEqual(outcome_of(taking(annotation), {'n': given}), ('invalid', said))

    def test_types_of_this_version_of_python(self) -> None:
        cases: List[Any] = []
        if sys.version_info >= (3, 9):
            cases += [('list[int]', ['a'], 'n[0]: must be a whole number, not text'), ('dict[str, int]', {'a': 'b'}, 'n.a: must be a whole number, not text')]
        if sys.version_info >= (3, 10):
            cases += [('int | None', 'x', 'n: must be a whole number or null, not text'), ('str | list[int]', 5, 'n: must be text or an array, not a whole number')]
        for annotation, given, said in cases:
            with self.subTest(annotation):
                self.assertEqual(outcome_of(taking(annotation), {'n': given}), ('invalid', said))

    def test_values_are_converted_only_where_json_has_no_such_type(self) -> None:
        at = '2030-01-31T12:00:00Z'
        for annotation, given, seen in (
            (datetime.datetime, at, datetime.datetime(2030, 1, 31, 12, tzinfo=datetime.timezone.utc)),
            (datetime.date, '2030-01-31', datetime.date(2030, 1, 31)),
            (datetime.time, '12:30:00', datetime.time(12, 30)),
            (bytes, 'YWI=', b'ab'),
            (uuid.UUID, '12345678-1234-5678-1234-567812345678', uuid.UUID('12345678-1234-5678-1234-567812345678')),
            (Colour, 'red', Colour.RED),
            (Item, {'name': 'a', 'parts': [{'name': 'b'}]}, Item('a', 1, [Item('b')])),
            (List[datetime.date], ['2030-01-31'], [datetime.date(2030, 1, 31)]),
            (Optional[datetime.date], '2030-01-31', datetime.date(2030, 1, 31)),
        ):
            with self.subTest(annotation=annotation):
                self.assertEqual(outcome_of(taking(annotation), {'n': given}), ('ok', repr(seen)))

    def test_models_of_pydantic_are_made_and_refuse_by_their_own_rules(self) -> None:
        class Problem(ValueError):
            def errors(self) -> Any:
                return [{'loc': ('items', 0, 'count'), 'msg': 'Input should be a valid integer'}]

        class BaseModel:
            def __init__(self, given: Any) -> None:
                self.given = given

            @classmethod
            def model_validate(cls, value: Any) -> Any:
                if value == 'bad':
                    raise Problem
                return cls(value)

            def __repr__(self) -> str:
                return 'model of %r' % self.given

        BaseModel.__module__ = 'pydantic.main'
        Order = type('Order', (BaseModel,), {})
        self.assertEqual(outcome_of(taking(Order), {'n': {'a': 1}}), ('ok', "model of {'a': 1}"))
        self.assertEqual(outcome_of(taking(Order), {'n': 'bad'}), ('invalid', 'n.items[0].count: Input should be a valid integer'))

    def test_a_missing_input_or_one_too_many_is_refused_for_every_handler(self) -> None:
        def plain(a, b):  # type: ignore[no-untyped-def]
            return a

        async def coroutine(a, b):  # type: ignore[no-untyped-def]
            return a

        def generator(a, b):  # type: ignore[no-untyped-def]
            yield a

        @functools.wraps(plain)
        def wrapped(*args, **kwargs):  # type: ignore[no-untyped-def]
            return plain(*args, **kwargs)

        for handler in (plain, coroutine, generator, wrapped, endpoint(plain), beta9.endpoint(plain), function(plain)):
            for body, said in (
                ({'a': 1}, 'b: is missing'),
                ({}, 'a, b: are missing'),
                ({'a': 1, 'b': 2, 'c': 3}, 'c: is no input of the handler'),
                ({'args': [1], 'a': 2, 'b': 3}, 'a: is given twice'),
            ):
                with self.subTest(handler=handler, body=body):
                    self.assertEqual(outcome_of(handler, body), ('invalid', said))
            outcome, said = outcome_of(handler, {'args': [1, 2, 3]})
            self.assertEqual(outcome, 'invalid')
            self.assertIn('takes 2 positional arguments but 3 were given', said)

    def test_a_type_error_of_the_handler_itself_stays_its_own(self) -> None:
        def inner(x):  # type: ignore[no-untyped-def]
            return x

        def calls(n: int) -> Any:
            return inner()  # type: ignore[call-arg]

        def recursive(n: int = 0) -> Any:
            return recursive(1, 2)  # type: ignore[call-arg]

        for handler in (calls, recursive):
            outcome, said = outcome_of(handler, {'n': 1})
            self.assertEqual((outcome, said[:9]), ('error', 'TypeError'))

    def test_handlers_that_say_nothing_and_files_for_published_packages_get_what_they_got(self) -> None:
        def plain(n):  # type: ignore[no-untyped-def]
            return n

        def annotated(n: int) -> Any:
            return n

        self.assertEqual(outcome_of(plain, {'n': 'x'}), ('ok', 'x'))
        self.assertEqual(outcome_of(beta9.endpoint(annotated), {'n': 'x'}), ('ok', 'x'))
        self.assertEqual(outcome_of(endpoint(annotated), {'n': 'x'})[0], 'invalid')
        one = schema.Schema.object({'n': schema.String()})
        self.assertEqual(outcome_of(endpoint(inputs=one)(lambda given: given.n), {'n': 'x'}), ('ok', 'x'))

    def test_tasks_fail_clearly_and_are_not_tried_again(self) -> None:
        def annotated(n: int) -> Any:
            return n

        for decorated, kind in ((task_queue(annotated), 'taskqueue'), (function(annotated), 'function')):
            self.assertEqual(outcome_of(decorated, {'args': ['x']}, stub_type=kind), ('invalid', 'n: must be a whole number, not text'))
            self.assertEqual(outcome_of(decorated, {}, stub_type=kind), ('invalid', 'n: is missing'))

    def test_positional_defaulted_and_further_inputs(self) -> None:
        def handler(a: int, b: 'str' = 'x', *rest: int, c: Optional[bool] = None, d: int = None, **more: float) -> Any:  # type: ignore[assignment]
            return [a, b, list(rest), c, d, more]

        self.assertEqual(outcome_of(handler, {'args': [1, 'y', 2], 'c': True, 'd': None, 'e': 5}), ('ok', [1, 'y', [2], True, None, {'e': 5}]))
        for body, said in (
            ({'args': [1, 2]}, 'b: must be text, not a whole number'),
            ({'args': [1, 'y', 'z']}, 'args[2]: must be a whole number, not text'),
            ({'a': 1, 'c': 'yes'}, 'c: must be true or false or null, not text'),
            ({'a': 1, 'e': 'x'}, 'e: must be a number, not text'),
        ):
            self.assertEqual(outcome_of(handler, body), ('invalid', said))

    def test_parameters_of_an_address_are_texts(self) -> None:
        def handler(name: str = '', n: int = 0, f: float = 0, flag: bool = False, many: List[int] = [], on: datetime.date = None) -> Any:  # type: ignore[assignment]
            return [name, n, f, flag, many, str(on)]

        query = {'name': '12', 'n': '3', 'f': '2', 'flag': 'true', 'many': '4', 'on': '2030-01-31'}
        self.assertEqual(outcome_of(handler, b'', query), ('ok', ['12', 3, 2, True, [4], '2030-01-31']))
        self.assertEqual(outcome_of(handler, b'', {'many': ['1', '2']}), ('ok', ['', 0, 0, False, [1, 2], 'None']))
        self.assertEqual(outcome_of(handler, b'', {'n': 'x'}), ('invalid', 'n: must be a whole number, not text'))

    def test_a_parameter_of_the_address_is_read_as_its_annotation_asks_whether_it_comes_alone_or_in_a_list(self) -> None:
        class Colour(enum.Enum):
            RED = 1
            BLUE = '2'

        for kind, text, made in (
            (bool, 'true', True),
            (bool, 'True', True),
            (bool, 'FALSE', False),
            (bool, '1', True),
            (bool, '0', False),
            (Optional[bool], 'true', True),
            (Optional[bool], '0', False),
            (Union[bool, int], '1', 1),
            (str, '5', '5'),
            (str, '007', '007'),
            (str, 'true', 'true'),
            (str, '1.50', '1.50'),
            (Optional[str], '5', '5'),
            (int, '5', 5),
            (float, '2', 2.0),
            (Union[int, str], '5', 5),
            (Union[int, str], '007', '007'),
            *([] if sys.version_info < (3, 8) else [(Literal['1', 'a'], '1', '1'), (Literal[1, 2], '2', 2), (Literal[True], 'true', True)]),
            (Colour, '1', Colour.RED),
            (Colour, '2', Colour.BLUE),
            (Optional[datetime.date], '2030-01-31', datetime.date(2030, 1, 31)),
            (decimal.Decimal, '0.10000000000000000001', decimal.Decimal('0.10000000000000000001')),
            (List[bool], 'True', [True]),
            (List[str], '5', ['5']),
            (Optional[List[int]], '5', [5]),
        ):
            for query in ({'n': text}, {'n': [text]}):
                with self.subTest(kind=kind, query=query):
                    self.assertEqual(outcome_of(taking(kind), b'', query), ('ok', repr(made)))
        for kind, texts, many in (
            (List[bool], ['true', '0'], [True, False]),
            (List[str], ['5', '007', 'true'], ['5', '007', 'true']),
            (List[Optional[bool]], ['1', 'false'], [True, False]),
            (Tuple[int, bool, str], ['5', 'true', '007'], (5, True, '007')),
            (Tuple[str, bool, float], ['5', '1', '1'], ('5', True, 1.0)),
        ):
            with self.subTest(kind=kind, texts=texts):
                self.assertEqual(outcome_of(taking(kind), b'', {'n': texts}), ('ok', repr(many)))
        for kind, text, wrong in (
            (bool, 'maybe', 'n: must be true or false, not text'),
            (bool, '2', 'n: must be true or false, not a whole number'),
            (int, 'true', 'n: must be a whole number, not text'),
        ):
            with self.subTest(kind=kind, text=text):
                self.assertEqual(outcome_of(taking(kind), b'', {'n': [text]}), ('invalid', wrong))
        self.assertEqual(outcome_of(taking(List[bool]), b'', {'n': ['true', 'x']}), ('invalid', 'n[1]: must be true or false, not text'))


if __name__ == '__main__':
    unittest.main()
