"""
Checks of types that hold others: unions, arrays, objects, dataclasses, models. Annotations may be texts, and types may name
themselves, so each type is made once, and one that is not finished is asked later.
"""

from __future__ import annotations

import collections
import sys
import types
import typing

from .inputs import InputError
from .value_checks import PLAIN, Refusal, converted, enumeration, inside, literal, of_key, refusal, scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

    from .value_checks import Check

#: Bound on types within types.
_MOST_DEPTH = 16
_UNION = (typing.Union, getattr(types, 'UnionType', typing.Union))
#: Marks around a type that say nothing about its values.
_QUALIFIERS = ('Required', 'NotRequired', 'ReadOnly', 'Final')
#: The words of pydantic for a value that is no object.
_NO_OBJECT = ('model_type', 'dataclass_type')
#: What an array becomes, by the name of the class. JSON has no sets and no tuples.
_ARRAYS: Dict[str, Any] = {
    'list': list, 'Sequence': list, 'MutableSequence': list, 'Iterable': list, 'Collection': list, 'Container': list, 'Reversible': list,
    'tuple': tuple,
    'set': set, 'Set': set, 'MutableSet': set, 'frozenset': frozenset,
    'deque': collections.deque,
}  # fmt: skip
_OBJECTS: Dict[str, Any] = {
    'dict': dict, 'Mapping': dict, 'MutableMapping': dict,
    'defaultdict': collections.defaultdict, 'OrderedDict': collections.OrderedDict, 'Counter': collections.Counter,
}  # fmt: skip


class ANYTHING:
    """Nothing is said about the type."""


class Scope:
    """Where the text of an annotation is read. variables: types of a generic class's variables."""

    def __init__(self, names: Dict[str, Any], variables: Optional[Dict[Any, Any]] = None) -> None:
        self._names = names
        self._variables = variables or {}

    def read(self, text: str, module: Any = None) -> Any:
        """As the module itself would; ANYTHING: it cannot be read."""
        found = sys.modules.get(module) if isinstance(module, str) else module
        try:
            return eval(text, dict(self._names if found is None else vars(found)))
        except Exception:
            return ANYTHING

    def resolved(self, kind: Any) -> Any:
        """The type without texts, names and marks around it."""
        for _ in range(_MOST_DEPTH):
            if isinstance(kind, str):
                kind = self.read(kind)
            elif isinstance(kind, typing.ForwardRef):
                kind = self.read(kind.__forward_arg__, getattr(kind, '__forward_module__', None))
            elif isinstance(kind, typing.TypeVar):
                kind = self._variables.get(kind) or kind.__bound__ or (typing.Union[kind.__constraints__] if kind.__constraints__ else ANYTHING)
            elif hasattr(kind, '__supertype__'):  # NewType
                kind = kind.__supertype__
            elif hasattr(kind, '__metadata__') or _qualifier(kind):  # Annotated
                kind = kind.__origin__ if hasattr(kind, '__metadata__') else kind.__args__[0]
            elif type(kind).__name__ == 'TypeAliasType':
                kind = kind.__value__
            elif type(kind).__name__ == 'InitVar':
                kind = kind.type
            else:
                return kind
        return ANYTHING

    def qualifier(self, kind: Any) -> str:
        """`Required` or `NotRequired` of a field, which a text hides from its TypedDict."""
        if isinstance(kind, str):
            kind = self.read(kind)
        elif isinstance(kind, typing.ForwardRef):
            kind = self.read(kind.__forward_arg__, getattr(kind, '__forward_module__', None))
        for _ in range(_MOST_DEPTH):
            name = _qualifier(kind)
            if name in ('Required', 'NotRequired'):
                return name
            if not name and not hasattr(kind, '__metadata__'):
                return ''
            kind = kind.__args__[0] if name else kind.__origin__
        return ''


def _qualifier(kind: Any) -> str:
    name = getattr(getattr(kind, '__origin__', None), '_name', '')
    return name if name in _QUALIFIERS else ''


def annotations_of(annotated: Any) -> Dict[str, Any]:
    """The annotations of a function or of a class."""
    try:
        return dict(getattr(annotated, '__annotations__', {}))
    except Exception:
        # Python 3.14 and newer evaluate them here. One that cannot be evaluated stays a reference.
        import annotationlib  # type: ignore[import-not-found, unused-ignore]

        return dict(annotationlib.get_annotations(annotated, format=annotationlib.Format.FORWARDREF))


