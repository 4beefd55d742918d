"""Schemas of inputs and outputs: `@function(inputs=…, outputs=…)`.

    from longshore import function, schema

    class Order(schema.Schema):
        item = schema.String()
        count = schema.Integer()

    @function(inputs=Order)
    def pack(order):
        return {'packed': order.count}

The handler then has one input, an Order. An input without a field, or with a value of another kind, ends the call with
an error before the handler begins. `outputs` checks the result in the same way, and turns files and images
into addresses of `Output` files.
"""

from __future__ import annotations

import base64
import binascii
import io
import tempfile
from typing import IO, TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Type, Union
from urllib import parse, request

__all__ = ['File', 'Image', 'Integer', 'JSON', 'Object', 'Schema', 'SchemaField', 'String', 'ValidationError']

_DOWNLOAD_SECONDS = 60
_MAX_DOWNLOAD_BYTES = 1 << 30
_PIECE_BYTES = 1 << 16


class ValidationError(ValueError):
    """An input or output that does not fit its schema; `field` is the field's name, '' without one."""

    def __init__(self, message: str, field: str = '') -> None:
        super().__init__('%s: %s' % (field, message) if field else message)
        self.message = message
        self.field = field

    def to_dict(self) -> Dict[str, str]:
        told = {'error': 'ValidationError', 'message': self.message}
        return dict(told, field=self.field) if self.field else told


class SchemaField:
    """A field of a schema."""

    def validate(self, value: Any) -> Any:
        """The value that the handler gets. Raises ValidationError."""
        raise NotImplementedError

    def dump(self, value: Any) -> Any:
        """The value as JSON."""
        return value

    def to_dict(self) -> Dict[str, Any]:
        return {'type': type(self).__name__}


class String(SchemaField):
    """Text."""

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: Any = None) -> str: ...

    def validate(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValidationError('must be text, not %s' % type(value).__name__)
        return value


class Integer(SchemaField):
    """A whole number."""

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: Any = None) -> int: ...

    def validate(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValidationError('must be a whole number, not %s' % type(value).__name__)
        return value


class JSON(SchemaField):
    """Any value that JSON has."""

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: Any = None) -> Any: ...

    def validate(self, value: Any) -> Any:
        if value is not None and not isinstance(value, (dict, list, str, int, float)):
            raise ValidationError('must be JSON, not %s' % type(value).__name__)
        return value


class File(SchemaField):
    """A file: the caller sends an http(s) address or base64 text, and the handler gets an open binary file. A file in
    an output becomes the address of an `Output`."""

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: Any = None) -> IO[bytes]: ...

    def validate(self, value: Any) -> Any:
        if hasattr(value, 'read'):
            return value
        return _opened(value)

    def dump(self, value: Any) -> Any:
        from .output import Output

        return Output.from_file(value).save().public_url()


class Image(SchemaField):
    """An image, which the handler gets as an object of Pillow; it needs that library. The caller sends an http(s)
    address or base64 text. An image in an output becomes the address of an `Output`."""

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: Any = None) -> Any: ...

    def __init__(
        self,
        max_size: Optional[Tuple[int, int]] = None,
        min_size: Optional[Tuple[int, int]] = None,
        allowed_formats: Optional[List[str]] = None,
        quality: int = 85,
        preserve_metadata: bool = False,
    ) -> None:
        self.max_size = max_size
        self.min_size = min_size
        self.allowed_formats = [name.upper() for name in allowed_formats or ('PNG', 'JPEG', 'WEBP')]
        self.quality = max(1, min(100, quality))
        self.preserve_metadata = preserve_metadata

    def validate(self, value: Any) -> Any:
        pillow = _pillow()
        if isinstance(value, pillow.Image):
            image = value
        else:
            try:
                image = pillow.open(_opened(value))
            except ValidationError:
                raise
            except Exception as problem:
                raise ValidationError('is not an image that can be read: %s' % problem) from problem
        if image.format and image.format.upper() not in self.allowed_formats:
            raise ValidationError('must be %s, not %s' % (' or '.join(self.allowed_formats), image.format))
        width, height = image.size
        if self.max_size and (width > self.max_size[0] or height > self.max_size[1]):
            raise ValidationError('is %dx%d, larger than %dx%d' % (width, height, *self.max_size))
        if self.min_size and (width < self.min_size[0] or height < self.min_size[1]):
            raise ValidationError('is %dx%d, smaller than %dx%d' % (width, height, *self.min_size))
        return image

    def dump(self, value: Any) -> Any:
        from .output import Output

        if not isinstance(value, _pillow().Image):
            raise ValidationError('must be an image, not %s' % type(value).__name__)
        kind = value.format if value.format in self.allowed_formats else self.allowed_formats[0]
        if kind == 'JPEG' and value.mode not in ('RGB', 'L'):
            value = value.convert('RGB')
        how: Dict[str, Any] = {'quality': self.quality} if kind in ('JPEG', 'WEBP') else {}
        if self.preserve_metadata and value.info.get('exif'):
            how['exif'] = value.info['exif']
        data = io.BytesIO()
        value.save(data, format=kind, **how)
        data.seek(0)
        return Output.from_file(data, name='image.' + kind.lower()).save().public_url()


class Object(SchemaField):
    """A schema within a schema."""

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: Any = None) -> Any: ...

    def __init__(self, schema_cls: Type[Schema]) -> None:
        self.schema_cls = schema_cls

    def validate(self, value: Any) -> Any:
        if isinstance(value, self.schema_cls):
            return value
        if not isinstance(value, Mapping):
            raise ValidationError('must be an object, not %s' % type(value).__name__)
        return self.schema_cls.new(value)

    def dump(self, value: Any) -> Any:
        return value.dump()

    def to_dict(self) -> Dict[str, Any]:
        return {'type': 'Object', 'fields': self.schema_cls.to_dict()}


