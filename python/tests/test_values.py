"""Values that are not JSON: written by the caller's module and the runner, and read by the other side."""

from __future__ import annotations

import base64
import json
import pickle
import sys
import threading
import unittest
from collections import OrderedDict
from types import ModuleType
from typing import Any, Dict, Tuple
from unittest import mock

from longshore import function
from longshore.client import _inputs
from longshore.results import result_of
from longshore.runner.call import Application, run_sync
from longshore.runner.settings import Settings
from longshore.runner.task import Task
from longshore.values import ValueProblem, decoded, encoded, pickled, unpickled

AS_PICKLED = {'longshore_values': ['pickle']}


class Lines:
    def log(self, *_given: Any) -> None:
        pass


class Ran(Exception):
    pass


class Evil:
    """Code in a pickled value: reading it raises Ran."""

    def __reduce__(self) -> Any:
        return _run, ()


def _run() -> None:
    raise Ran


def call(handler: Any, body: bytes, query: Any = None, kind: str = 'function/deployment') -> Tuple[str, Any]:
    task = Task('task-1', 'token', query, 0)
    task.body = body
    task.sink = Lines()
    outcome, answer = run_sync(Application(handler, Settings({'STUB_TYPE': kind})), task, lambda _task, _item: None)
    return outcome, json.loads(answer)


def result(value: Any, kind: str = 'function/deployment') -> Any:
    return result_of({'status': 'COMPLETE', 'result': value, 'stub': {'type': kind}}, 't')


class Values(unittest.TestCase):
    def test_json_stays_json_and_all_else_is_pickled_and_comes_back(self) -> None:
        for value in (None, True, 5, 1.5, 'ä', [1, [2]], {'a': {'b': None}}):
            encoding, text = encoded(value)
            self.assertEqual((encoding, decoded(encoding, text)), ('json', value))
        # The text is sent as UTF-8, which has no half of a surrogate pair.
        for value in ('\ud800', {'\udfff': ['ä\ud83d']}):
            encoding, text = encoded(value)
            self.assertEqual((encoding, decoded(encoding, text.encode('utf-8').decode('utf-8'))), ('json', value))
        odd: Tuple[Any, ...] = (b'x', {1, 2}, (1, 2), {1: 'a'}, float('inf'), OrderedDict(a=1), [(1,)], complex(1, 2))
        for value in odd:
            encoding, text = encoded(value)
            back = decoded(encoding, text)
            self.assertEqual((encoding, type(back), back), ('pickle', type(value), value))

    def test_a_value_that_cannot_be_written_or_read_says_so(self) -> None:
        with self.assertRaisesRegex(ValueProblem, 'cannot be sent'):
            pickled(threading.Lock())
        for text in ('no base64!', base64.b64encode(b'nonsense').decode()):
            with self.assertRaisesRegex(ValueProblem, 'cannot be read'):
                unpickled(text)
        missing = base64.b64encode(b'cnowhere_to_be_found\nthing\n.').decode()
        with self.assertRaisesRegex(ValueProblem, 'needs the library nowhere_to_be_found'):
            unpickled(missing)