def or_null(check: Check) -> Check:
    return lambda place, value: value if value is None else check(place, value)


class Types:
    """Makes the checks of the types of one handler."""

    def __init__(self) -> None:
        #: A list is empty while its check is being made.
        self._made: Dict[Any, List[Optional[Check]]] = {}
        self._scopes: Dict[Any, Scope] = {}
        #: Ids are keys above, so nothing of them may go.
        self._kept: List[Any] = []

    def check(self, kind: Any, scope: Scope, depth: int = 0) -> Optional[Check]:
        """The check of a type; None: any value passes."""
        if depth > _MOST_DEPTH:
            return None
        key = (kind if isinstance(kind, str) else id(kind), id(scope))
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = []
            self._kept.append((kind, scope))
            try:
                made.append(self._check(scope.resolved(kind), scope, depth))
            except Exception:
                made.append(None)  # an annotation of an unknown kind is no reason for a handler not to start
        if made:
            return made[0]
        return lambda place, value: _passed(made[0] if made else None, place, value)

    def _check(self, kind: Any, scope: Scope, depth: int) -> Optional[Check]:
        origin = getattr(kind, '__origin__', None)
        if origin in _UNION or isinstance(kind, _UNION[1:] if isinstance(_UNION[1], type) else ()):
            return _union([self.check(one, scope, depth + 1) for one in kind.__args__])
        if origin is getattr(typing, 'Literal', ANYTHING):
            return literal(_flat(kind.__args__))
        if kind is None:
            return PLAIN[type(None)]
        base = origin if isinstance(origin, type) else kind
        if not isinstance(base, type):
            return None
        if base in PLAIN:
            return PLAIN[base]
        arguments = [scope.resolved(one) if isinstance(one, typing.TypeVar) else one for one in getattr(kind, '__args__', ())]
        if base.__module__ in ('builtins', 'typing', 'collections', 'collections.abc'):
            if base.__name__ in _ARRAYS:
                return self._array(_ARRAYS[base.__name__], kind, arguments, scope, depth)
            if base.__name__ in _OBJECTS:
                return self._object(_OBJECTS[base.__name__], arguments, scope, depth)
        return self._class(base, self._scope_of(base, arguments), depth)

    def _scope_of(self, base: Any, arguments: List[Any]) -> Scope:
        """Where the annotations of a class are read. It need not be a name of its module."""
        key = (id(base), tuple(map(id, arguments)))
        if key not in self._scopes:
            self._kept.append((base, arguments))
            variables = dict(zip(getattr(base, '__parameters__', ()), arguments))
            self._scopes[key] = Scope(dict(vars(sys.modules.get(base.__module__) or types), **{base.__name__: base}), variables)
        return self._scopes[key]

    def _class(self, base: Any, scope: Scope, depth: int) -> Optional[Check]:
        if hasattr(base, '__required_keys__') and hasattr(base, '__total__'):
            return self._typed_dict(base, scope, depth)
        if issubclass(base, tuple) and hasattr(base, '_fields'):
            return self._named_tuple(base, scope, depth)
        if hasattr(base, '__pydantic_validator__'):
            # Dataclasses of pydantic, too.
            return _model(base, getattr(base, 'model_validate', None) or base.__pydantic_validator__.validate_python)
        if any(one.__module__.partition('.')[0] == 'pydantic' and one.__name__ == 'BaseModel' for one in base.__mro__):
            return _model(base, getattr(base, 'model_validate', None) or base.parse_obj)
        if hasattr(base, '__dataclass_fields__'):
            return self._dataclass(base, scope, depth)
        if hasattr(base, '__members__'):
            return enumeration(base)
        return converted(base)

    def _array(self, base: Any, kind: Any, arguments: List[Any], scope: Scope, depth: int) -> Check:
        if base is tuple and arguments == [()]:  # Tuple[()] before Python 3.11
            arguments = []
        if base is tuple and hasattr(kind, '__args__') and not _is_bare(kind) and arguments[-1:] != [Ellipsis]:
            each: Optional[List[Optional[Check]]] = [self.check(one, scope, depth + 1) for one in arguments]
        else:
            each = None
        item = self.check(arguments[0], scope, depth + 1) if arguments and each is None else None

        def check(place: str, value: Any) -> Any:
            if not isinstance(value, (list, tuple)):
                raise refusal(place, 'an array', value)
            if each is not None and len(value) != len(each):
                raise InputError('%s: must be an array of %d, not of %d' % (place, len(each), len(value)))
            items: Any = value
            if item is not None or each:
                items = [_passed(one, inside(place, at), given) for at, (given, one) in enumerate(zip(value, each or [item] * len(value)))]
            if isinstance(items, base):
                return items
            try:
                return base(items)
            except TypeError:
                raise InputError('%s: has an item that cannot be in a set' % place) from None

        return check

    def _object(self, base: Any, arguments: List[Any], scope: Scope, depth: int) -> Check:
        key_check = self.check(arguments[0], scope, depth + 1) if arguments else None
        # Keys of JSON are texts, and no text stands for an array.
        key = of_key(key_check) if key_check is not PLAIN[str] and getattr(key_check, 'is_scalar', False) else None  # type: ignore[arg-type]
        if base is collections.Counter:
            item: Optional[Check] = PLAIN[int]
        else:
            item = self.check(arguments[1], scope, depth + 1) if len(arguments) == 2 else None
        make = base
        if base is collections.defaultdict:
            factory = scope.resolved(arguments[1]) if len(arguments) == 2 else None
            factory = getattr(factory, '__origin__', None) or factory
            make = lambda given: collections.defaultdict(factory if factory in (int, float, str, bool, list, dict, set) else None, given)

        def check(place: str, value: Any) -> Any:
            if not isinstance(value, dict):
                raise refusal(place, 'an object', value)
            if item is not None or key is not None:
                made: Dict[Any, Any] = {}
                for name, one in value.items():
                    made_name = name if key is None else key(place, name)
                    if made_name in made:
                        raise InputError('%s: has two keys that mean %r' % (place, made_name))
                    made[made_name] = _passed(item, inside(place, name), one)
                value = made
            return value if base is dict else make(value)

        return check

    def _typed_dict(self, base: Any, scope: Scope, depth: int) -> Check:
        kinds = annotations_of(base)
        fields = {name: self.check(one, scope, depth + 1) for name, one in kinds.items()}
        said = {name: scope.qualifier(one) for name, one in kinds.items()}
        required = [name for name in fields if said[name] == 'Required' or (name in base.__required_keys__ and said[name] != 'NotRequired')]

        def check(place: str, value: Any) -> Any:
            if not isinstance(value, dict):
                raise refusal(place, 'an object', value)
            _all_there(place, required, value)
            return {name: _passed(fields.get(name), inside(place, name), one) for name, one in value.items()}

        return check

    def _named_tuple(self, base: Any, scope: Scope, depth: int) -> Check:
        names = base._fields
        defaults = getattr(base, '_field_defaults', {})
        kinds = annotations_of(base)
        fields = {name: self.check(kinds.get(name, ANYTHING), scope, depth + 1) for name in names}
        required = [name for name in names if name not in defaults]

        def check(place: str, value: Any) -> Any:
            if isinstance(value, base):
                return value
            if isinstance(value, list):
                if not len(required) <= len(value) <= len(names):
                    raise InputError('%s: must be an array of %d, not of %d' % (place, len(names), len(value)))
                return base(*(_passed(fields[name], inside(place, at), one) for at, (name, one) in enumerate(zip(names, value))))
            if not isinstance(value, dict):
                raise refusal(place, 'an array or an object', value)
            _all_there(place, required, value)
            return base(**_fields(place, fields, value))

        return check

    def _dataclass(self, base: Any, scope: Scope, depth: int) -> Optional[Check]:
        import dataclasses

        if not base.__dataclass_params__.init:
            return None  # what its own `__init__` takes is not known
        own: Dict[str, Any] = {
            name: one
            for name, one in base.__dataclass_fields__.items()
            if one.init and one._field_type.name in ('_FIELD', '_FIELD_INITVAR')
        }
        required = [name for name, one in own.items() if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING]
        fields: Dict[str, Optional[Check]] = {}
        for name, one in own.items():
            # The text of an inherited field is read where its class stands.
            owner = [of for of in base.__mro__ if vars(of).get('__dataclass_fields__', {}).get(name) is one][-1:] or [base]
            check_field = self.check(one.type, scope if owner[0] is base else self._scope_of(owner[0], []), depth + 1)
            fields[name] = or_null(check_field) if one.default is None and check_field is not None else check_field

        def check(place: str, value: Any) -> Any:
            if isinstance(value, base):
                return value
            if not isinstance(value, dict):
                raise refusal(place, 'an object', value)
            _all_there(place, required, value)
            given = _fields(place, fields, value)
            try:
                return base(**given)
            except (TypeError, ValueError, AssertionError) as problem:
                raise InputError('%s: %s' % (place, str(problem) or 'is refused by its class')) from problem

        return check


