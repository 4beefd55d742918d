"""Requests that are repeated under one id: starts, and readings of new output."""

from __future__ import annotations

import os
import unittest
from typing import Any, Dict

from longshore.runner import protocol
from longshore.supervisor.requests import whole_characters

from .supervised import Supervised, eventually

NEW: Dict[str, Any] = {'from': -1, 'text': True}


class Starts(Supervised):
    def log(self) -> str:
        with open(os.path.join(self.work, 'log')) as file:
            return file.read()

    def test_a_start_that_is_repeated_names_the_first_program(self) -> None:
        self.begin()
        start: Dict[str, Any] = {'type': 'start', 'command': ['sh', '-c', 'echo ran >> log']}
        peers = [self.open(id='a', **start) for _ in range(8)]
        pids = {peer.response()['pid'] for peer in peers}
        self.wait_end(pids.copy().pop())
        pids.add(self.ask_ok(id='a', **start)['pid'])
        self.assertEqual(len(pids), 1)
        other = self.ask_ok(id='b', **start)['pid']
        self.wait_end(other)
        self.assertNotIn(other, pids)
        self.assertEqual(self.log(), 'ran\nran\n')

    def test_the_program_of_an_id_may_be_forgotten(self) -> None:
        self.begin(before='import longshore.supervisor.programs as p; p.MOST_ENDED = 1')
        first = self.start('true', id='a')
        self.wait_end(first)
        for _ in range(3):
            self.wait_end(self.start('true'))
        self.refused('not_found', 'forgotten', type='wait', pid=first)
        self.assertEqual(self.start('true', id='a'), first)

    def test_a_start_that_failed_is_tried_again(self) -> None:
        self.begin()
        path = os.path.join(self.work, 'late')
        self.refused('not_found', 'late', type='start', command=['./late'], id='a')
        with open(path, 'w') as file:
            file.write('#!/bin/sh\n')
        os.chmod(path, 0o755)
        self.start('./late', id='a')

    def test_what_cannot_be_repeated_is_refused(self) -> None:
        self.begin()
        start: Dict[str, Any] = {'type': 'start', 'command': ['true']}
        self.refused('bad_request', 'id', id='a', attach=True, **start)
        self.refused('bad_request', 'id', id='a', terminal={}, **start)
        for wrong in (5, 'x' * 301):
            self.refused('bad_request', 'id', id=wrong, **start)

    def test_ids_are_bounded(self) -> None:
        self.begin(before='import longshore.supervisor.starts as s; s.MOST_STARTS = 3')
        first = self.start('true', id='a')
        for name in 'bcd':
            self.start('true', id=name)
        again = self.start('true', id='a')
        self.assertNotEqual(again, first)
        self.assertEqual(self.start('true', id='d'), self.start('true', id='d'))

    def test_ids_grow_old(self) -> None:
        self.begin(before='import longshore.supervisor.starts as s; s.KEPT_SECONDS = 0')
        first = self.start('true', id='a')
        self.start('true', id='b')
        self.assertNotEqual(self.start('true', id='a'), first)


class Output(Supervised):
    def test_a_reading_that_is_repeated_gives_the_same_bytes(self) -> None:
        self.begin()
        os.mkfifo(os.path.join(self.work, 'gate'))
        pid = self.start('sh', '-c', 'echo one; read x < gate; echo two')
        eventually(lambda: self.output(pid)[1] == b'one\n')
        self.assertEqual(self.output(pid, id='a', **NEW)[1], b'one\n')
        with open(os.path.join(self.work, 'gate'), 'w') as gate:
            gate.write('go\n')
        self.wait_end(pid)
        self.assertEqual(self.output(pid, id='a', **NEW)[1], b'one\n')
        self.assertEqual(self.output(pid, id='b', **NEW)[1], b'two\n')
        self.assertEqual(self.output(pid, id='b', **NEW)[1], b'two\n')
        self.assertEqual(self.output(pid, id='c', **NEW)[1], b'')
        # Without an id nothing is repeated, and readings of everything change nothing.
        self.assertEqual(self.output(pid)[1], b'one\ntwo\n')
        self.assertEqual(self.output(pid, **NEW)[1], b'')

    def test_text_ends_with_a_whole_character(self) -> None:
        self.begin()
        os.mkfifo(os.path.join(self.work, 'gate'))
        pid = self.start('sh', '-c', r"printf 'a\303'; read x < gate; printf '\244\303'")
        eventually(lambda: self.output(pid)[1] == b'a\xc3')
        self.assertEqual(self.output(pid, **NEW)[1], b'a')
        self.assertEqual(self.output(pid, **NEW)[1], b'')
        with open(os.path.join(self.work, 'gate'), 'w') as gate:
            gate.write('go\n')
        self.wait_end(pid)
        self.assertEqual(self.output(pid, mostBytes=1, **NEW)[1], b'')
        self.assertEqual(self.output(pid, **NEW)[1], b'\xc3\xa4\xc3')

    def test_the_end_of_whole_characters(self) -> None:
        for text in ('', 'a', 'ä', '漢', '😀'):
            data = ('x' + text).encode()
            self.assertEqual(whole_characters(data), data)
            for cut in range(1, len(text.encode())):
                self.assertEqual(whole_characters(data[:-cut]), b'x')
        self.assertEqual(whole_characters(b'\x80\x80\x80\x80'), b'\x80\x80\x80\x80')


class Pieces(Supervised):
    def piece(self, data: bytes, **more: Any) -> Dict[str, Any]:
        peer = self.open(type='write', path='file', append=True, **more)
        peer.send(protocol.DATA, {}, data)
        peer.send(protocol.END)
        return peer.response()

    def test_a_piece_that_is_repeated_is_written_over_itself(self) -> None:
        self.begin()
        path = os.path.join(self.work, 'file')
        self.assertEqual(self.piece(b'x', offset=0)['code'], 'not_found')
        with open(path, 'wb') as file:
            file.write(b'one ')
        for _ in range(2):
            self.assertEqual(self.piece(b'two ', offset=4)['size'], 8)
        self.assertEqual(self.piece(b'three', offset=8, mode=0o600)['size'], 13)
        self.assertEqual(self.piece(b'TWO', offset=4)['size'], 13)
        with open(path, 'rb') as read:
            self.assertEqual(read.read(), b'one TWO three')
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        refused = self.piece(b'x', offset=14)
        self.assertEqual(refused['code'], 'bad_request')
        self.assertIn('13 bytes', refused['error'])
        self.assertEqual(self.piece(b'x', offset=-1)['code'], 'bad_request')


if __name__ == '__main__':
    unittest.main()