class Calls(unittest.TestCase):
    def test_a_function_has_inputs_and_results_that_are_not_json(self) -> None:
        def swap(*given: Any, **named: Any) -> Any:
            return {'given': given, 'named': named, 'bytes': b'x'}

        body = _inputs('call', [{1}, 2], {'a': b'z'}, True)
        outcome, answer = call(swap, body, AS_PICKLED)
        self.assertEqual((outcome, answer['encoding']), ('ok', 'cloudpickle'))
        self.assertEqual(result(answer), {'given': ({1}, 2), 'named': {'a': b'z'}, 'bytes': b'x'})

    def test_who_asks_for_the_very_value_gets_it_where_json_would_change_it(self) -> None:
        body = _inputs('call', [{1}], {}, True)
        exact = {**AS_PICKLED, 'longshore_results': ['exact']}
        for value in ((1, 2), [1, (2,)], {1: 'a'}, {'a': {2: 3}}):
            with self.subTest(value=value):
                outcome, answer = call(lambda _given, value=value: value, body, exact)
                self.assertEqual((outcome, result(answer)), ('ok', value))
        self.assertEqual(call(lambda _given: [1, {'a': None}], body, exact), ('ok', [1, {'a': None}]))
        self.assertEqual(call(lambda _given: (1, 2), body, AS_PICKLED), ('ok', [1, 2]))

    def test_json_is_sent_as_before(self) -> None:
        self.assertEqual(json.loads(_inputs('call', [1], {'b': 2}, True)), {'args': [1], 'kwargs': {'b': 2}})
        self.assertEqual(call(lambda: [1, (2,)], b''), ('ok', [1, [2]]))

    def test_a_body_alone_is_never_unpickled(self) -> None:
        seen: Dict[str, Any] = {}
        body = json.dumps({'pickle': base64.b64encode(pickle.dumps(Evil())).decode()}).encode()
        cases: Any = (
            ('function', None),
            ('function', {'longshore_values': ['json']}),
            ('endpoint', AS_PICKLED),
            ('taskqueue', AS_PICKLED),
        )
        for kind, query in cases:
            outcome, _ = call(lambda **given: seen.update(given), body, query, kind)
            self.assertEqual(outcome, 'ok')
        self.assertEqual(sorted(seen), ['longshore_values', 'pickle'])

    def test_a_broken_pickle_is_an_error_of_the_input(self) -> None:
        for body in (b'{"pickle": "AAAA"}', b'{}', b'[1]', json.dumps({'pickle': pickled([1])}).encode()):
            outcome, answer = call(lambda: None, body, AS_PICKLED)
            self.assertEqual(outcome, 'invalid', body)
            self.assertRegex(answer['error'], '^the (pickled )?input ')

    def test_a_value_that_needs_cloudpickle_says_how_to_have_it(self) -> None:
        # A reference to `cloudpickle.cloudpickle._make_function`, as in every pickled function.
        function = base64.b64encode(b'\x80\x04\x8c\x17cloudpickle.cloudpickle\x8c\x0e_make_function\x93.').decode()
        absent: Any = {'cloudpickle': None, 'cloudpickle.cloudpickle': None}
        older = {name: ModuleType(name) for name in absent}
        for modules, text in ((absent, r'add_python_packages\(\["cloudpickle"\]\)'), (older, 'cloudpickle here is older')):
            with mock.patch.dict(sys.modules, modules), self.assertRaisesRegex(ValueProblem, text):
                unpickled(function)

    def test_only_a_result_that_the_runner_pickled_is_unpickled(self) -> None:
        evil = {'base64': base64.b64encode(pickle.dumps(Evil())).decode(), 'encoding': 'cloudpickle'}
        for value in (evil, OrderedDict(evil), dict(reversed(list(evil.items())))):
            outcome, answer = call(lambda value=value: value, b'')
            # The object was pickled whole, so reading it gives the object, and not what is in it.
            self.assertEqual((outcome, result(answer)), ('ok', evil))
        self.assertEqual(call(lambda: [evil], b''), ('ok', [evil]))
        self.assertEqual(call(lambda: evil, b'', None, 'taskqueue'), ('ok', evil))
        self.assertEqual(result(evil, 'taskqueue/deployment'), evil)
        self.assertEqual(result(dict(evil, more=1)), dict(evil, more=1))

    def test_other_kinds_return_json_alone(self) -> None:
        outcome, answer = call(lambda: {1}, b'', None, 'endpoint/deployment')
        self.assertEqual((outcome, answer['error'].partition(':')[0]), ('error', 'TypeError'))

    def test_a_result_that_cannot_be_pickled_says_so(self) -> None:
        outcome, answer = call(threading.Lock, b'')
        self.assertEqual(outcome, 'error')
        self.assertRegex(answer['error'], 'is not JSON.*cannot be sent')

    def test_the_address_says_that_inputs_are_pickled(self) -> None:
        asked: Dict[str, Any] = {}

        def answer(path: str, what: str, body: bytes, unknown: str, **given: Any) -> bytes:
            asked.update(path=path, body=body)
            return b'{"task_id": "t"}'

        handler = function(name='f')(lambda: None)
        with mock.patch('longshore.client._asked', answer):
            handler.put({1})
            self.assertEqual(asked['path'], '/function/f?longshore_values=pickle')
            handler.put([1])
            self.assertEqual(asked['path'], '/function/f')


if __name__ == '__main__':
    unittest.main()