def _passed(check: Optional[Check], place: str, value: Any) -> Any:
    return value if check is None else check(place, value)


def _all_there(place: str, required: List[str], value: Dict[str, Any]) -> None:
    for name in required:
        if name not in value:
            raise InputError('%s: is missing' % inside(place, name))


def _fields(place: str, fields: Mapping[str, Optional[Check]], value: Dict[str, Any]) -> Dict[str, Any]:
    for name in value:
        if name not in fields:
            raise InputError('%s: is no field' % inside(place, name))
    return {name: _passed(fields[name], inside(place, name), one) for name, one in value.items()}


def _is_bare(kind: Any) -> bool:
    """Whether it is `Tuple` itself, which has no arguments."""
    return kind is tuple or kind is typing.Tuple


def _flat(values: Tuple[Any, ...]) -> List[Any]:
    """The values of a `Literal` in which others stand, as Python before 3.9.1 keeps them."""
    flat: List[Any] = []
    for one in values:
        flat += _flat(one.__args__) if getattr(one, '__origin__', None) is getattr(typing, 'Literal', ANYTHING) else [one]
    return flat


def _union(checks: List[Optional[Check]]) -> Optional[Check]:
    known = [one for one in checks if one is not None]
    if len(known) < len(checks):
        return None

    def check(place: str, value: Any) -> Any:
        refusals: List[InputError] = []
        taken: List[Any] = []
        for one in known:
            try:
                made = one(place, value)
            except InputError as refused:
                refusals.append(refused)
            else:
                if _is_same(value, made):
                    return made
                taken.append(made)
        if taken:
            return taken[0]
        here = [one for one in refusals if isinstance(one, Refusal) and one.place == place]
        if len(here) < len(refusals):
            raise next(one for one in refusals if one not in here)  # the value has the form of this type
        wanted = list(dict.fromkeys(one.wanted for one in here))
        # A type that takes such values, and not this one, shows the value.
        came = next((one.came for one in here if one.came != refusal(place, '', value).came), here[0].came)
        raise Refusal(place, ' or '.join(wanted), came)

    return scalar(check) if any(getattr(one, 'is_scalar', False) for one in known) else check


def _is_same(given: Any, made: Any) -> bool:
    """Whether a check changed nothing, the kind of a number neither."""
    if given is made:
        return True
    if type(given) is not type(made) or not isinstance(given, (list, dict)) or len(given) != len(made):
        return False
    if isinstance(given, list):
        return all(map(_is_same, given, made))
    return all(key in made and _is_same(one, made[key]) for key, one in given.items())


def _model(base: Any, read: Callable[[Any], Any]) -> Check:
    def check(place: str, value: Any) -> Any:
        if isinstance(value, base):
            return value
        try:
            return read(value)
        except ValueError as problem:
            errors = getattr(problem, 'errors', list)()
            if not errors:
                raise InputError('%s: %s' % (place, problem)) from problem
            if errors[0].get('type') in _NO_OBJECT and not isinstance(value, dict) and len(errors[0]['loc']) == errors[0]['loc'].count('__root__'):
                raise refusal(place, 'an object', value) from problem
            where = place
            for one in errors[0]['loc']:
                where = where if one == '__root__' else inside(where, one)
            raise InputError('%s: %s' % (where, errors[0]['msg'])) from problem

    return check
