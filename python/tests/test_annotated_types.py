"""Inputs of handlers whose annotations are texts, and of types that hold others."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import operator
import pathlib
import sys
import types
import typing
import unittest
import uuid
from typing import Any, ClassVar, Counter, DefaultDict, Deque, Dict, FrozenSet, Generic, List, NamedTuple, NewType, Optional, Set, Tuple, TypeVar, Union

from .test_annotated import outcome_of

if sys.version_info >= (3, 9):
    from typing import TypedDict
else:
    TypedDict = dict

T = TypeVar('T')
Bound = TypeVar('Bound', bound=int)
Either = TypeVar('Either', int, str)
First = NewType('First', int)
Second = NewType('Second', First)
Tree = Dict[str, Union['Tree', List['Tree'], int]]


class Colour(enum.Enum):
    RED = 'red'
    BLUE = 'blue'


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Weight(enum.Enum):
    HALF = 0.5
    ONE = 1.0


class Pair(enum.Enum):
    BOTH = (1, 'a')
    NONE = None


class Loose(enum.Enum):
    YES = 'yes'

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls.YES if str(value).lower() == 'yes' else None


class Nothing(enum.Enum):
    pass


class Operation(enum.Enum):
    ADD = operator.attrgetter('add')


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0
    label: str = None  # type: ignore[assignment]


@dataclasses.dataclass
class Line:
    points: List[Point]
    next: Optional[Line] = None


@dataclasses.dataclass
class Box(Generic[T]):
    item: T


@dataclasses.dataclass
class Made:
    a: int
    of_class: ClassVar[int] = 3
    given: dataclasses.InitVar[int] = 4
    counted: int = dataclasses.field(init=False, default=1)

    def __post_init__(self, given: int) -> None:
        if self.a < 0:
            # A test runner writes more into the text of an `assert`.
            raise AssertionError('a is negative')
        self.counted = given


@dataclasses.dataclass(init=False)
class OwnInit:
    a: int

    def __init__(self, text: str) -> None:
        self.a = int(text)


class Row(NamedTuple):
    a: int
    b: str = 'x'


Plain = collections.namedtuple('Plain', 'a b')


class Node(TypedDict):
    value: int
    children: List[Node]


if sys.version_info >= (3, 11):

    class Partly(TypedDict):
        a: int
        b: typing.NotRequired[datetime.date]

    class Wholly(TypedDict, total=False):
        a: typing.Required[int]
        b: str


def h(n: Any) -> Any:
    return repr(n)


def of(annotation: str) -> Any:
    """A handler of this module whose one input has this annotation."""
    handler = types.FunctionType(h.__code__, globals(), 'h')
    handler.__annotations__ = {'n': annotation}
    return handler


class AnnotatedTypes(unittest.TestCase):
    def refused(self, cases: List[Tuple[str, Any, str]]) -> None:
        for annotation, given, said in cases:
            with self.subTest(annotation=annotation, given=given):
                self.assertEqual(outcome_of(of(annotation), {'n': given}), ('invalid', said))

    def taken(self, cases: List[Tuple[str, Any, Any]]) -> None:
        for annotation, given, made in cases:
            with self.subTest(annotation=annotation, given=given):
                self.assertEqual(outcome_of(of(annotation), {'n': given}), ('ok', repr(made)))

    def test_a_wrong_value_of_the_right_type_is_shown_also_where_other_types_are_taken(self) -> None:
        self.refused(
            [
                ('Optional[datetime.date]', 'soon', "n: must be a date such as 2030-01-31 or null, not 'soon'"),
                ('Optional[datetime.date]', 5, 'n: must be a date such as 2030-01-31 or null, not a whole number'),
                ('List[Optional[datetime.date]]', ['x'], "n[0]: must be a date such as 2030-01-31 or null, not 'x'"),
                ('Union[uuid.UUID, int]', 'x', "n: must be a UUID or a whole number, not 'x'"),
                ('Union[int, uuid.UUID]', 'x', "n: must be a whole number or a UUID, not 'x'"),
                ('Optional[bytes]', '!', "n: must be base64 text or null, not '!'"),
                ('Optional[Colour]', 'green', "n: must be 'red' or 'blue' or null, not 'green'"),
                ('Union[Colour, int]', True, "n: must be 'red' or 'blue' or a whole number, not true"),
                ('Optional[Union[Colour, Level]]', 7, "n: must be 'red' or 'blue' or 1 or 2 or null, not 7"),
                ('Optional[Point]', 'x', 'n: must be an object or null, not text'),
                ('Optional[Union[float, Optional[float]]]', 'x', 'n: must be a number or null, not text'),
                ('datetime.date', 'x' * 500, "n: must be a date such as 2030-01-31, not '%s…" % ('x' * 99)),
            ]
        )

    def test_arrays_become_what_the_annotation_says(self) -> None:
        self.taken(
            [
                ('Tuple[int, str]', [1.0, 'a'], (1, 'a')),
                ('Tuple[int, ...]', [1, 2], (1, 2)),
                ('tuple', [1], (1,)),
                ('Tuple', [], ()),
                ('Tuple[()]', [], ()),
                ('Set[int]', [1, 1.0], {1}),
                ('typing.AbstractSet[str]', ['a'], {'a'}),
                ('FrozenSet[str]', ['a'], frozenset('a')),
                ('Deque[int]', [1], collections.deque([1])),
                ('Set[Tuple[int, int]]', [[1, 2]], {(1, 2)}),
                ('Union[Tuple[int, int], List[int]]', [1, 2], [1, 2]),
                ('Row', [1], Row(1)),
                ('Row', {'b': 'y', 'a': 1.0}, Row(1, 'y')),
                ('Plain', [1, None], Plain(1, None)),
            ]
        )
        self.refused(
            [
                ('Tuple[()]', [1], 'n: must be an array of 0, not of 1'),
                ('Set[int]', [1, 'a'], 'n[1]: must be a whole number, not text'),
                ('set', [[1]], 'n: has an item that cannot be in a set'),
                ('Row', ['x'], 'n[0]: must be a whole number, not text'),
                ('Row', [], 'n: must be an array of 2, not of 0'),
                ('Row', {'b': 'y'}, 'n.a: is missing'),
                ('Row', {'a': 1, 'c': 'y'}, 'n.c: is no field'),
                ('Row', 'x', 'n: must be an array or an object, not text'),
            ]
        )

    def test_keys_of_objects_become_what_the_annotation_says(self) -> None:
        self.taken(
            [
                ('Dict[int, str]', {'1': 'a'}, {1: 'a'}),
                ('Dict[float, int]', {'1.5': 1}, {1.5: 1}),
                ('Dict[bool, int]', {'true': 1}, {True: 1}),
                ('Dict[Colour, int]', {'red': 1.0}, {Colour.RED: 1}),
                ('Dict[datetime.date, Any]', {'2030-01-31': None}, {datetime.date(2030, 1, 31): None}),
                ('Dict[Union[int, str], int]', {'a': 1}, {'a': 1}),
                ('Dict[Tuple[int, int], int]', {'a': 1}, {'a': 1}),
                ('Counter[str]', {'a': 2}, collections.Counter(a=2)),
                ('typing.OrderedDict[str, int]', {'a': 2}, collections.OrderedDict(a=2)),
            ]
        )
        self.refused(
            [
                ('Dict[int, str]', {'x': 'a'}, "n: each key must be a whole number, not 'x'"),
                ('Dict[Colour, int]', {'green': 1}, "n: each key must be 'red' or 'blue', not 'green'"),
                ('Dict[int, int]', {'1': 1, '1.0': 2}, 'n: has two keys that mean 1'),
                ('Dict[str, int]', {'k' * 300: 'x'}, 'n.%s…: must be a whole number, not text' % ('k' * 100)),
            ]
        )

        def counts(n: DefaultDict[str, List[int]]) -> Any:
            n['b'].append(1)
            return n

        self.assertEqual(outcome_of(counts, {'n': {'a': [2]}}), ('ok', {'a': [2], 'b': [1]}))

    def test_more_types_that_json_has_not_are_converted(self) -> None:
        seconds = datetime.timedelta
        self.taken(
            [
                ('datetime.timedelta', 1.5, seconds(seconds=1.5)),
                ('datetime.timedelta', 'P1DT2H3M4.5S', seconds(days=1, hours=2, minutes=3, seconds=4.5)),
                ('datetime.timedelta', '-PT1M', seconds(minutes=-1)),
                ('datetime.time', '12:00Z', datetime.time(12, tzinfo=datetime.timezone.utc)),
                ('decimal.Decimal', '19.90', decimal.Decimal('19.90')),
                ('decimal.Decimal', 19.9, decimal.Decimal('19.9')),
                ('decimal.Decimal', 10**30, decimal.Decimal(10**30)),
                ('pathlib.Path', '/a/b', pathlib.Path('/a/b')),
                ('Level', 1.0, Level.LOW),
                ('Weight', 1, Weight.ONE),
                ('Mode', 3, Mode(3)),
                ('Pair', [1, 'a'], Pair.BOTH),
                ('Pair', None, Pair.NONE),
                ('Loose', 'YES', Loose.YES),
                ('typing.Literal[1, 2]', 1.0, 1),
                ('typing.Literal[Colour.RED]', 'red', Colour.RED),
                ("typing.Literal[b'a']", 'YQ==', b'a'),
                # No value of these can be written in JSON.
                ('Nothing', 1, 1),
                ('Operation', 'add', 'add'),
            ]
        )
        self.refused(
            [
                ('datetime.timedelta', 'PT', "n: must be a number of seconds, or a duration such as 'PT1H30M', not 'PT'"),
                ('datetime.timedelta', 1e300, "n: must be a number of seconds, or a duration such as 'PT1H30M', not 1e+300"),
                ('datetime.timedelta', True, "n: must be a number of seconds, or a duration such as 'PT1H30M', not true"),
                ('decimal.Decimal', 'NaN', "n: must be a decimal number such as 19.99 or '19.99', not 'NaN'"),
                ('decimal.Decimal', False, "n: must be a decimal number such as 19.99 or '19.99', not false"),
                ('pathlib.Path', 5, 'n: must be the text of a path, not a whole number'),
                ('Level', 3, 'n: must be 1 or 2, not 3'),
                ('Level', True, 'n: must be 1 or 2, not true'),
                ('Mode', 4, 'n: must be a sum of the values of Mode, not 4'),
                ('Mode', 'READ', 'n: must be a whole number, not text'),
                ('Pair', [2, 'a'], 'n: must be [1, "a"] or null, not an array'),
                ('Loose', 'no', "n: must be 'yes', not 'no'"),
                ('typing.Literal[%s]' % ', '.join(map(str, range(25))), 99, 'n: must be %s, or one of 5 others, not 99' % ' or '.join(map(str, range(20)))),
            ]
        )
        # An address has all digits of a number.
        self.assertEqual(outcome_of(of('decimal.Decimal'), b'', {'n': '0.12345678901234567890'}), ('ok', "Decimal('0.12345678901234567890')"))

    def test_numbers_beyond_those_of_json_are_refused(self) -> None:
        for body, annotation, said in (
            (b'{"n": 1e999}', 'float', 'n: must be a number within 1.8e308, not Infinity'),
            (b'{"n": NaN}', 'float', 'n: must be a number within 1.8e308, not NaN'),
            (b'{"n": [-1e999]}', 'List[int]', 'n[0]: must be a whole number, not -Infinity'),
            (b'{"n": 1e999}', 'decimal.Decimal', "n: must be a decimal number such as 19.99 or '19.99', not Infinity"),
        ):
            with self.subTest(body=body):
                self.assertEqual(outcome_of(of(annotation), body), ('invalid', said))

    def test_dataclasses_are_checked_field_by_field(self) -> None:
        self.taken(
            [
                ('Point', {'x': 1.0, 'label': None}, Point(1)),
                ('Line', {'points': [{'x': 1}], 'next': {'points': []}}, Line([Point(1)], Line([]))),
                ('Box[int]', {'item': 1.0}, Box(1)),
                ('Box[Point]', {'item': {'x': 1}}, Box(Point(1))),
                ('Box', {'item': 'x'}, Box('x')),
                ('Made', {'a': 1, 'given': 7}, Made(1, 7)),
                ('OwnInit', '5', '5'),
            ]
        )
        self.refused(
            [
                ('Line', {'points': [], 'next': {'points': [{'x': 'a'}]}}, 'n.next.points[0].x: must be a whole number, not text'),
                ('Box[int]', {'item': 'x'}, 'n.item: must be a whole number, not text'),
                ('Made', {'a': 1, 'given': 'x'}, 'n.given: must be a whole number, not text'),
                ('Made', {'a': 1, 'counted': 2}, 'n.counted: is no field'),
                ('Made', {'a': -1}, 'n: a is negative'),
            ]
        )

    def test_a_field_that_a_dataclass_inherits_is_read_where_its_class_stands(self) -> None:
        module = types.ModuleType('longshore_test_inherited')
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)
        exec(
            'from __future__ import annotations\nimport dataclasses\nPoint = int\n@dataclasses.dataclass\nclass Base:\n    at: Point\n',
            module.__dict__,
        )
        derived = dataclasses.make_dataclass('Derived', [], bases=(module.Base,))
        derived.__module__ = __name__

        def handler(n: Any) -> Any:
            return n.at

        handler.__annotations__ = {'n': derived}
        self.assertEqual(outcome_of(handler, {'n': {'at': 5}}), ('ok', 5))
        self.assertEqual(outcome_of(handler, {'n': {'at': 'x'}}), ('invalid', 'n.at: must be a whole number, not text'))

    def test_names_of_types_and_types_that_name_themselves_are_followed(self) -> None:
        self.refused(
            [
                ('Second', 'x', 'n: must be a whole number, not text'),
                ('Bound', 'x', 'n: must be a whole number, not text'),
                ('Either', 1.5, 'n: must be a whole number or text, not 1.5'),
                ("List['Point']", [{'x': 'a'}], 'n[0].x: must be a whole number, not text'),
                ('Tree', {'a': {'b': [{'c': 'x'}]}}, 'n.a.b[0].c: must be an object or an array or a whole number, not text'),
                ('Tree', {'a': 'x'}, 'n.a: must be an object or an array or a whole number, not text'),
            ]
        )
        self.taken([('Tree', {'a': [{'b': 1.0}]}, {'a': [{'b': 1}]}), ("List['Unknown']", [1], [1])])

    def test_typed_dictionaries_are_checked_where_annotations_are_texts(self) -> None:
        if sys.version_info < (3, 9):
            return  # it keeps no required keys
        self.taken([('Node', {'value': 1.0, 'children': [{'value': 2, 'children': []}], 'more': 1}, {'value': 1, 'children': [{'value': 2, 'children': []}], 'more': 1})])
        self.refused(
            [
                ('Node', {'value': 1}, 'n.children: is missing'),
                ('Node', {'value': 1, 'children': [{'value': 'x', 'children': []}]}, 'n.children[0].value: must be a whole number, not text'),
            ]
        )
        if sys.version_info >= (3, 11):
            self.taken([('Partly', {'a': 1}, {'a': 1}), ('Wholly', {'a': 1}, {'a': 1})])
            self.refused([('Partly', {'a': 1, 'b': 'x'}, "n.b: must be a date such as 2030-01-31, not 'x'"), ('Wholly', {}, 'n.a: is missing')])

    def test_an_input_that_is_nested_too_deeply_is_refused(self) -> None:
        nested: Any = {'points': []}
        for _ in range(300):
            nested = {'points': [], 'next': nested}
        self.assertEqual(outcome_of(of('Line'), {'n': nested}), ('invalid', 'n: is nested too deeply'))

    def test_an_annotation_that_cannot_be_looked_at_leaves_the_others(self) -> None:
        class Strange(type):
            @property
            def __members__(cls) -> Any:
                raise RuntimeError('not now')

        def handler(a: Any, n: int) -> Any:
            return [a, n]

        handler.__annotations__['a'] = Strange('Odd', (), {})
        self.assertEqual(outcome_of(handler, {'a': 'x', 'n': 1}), ('ok', ['x', 1]))
        self.assertEqual(outcome_of(handler, {'a': 'x', 'n': 'y'}), ('invalid', 'n: must be a whole number, not text'))

    def test_names_in_refusals_are_those_of_the_caller(self) -> None:
        def named(name: str, number: int = 1) -> Any:
            return name

        def three(a, b, c):  # type: ignore[no-untyped-def]
            return a

        for handler, body, said in (
            (named, {'name': 'a', "it's": 1}, "it's: is no input of the handler"),
            (named, {'name': 'a', 'naem': 1}, 'naem: is no input of the handler'),
            (named, {'name': 'a', 'k' * 300: 1}, '%s…: is no input of the handler' % ('k' * 100)),
            (three, {'b': 1}, 'a, c: are missing'),
            (three, {}, 'a, b, c: are missing'),
        ):
            with self.subTest(body=body):
                self.assertEqual(outcome_of(handler, body), ('invalid', said))

    def test_inputs_by_position_leave_their_names_to_others(self) -> None:
        namespace: Dict[str, Any] = {}
        exec('def handler(a: str, /, **more: float):\n    return [a, more]\n', namespace)
        self.assertEqual(outcome_of(namespace['handler'], {'args': ['x'], 'a': 1}), ('ok', ['x', {'a': 1.0}]))
        self.assertEqual(outcome_of(namespace['handler'], {'args': ['x'], 'a': 'y'}), ('invalid', 'a: must be a number, not text'))


if __name__ == '__main__':
    unittest.main()
