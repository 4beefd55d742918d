"""Prints the fields of the installed client's messages, and the paths of its calls, as JSON."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import typing

import beta9.clients as clients


def name_of(cls: type) -> str:
    """`time`, or the message with its package."""
    return "time" if cls.__name__ == "datetime" else f"{cls.__module__.rsplit('.', 1)[-1]}.{cls.__name__}"


def type_of(hint: object, meta: object) -> str:
    """A field's type, as our table writes it."""
    if meta.proto_type == "map":
        keys, values = meta.map_types
        return f"map<{keys},{name_of(typing.get_args(hint)[1]) if values == 'message' else values}>"
    is_list = typing.get_origin(hint) is list
    inner = typing.get_args(hint)[0] if is_list else hint
    if typing.get_origin(inner) is typing.Union:
        inner = next(one for one in typing.get_args(inner) if one is not type(None))
    kind = name_of(inner) if meta.proto_type == "message" else meta.proto_type
    return kind + ("[]" if is_list else "") + ("?" if meta.optional else "")


#: Names of the field in which an answer has the text of a refusal.
TEXTS = ("err_msg", "error_msg", "message", "error")

messages, calls, texts = {}, [], {}
for info in pkgutil.iter_modules(clients.__path__):
    module = importlib.import_module(f"beta9.clients.{info.name}")
    for cls in list(vars(module).values()):
        if not inspect.isclass(cls) or cls.__module__ != module.__name__:
            continue
        if dataclasses.is_dataclass(cls):
            hints = typing.get_type_hints(cls)
            messages[f"{info.name}.{cls.__name__}"] = {
                field.name: f"{field.metadata['betterproto'].number} "
                + type_of(hints[field.name], field.metadata["betterproto"])
                for field in dataclasses.fields(cls)
            }
        elif cls.__name__.endswith("Stub"):
            for path, answer in re.findall(r'"(/\w+\.\w+/\w+)",\s*\w+,\s*(\w+)', inspect.getsource(cls)):
                calls.append(path)
                fields = dataclasses.fields(getattr(module, answer))
                texts.update({path: one.metadata["betterproto"].number for one in fields if one.name in TEXTS})
print(json.dumps({"messages": messages, "calls": calls, "texts": texts}))
