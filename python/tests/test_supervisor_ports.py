"""Connections of the supervisor to ports: bytes both ways, half-closes, waiting, and what ends them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import threading
import time
import unittest
from typing import Any, Callable, List

from longshore.runner import protocol

from .supervised import SECONDS, Peer, Supervised, eventually, readable

MIB = 1024 * 1024


def free_port() -> int:
    with socket.socket() as made:
        made.bind(('127.0.0.1', 0))
        return int(made.getsockname()[1])


class Ports(Supervised):
    def setUp(self) -> None:
        super().setUp()
        self.begin()
        self.ask_ok(type='processes')

    def listen(self, serve: Callable[[socket.socket], Any], family: int = socket.AF_INET, port: int = 0) -> int:
        """Serves connections, each by a thread."""
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(('127.0.0.1' if family == socket.AF_INET else '::1', port))
        listener.listen(64)
        self.addCleanup(listener.close)

        def accept() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                connection.settimeout(SECONDS)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return int(listener.getsockname()[1])

    def connected(self, port: int, **more: Any) -> Peer:
        peer = self.open(type='connect', port=port, **more)
        answer = peer.response()
        self.assertEqual(answer, {'ok': True})
        return peer

    def test_half_closes_pass_both_ways(self) -> None:
        def serve(connection: socket.socket) -> None:
            data = b''
            while True:
                piece = connection.recv(100)
                if not piece:
                    break
                data += piece
            connection.sendall(b'got ' + data)
            connection.close()

        peer = self.connected(self.listen(serve))
        peer.send(protocol.DATA, {}, b'one ')
        peer.send(protocol.DATA, {}, b'')
        peer.send(protocol.DATA, {}, b'two')
        self.assertFalse(readable(peer.socket, 0.2))
        peer.send(protocol.END)
        self.assertEqual(peer.data(), b'got one two')
        self.assertIsNone(peer.next())

    def test_the_ports_end_may_come_first(self) -> None:
        got: List[bytes] = []

        def serve(connection: socket.socket) -> None:
            connection.sendall(b'hello')
            connection.shutdown(socket.SHUT_WR)
            while True:
                piece = connection.recv(100)
                got.append(piece)
                if not piece:
                    break
            connection.close()

        peer = self.connected(self.listen(serve))
        self.assertEqual(peer.data(), b'hello')
        peer.send(protocol.DATA, {}, b'later')
        peer.send(protocol.END)
        self.assertIsNone(peer.next())
        eventually(lambda: b''.join(got) == b'later' and got[-1] == b'')

    def test_what_came_with_the_request_is_passed_on(self) -> None:
        port = self.listen(echo)
        peer = self.open(type='connect', port=port, waitMs=0)
        peer.send(protocol.DATA, {}, b'early')
        peer.send(protocol.END)
        self.assertTrue(peer.response()['ok'])
        self.assertEqual(peer.data(), b'early')

    def test_much_passes_both_ways_in_little_memory(self) -> None:
        size = 100 * MIB
        peer = self.connected(self.listen(echo))
        piece = os.urandom(protocol.PIECE_BYTES)
        sent, received, total = hashlib.sha256(), hashlib.sha256(), 0

        def send() -> None:
            for _ in range(size // len(piece)):
                peer.send(protocol.DATA, {}, piece)
                sent.update(piece)
            peer.send(protocol.END)

        before = self.resident()
        thread = threading.Thread(target=send)
        thread.start()
        most, ended = 0, False
        for kind, _header, body in peer.frames():
            if kind == protocol.END:
                ended = True
                break
            self.assertLessEqual(len(body), protocol.PIECE_BYTES)
            received.update(body)
            total += len(body)
            if total % (8 * MIB) < len(body):
                most = max(most, self.resident())
        thread.join()
        self.assertEqual((ended, total, received.hexdigest()), (True, size, sent.hexdigest()))
        self.assertLess(most - before, 12 * MIB)

    def test_a_side_that_does_not_read_makes_the_other_wait(self) -> None:
        def silent(connection: socket.socket) -> None:
            time.sleep(SECONDS)
            connection.close()

        before = self.resident()
        peer = self.connected(self.listen(silent))
        peer.socket.settimeout(1.0)
        with self.assertRaises(socket.timeout):
            for _ in range(200):
                peer.send(protocol.DATA, {}, b'x' * protocol.PIECE_BYTES)
        done: List[int] = []

        def flood(connection: socket.socket) -> None:
            connection.settimeout(1.0)
            try:
                for _ in range(200):
                    connection.sendall(b'x' * protocol.PIECE_BYTES)
            except OSError:
                pass
            done.append(1)
            time.sleep(SECONDS)

        self.connected(self.listen(flood))
        eventually(lambda: bool(done))
        self.assertLess(self.resident() - before, 20 * MIB)

    def resident(self) -> int:
        with open('/proc/%d/statm' % self.process.pid) as file:
            return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')

    def test_ipv6_where_nothing_listens_on_ipv4(self) -> None:
        peer = self.connected(self.listen(echo, socket.AF_INET6))
        peer.send(protocol.DATA, {}, b'six')
        peer.send(protocol.END)
        self.assertEqual(peer.data(), b'six')

    def test_nothing_listens(self) -> None:
        port = free_port()
        began = time.monotonic()
        self.refused('refused', 'port %d' % port, type='connect', port=port, waitMs=0)
        self.refused('refused', 'port %d' % port, type='connect', port=port, waitMs=300)
        self.assertGreater(time.monotonic() - began, 0.2)
        for wrong in (0, 65_536, -1, None, '80', True, 8.5):
            self.refused('bad_request', 'port', type='connect', port=wrong)
        self.refused('bad_request', 'waitMs', type='connect', port=port, waitMs=-1)
        self.refused('bad_request', 'waitMs', type='connect', port=port, waitMs='x')

    def test_a_port_is_waited_for(self) -> None:
        for family in (socket.AF_INET, socket.AF_INET6):
            port = free_port()
            peer = self.open(type='connect', port=port, waitMs=20_000)
            self.assertFalse(readable(peer.socket, 0.3))
            self.listen(echo, family, port)
            self.assertTrue(peer.response()['ok'])

    def test_one_that_leaves_while_waiting_is_forgotten(self) -> None:
        before = self.files()
        for _ in range(5):
            self.open(type='connect', port=free_port(), waitMs=500_000).close()
        eventually(lambda: self.files() <= before + 1)

    def files(self) -> int:
        return len(os.listdir('/proc/%d/fd' % self.process.pid))

    def test_a_cut_is_a_cut_on_the_other_side_too(self) -> None:
        seen: List[Any] = []

        def watch(connection: socket.socket) -> None:
            try:
                seen.append(connection.recv(100))
                seen.append(connection.recv(100))
            except OSError as error:
                seen.append(type(error))

        peer = self.connected(self.listen(watch))
        peer.send(protocol.DATA, {}, b'begin')
        eventually(lambda: seen == [b'begin'])
        peer.close()
        eventually(lambda: seen == [b'begin', ConnectionResetError])

        def reset(connection: socket.socket) -> None:
            connection.sendall(b'part')
            time.sleep(0.2)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            connection.close()

        peer = self.connected(self.listen(reset))
        frames = list(peer.frames())
        self.assertEqual([(kind, body) for kind, _, body in frames], [(protocol.DATA, b'part')])

    def test_the_rest_of_a_request_reaches_the_port_when_its_sender_has_left(self) -> None:
        got: List[bytes] = []

        def slow(connection: socket.socket) -> None:
            time.sleep(0.5)
            while True:
                piece = connection.recv(1 << 20)
                got.append(piece)
                if not piece:
                    return

        peer = self.connected(self.listen(slow))
        for _ in range(4):
            peer.send(protocol.DATA, {}, b'x' * protocol.PIECE_BYTES)
        peer.send(protocol.END)
        peer.close()
        eventually(lambda: got and got[-1] == b'')
        self.assertEqual(sum(len(piece) for piece in got), 4 * protocol.PIECE_BYTES)

    def test_many_at_once_and_no_file_stays_open(self) -> None:
        port = self.listen(echo)
        before = self.files()
        peers = [self.connected(port) for _ in range(60)]
        for number, peer in enumerate(peers):
            peer.send(protocol.DATA, {}, b'%d' % number)
        for number, peer in enumerate(peers):
            peer.send(protocol.END)
            self.assertEqual(peer.data(), b'%d' % number)
            peer.close()
        eventually(lambda: self.files() <= before + 1)


def echo(connection: socket.socket) -> None:
    with connection, contextlib.suppress(ConnectionResetError):
        while True:
            data = connection.recv(1 << 18)
            if not data:
                break
            connection.sendall(data)


if __name__ == '__main__':
    unittest.main()
