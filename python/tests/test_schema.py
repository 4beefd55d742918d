"""Schemas of inputs and outputs, and how the runner uses them."""

from __future__ import annotations

import base64
import json
import os
import unittest
from typing import Any, Tuple
from unittest import mock

from longshore import endpoint, schema, task_queue
from longshore.checks import DefinitionError
from longshore.runner.call import Application, run_sync
from longshore.runner.settings import Settings
from longshore.runner.task import Task


class Lines:
    def log(self, *_given: Any) -> None:
        pass


class Order(schema.Schema):
    item = schema.String()
    count = schema.Integer()


class Packed(schema.Schema):
    packed = schema.Integer()


class Deep(schema.Schema):
    order = schema.Object(Order)
    data = schema.JSON()


def call(handler: Any, body: Any, **environ: str) -> Tuple[str, Any]:
    task = Task('task-1', 'token', None, 0)
    task.body = json.dumps(body).encode()
    task.sink = Lines()
    outcome, answer = run_sync(Application(handler, Settings(environ)), task, lambda _task, _item: None)
    return outcome, json.loads(answer)


class Schemas(unittest.TestCase):
    def test_values_are_checked_and_further_ones_left_out(self) -> None:
        order = Order.new({'item': 'a', 'count': 2, 'more': 1})
        self.assertEqual((order.item, order.count, order.dump()), ('a', 2, {'item': 'a', 'count': 2}))

    def test_a_wrong_value_names_its_field(self) -> None:
        for given, text in (
            ({'item': 'a'}, 'count: is missing'),
            ({'item': 1, 'count': 2}, 'item: must be text, not int'),
            ({'item': 'a', 'count': True}, 'count: must be a whole number, not bool'),
        ):
            with self.assertRaisesRegex(schema.ValidationError, '^%s$' % text):
                Order.new(given)
        with self.assertRaisesRegex(schema.ValidationError, '^order.count: is missing$'):
            Deep.new({'order': {'item': 'a'}, 'data': None})
        with self.assertRaisesRegex(schema.ValidationError, '^data: must be JSON, not set$'):
            Deep.new({'order': {'item': 'a', 'count': 1}, 'data': {1}})

    def test_a_definition_goes_as_json_and_comes_back(self) -> None:
        told = Deep.to_dict()
        self.assertEqual(told['fields']['order']['fields'], {'fields': {'item': {'type': 'String'}, 'count': {'type': 'Integer'}}})
        again = schema.Schema.from_dict(json.loads(json.dumps(told)))
        self.assertEqual(again.to_dict(), told)
        made = schema.Schema.object({'order': {'item': schema.String()}, 'data': schema.JSON})
        self.assertEqual(made.new({'order': {'item': 'a'}, 'data': [1]}).dump(), {'order': {'item': 'a'}, 'data': [1]})
        with self.assertRaises(schema.ValidationError):
            schema.Schema.from_dict({'fields': {'a': {'type': 'Nonsense'}}})

    def test_a_file_is_base64_text_or_an_address_and_never_a_path(self) -> None:
        field = schema.File()
        self.assertEqual(field.validate(base64.b64encode(b'abc').decode()).read(), b'abc')
        self.assertEqual(field.validate('data:text/plain;base64,YWJj').read(), b'abc')
        for bad in ('/etc/passwd', 'file:///etc/passwd', 'not base64!', 5):
            with self.assertRaises(schema.ValidationError):
                field.validate(bad)

    def test_a_schema_inherits_fields(self) -> None:
        class More(Order):
            extra = schema.String()

        self.assertEqual(list(More._fields), ['item', 'count', 'extra'])
        self.assertEqual(list(Order._fields), ['item', 'count'])


class InTheRunner(unittest.TestCase):
    def test_the_handler_has_the_one_input_and_the_context(self) -> None:
        @endpoint(inputs=Order, outputs=Packed)
        def pack(order: Any, context: Any) -> Any:
            return {'packed': order.count, 'id': context.task_id}

        for body in (
            {'item': 'a', 'count': 3},
            {'order': {'item': 'a', 'count': 3}},
            {'args': [{'item': 'a', 'count': 3}]},
            {'args': ['a', 3]},
        ):
            self.assertEqual(call(pack, body), ('ok', {'packed': 3}))

    def test_in_a_container_a_mapping_is_a_schema_as_well(self) -> None:
        with mock.patch.dict(os.environ, {'CONTAINER_ID': 'c'}):
            handler = endpoint(inputs={'n': schema.Integer()})(lambda given: given.n + 1)
        self.assertEqual(call(handler, {'n': 1}), ('ok', 2))

    def test_a_wrong_input_is_no_reason_for_another_try(self) -> None:
        @task_queue(inputs=Order, retries=3)
        def pack(order: Any) -> Any:
            raise AssertionError

        outcome, answer = call(pack, {'item': 'a'}, STUB_TYPE='taskqueue/deployment')
        self.assertEqual((outcome, answer), ('invalid', {'error': 'count: is missing', 'detail': 'the handler takes item, count'}))

    def test_a_wrong_output_is_an_error_of_the_handler(self) -> None:
        @endpoint(outputs=Packed)
        def pack() -> Any:
            return {'packed': 'many'}

        outcome, answer = call(pack, {})
        self.assertEqual((outcome, answer), ('error', {'error': 'ValidationError: packed: must be a whole number, not str'}))

    def test_a_definition_carries_the_schemas(self) -> None:
        handler = endpoint(inputs=Order, outputs={'packed': schema.Integer()})(lambda order: {})
        described = handler.described('app:pack', '')
        self.assertEqual((described['inputs'], described['outputs']), (Order.to_dict(), Packed.to_dict()))
        self.assertNotIn('schemas', described)
        for bad in (5, Order(item='a', count=1), {'a': 5}):
            with self.assertRaisesRegex(DefinitionError, '^inputs: '):
                endpoint(inputs=bad)  # type: ignore[arg-type]


if __name__ == '__main__':
    unittest.main()