class Schema:
    """The base of schemas: its fields are attributes of the class."""

    _fields: Dict[str, SchemaField] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, SchemaField)}
        cls._fields = {**cls._fields, **own}

    def __init__(self, **values: Any) -> None:
        for name, value in self.validate(values).items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return '%s(%s)' % (type(self).__name__, ', '.join('%s=%r' % (name, getattr(self, name)) for name in self._fields))

    @classmethod
    def validate(cls, data: Mapping[str, Any]) -> Dict[str, Any]:
        """The checked values; further ones are left out. Raises ValidationError."""
        checked = {}
        for name, field in cls._fields.items():
            if name not in data:
                raise ValidationError('is missing', name)
            try:
                checked[name] = field.validate(data[name])
            except ValidationError as problem:
                inner = '%s.%s' % (name, problem.field) if problem.field else name
                raise ValidationError(problem.message, inner) from None
        return checked

    @classmethod
    def new(cls, data: Mapping[str, Any]) -> 'Schema':
        """Makes one of a mapping."""
        if not isinstance(data, Mapping):
            raise ValidationError('must be an object, not %s' % type(data).__name__)
        return cls(**{str(name): value for name, value in data.items()})

    def dump(self) -> Dict[str, Any]:
        """The values as JSON."""
        return {name: field.dump(getattr(self, name)) for name, field in self._fields.items()}

    @classmethod
    def to_dict(cls) -> Dict[str, Any]:
        """The definition as JSON, as a stub carries it."""
        return {'fields': {name: field.to_dict() for name, field in cls._fields.items()}}

    @classmethod
    def object(cls, fields: Mapping[str, Any]) -> Type['Schema']:
        """Makes a schema of fields by name. A mapping, or a schema, is a schema within it."""
        return type('Schema', (Schema,), {name: _field(value) for name, value in fields.items()})

    @classmethod
    def from_dict(cls, definition: Mapping[str, Any]) -> Type['Schema']:
        """Reads what `to_dict` wrote."""
        fields = definition.get('fields') or {}
        return type('Schema', (Schema,), {name: _read(one) for name, one in fields.items()})


_PLAIN: Dict[str, Type[SchemaField]] = {'string': String, 'integer': Integer, 'file': File, 'image': Image, 'json': JSON}


def _field(value: Any) -> SchemaField:
    if isinstance(value, Mapping):
        return Object(Schema.object(value))
    if isinstance(value, type) and issubclass(value, Schema):
        return Object(value)
    if isinstance(value, type) and issubclass(value, SchemaField):
        return value()
    if not isinstance(value, SchemaField):
        raise ValidationError('%r is no field of a schema' % (value,))
    return value


def _read(definition: Mapping[str, Any]) -> SchemaField:
    name = str(definition.get('type', '')).lower()
    if name == 'object':
        return Object(Schema.from_dict(definition.get('fields') or {}))
    if name not in _PLAIN:
        raise ValidationError('there is no field of type %r' % definition.get('type'))
    return _PLAIN[name]()


def _opened(value: Any) -> Any:
    """An open file of an address or of base64 text. A path is never opened: callers send these values."""
    if isinstance(value, (bytes, bytearray)):
        return io.BytesIO(value)
    if not isinstance(value, str):
        raise ValidationError('must be an address or base64 text, not %s' % type(value).__name__)
    if parse.urlsplit(value[:2048]).scheme in ('http', 'https'):
        return _downloaded(value)
    if value.startswith('data:'):
        value = value.partition(',')[2]
    try:
        return io.BytesIO(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        raise ValidationError('must be an http(s) address or base64 text') from None


def _downloaded(address: str) -> Any:
    file = tempfile.TemporaryFile()
    try:
        with request.urlopen(address, timeout=_DOWNLOAD_SECONDS) as answer:
            while True:
                piece = answer.read(_PIECE_BYTES)
                if not piece:
                    break
                file.write(piece)
                if file.tell() > _MAX_DOWNLOAD_BYTES:
                    raise ValidationError('the address gives more than %d bytes' % _MAX_DOWNLOAD_BYTES)
    except OSError as problem:
        file.close()
        raise ValidationError('cannot be downloaded: %s' % problem) from problem
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def _pillow() -> Any:
    from importlib import import_module

    try:
        return import_module('PIL.Image')
    except ImportError:
        raise ValidationError('images need the library Pillow, which is not installed here') from None


def checked_input(schema: Type[Schema], positional: List[Any], keywords: Mapping[str, Any]) -> Schema:
    """The one input of a handler with a schema. A single object, positional or under a name that is no field, is the
    input itself."""
    if len(positional) == 1 and not keywords:
        given: Any = positional[0]
    else:
        given = dict(zip(schema._fields, positional), **keywords)
    if isinstance(given, Mapping) and len(given) == 1:
        (name,) = given
        if name not in schema._fields and isinstance(given[name], Mapping):
            given = given[name]
    return given if isinstance(given, schema) else schema.new(given)


def checked_output(schema: Type[Schema], value: Union[Schema, Mapping[str, Any], None]) -> Dict[str, Any]:
    """The result of a handler with a schema, as JSON."""
    if isinstance(value, Schema):
        return value.dump()
    return schema.new({} if value is None else value).dump()
