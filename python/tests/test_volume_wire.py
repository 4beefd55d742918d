"""Frames of requests to the file server of a volume, as they come on a connection."""

from __future__ import annotations

import json
import os
import socket
import threading
import unittest
from typing import List, Tuple
from unittest import mock

from longshore.runner.protocol import DATA, END, READING, REQUEST, FrameCutter, FrameError, pack
from longshore.volume_files import wire
from longshore.volume_files.wire import Cut, Out, Wire

HEAD = pack(REQUEST, {}, json.dumps({'purpose': 'get'}).encode())


class Wires(unittest.TestCase):
    def pair(self) -> Tuple[socket.socket, socket.socket]:
        own, theirs = socket.socketpair()
        self.addCleanup(own.close)
        self.addCleanup(theirs.close)
        return own, theirs

    def body_of(self, sent: bytes, pieces: int, first: int) -> bytes:
        """The body of a request that comes in pieces of so many bytes, the first of them before the wire."""
        own, theirs = self.pair()

        def send() -> None:
            for at in range(first, len(sent), pieces):
                own.sendall(sent[at : at + pieces])

        thread = threading.Thread(target=send)
        thread.start()
        try:
            made = Wire(theirs, sent[:first])
            self.assertEqual(made.head(), {'purpose': 'get'})
            return b''.join([bytes(piece) for piece in made.body()])
        finally:
            theirs.close()
            thread.join()

    def test_a_body_comes_whole_whatever_the_reads(self) -> None:
        data = os.urandom(700_000)
        frames = [pack(DATA, {}, data[:100_000]), pack(DATA, {'more': 1}, data[100_000:200_000]), pack(DATA, {})]
        frames += [pack(READING, {}), pack(99, {'x': 1}, b'unknown'), pack(DATA, {}, data[200_000:]), pack(END, {})]
        sent = HEAD + b''.join(frames)
        for pieces, first in [(len(sent), 1), (70_000, len(HEAD)), (4099, 5000), (1_000_000, len(sent))]:
            with self.subTest((pieces, first)):
                self.assertEqual(self.body_of(sent, pieces, first) == data, True)
        with mock.patch.object(wire, '_READ_BYTES', 16):
            self.assertEqual(self.body_of(sent, 1000, 3) == data, True)

    def test_a_body_that_breaks_off_or_is_none_is_told(self) -> None:
        for sent, error in [
            (pack(DATA, {}, b'abc')[:-1], Cut),
            (pack(DATA, {}, b'abc'), Cut),
            (b'\xff\xff\xff\xff\x13\0\0', FrameError),
            (b'\0\0\0\x02\x13\0\0', FrameError),
            (b'\0\0\0\x05\x13\0\x09ab', FrameError),
        ]:
            with self.subTest(sent):
                own, theirs = self.pair()
                own.sendall(HEAD + sent)
                own.close()
                made = Wire(theirs, theirs.recv(3))
                made.head()
                with self.assertRaises(error):
                    list(made.body())

    def test_small_parts_of_an_answer_are_joined_and_files_are_read_to_their_end(self) -> None:
        own, theirs = self.pair()
        data = os.urandom(600_000)
        received: List[bytes] = []

        def read() -> None:
            cutter = FrameCutter()
            while True:
                got = own.recv(65536)
                if not got:
                    return
                received.extend(body for kind, _header, body in cutter.feed(got) if kind == DATA)

        thread = threading.Thread(target=read)
        thread.start()
        fd = os.memfd_create('data')
        os.write(fd, data)
        out = Out(Wire(theirs, b''))
        out.write(b'begin')
        at = 0
        while at < len(data):
            at += out.read(fd, at, len(data) - at)
        self.assertEqual(out.read(fd, at, 10), 0)
        out.write(b'end' + data)
        out.flush()
        out.flush()
        os.close(fd)
        theirs.close()
        thread.join()
        self.assertEqual(b''.join(received) == b'begin' + data + b'end' + data, True)
        self.assertEqual([len(one) for one in received][:4], [256 * 1024] * 4)
