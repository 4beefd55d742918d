"""The supervisor towards the agent: readiness, calls, restarts, the entrypoint's end, and a container at its limits."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from typing import Any, Dict, List, Tuple

from longshore.runner import protocol

from .supervised import SECONDS, SOURCE, Output, Peer, Supervised, children_of, eventually, readable
from .test_supervisor_ports import free_port

SERVE = """
import os, socket, sys, time
time.sleep(float(sys.argv[2]))
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('127.0.0.1', int(sys.argv[1])))
listener.listen(64)
print('serving', flush=True)
while True:
    connection = listener.accept()[0]
    try:
        data = connection.recv(100)
        while data and not data.endswith(b'hold'):
            connection.sendall(data.upper())
            if data.endswith(b'big'):
                connection.sendall(b'x' * 600000)
            if data.endswith((b'die', b'big')):
                os._exit(7)
            data = connection.recv(100)
        if data:
            time.sleep(1000)
    except OSError:
        pass
    connection.close()
"""


class Served(Supervised):
    def greeted(self) -> Tuple[Peer, Dict[str, Any]]:
        peer = self.agent.accept('agent.sock')
        self.addCleanup(peer.close)
        header = peer.expect(protocol.HELLO)[1]
        peer.send(protocol.WELCOME, {'version': 1})
        return peer, header

    def serving(self, **more: Any) -> Tuple[Peer, int]:
        """A pod that serves a port, and its connection to the agent, which has heard that it is ready."""
        port = free_port()
        settings = dict({'slots': 4, 'ports': [port], 'containerId': 'c-1'}, **more)
        self.begin(entrypoint=[sys.executable, '-S', '-c', SERVE, str(port), '0'], **settings)
        peer, _header = self.greeted()
        peer.expect(protocol.STARTING)
        peer.expect(protocol.READY)
        return peer, port

    def entry_pid(self) -> int:
        eventually(lambda: self.ask_ok(type='processes')['processes'] != [])
        return int(self.ask_ok(type='processes')['processes'][0]['pid'])

    def call(self, runner: Peer, task: str, token: str = 't') -> Peer:
        runner.send(protocol.RUN, {'taskId': task, 'token': token, 'stream': True, 'started': False})
        peer = self.agent.accept('streams.sock')
        self.addCleanup(peer.close)
        header = peer.expect(protocol.STREAM)[1]
        self.assertEqual((header['taskId'], header['token'], header['version']), (task, token, protocol.VERSION))
        return peer

    def connected(self, runner: Peer, port: int, task: str) -> Peer:
        """A call that has its connection to the port."""
        peer = self.call(runner, task)
        peer.send(protocol.REQUEST, {}, json.dumps({'type': 'connect', 'port': port, 'waitMs': 0}).encode())
        self.assertEqual(peer.response(), {'ok': True})
        return peer

    def result(self, runner: Peer) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        _kind, header, body = runner.expect(protocol.RESULT)
        return header, json.loads(body)


class Readiness(Served):
    def test_hello_and_ready(self) -> None:
        port = free_port()
        self.begin(entrypoint=[sys.executable, '-c', SERVE, str(port), '1'], slots=5, ports=[port, 9], containerId='c-1')
        peer, hello = self.greeted()
        self.assertEqual((hello['version'], hello['containerId'], hello['process'], hello['slots']), (1, 'c-1', 0, 0))
        self.assertEqual((hello['pid'], hello['holding']), (self.process.pid, []))
        self.assertEqual(peer.expect(protocol.STARTING)[1], {'phase': 'on_start'})
        self.assertFalse(readable(peer.socket, 0.5))
        ready = peer.expect(protocol.READY)[1]
        self.assertEqual((ready['mode'], ready['slots']), ('single', 5))
        self.assertGreater(ready['onStartMs'], 900)

    def test_without_ports_it_is_ready_once_the_entrypoint_runs(self) -> None:
        self.begin(entrypoint=['sleep', '1000'], slots=1)
        peer, _hello = self.greeted()
        peer.expect(protocol.STARTING)
        peer.expect(protocol.READY)
        self.assertEqual(len(children_of(self.process.pid)), 1)

    def test_without_an_entrypoint_ports_are_not_waited_for(self) -> None:
        self.begin(slots=1, ports=[free_port()])
        peer, _hello = self.greeted()
        peer.expect(protocol.STARTING)
        peer.expect(protocol.READY)

    def test_added_later_it_does_not_speak_to_the_agent(self) -> None:
        self.begin()
        self.ask_ok(type='processes')
        self.agent.listeners['agent.sock'].settimeout(0.3)
        self.assertRaises(OSError, self.agent.accept, 'agent.sock')

    def test_a_probe_by_http(self) -> None:
        seen: List[str] = []
        status = [503]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.path)
                self.send_response(status[0])
                self.end_headers()

            def log_message(self, *_values: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        probe = {'type': 'http', 'port': server.server_address[1], 'path': '/healthz?x=1', 'intervalMs': 20, 'timeoutMs': 2000}
        self.begin(entrypoint=['sleep', '1000'], slots=1, probe=probe)
        peer, _hello = self.greeted()
        peer.expect(protocol.STARTING)
        eventually(lambda: len(seen) > 3)
        self.assertFalse(readable(peer.socket, 0.1))
        status[0] = 302
        peer.expect(protocol.READY)
        self.assertEqual(set(seen), {'/healthz?x=1'})
        count = len(seen)
        time.sleep(0.2)
        self.assertLessEqual(len(seen), count)

    def test_a_probe_asks_several_paths_and_one_success_is_enough(self) -> None:
        seen: List[str] = []
        good: List[str] = []
        hangs: List[str] = ['/v1/models']
        over = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.path)
                if self.path in hangs:
                    over.wait(SECONDS)
                self.send_response(200 if self.path in good else 404)
                self.end_headers()

            def log_message(self, *_values: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(over.set)
        paths = ['/health', '/server_info', '/get_model_info']
        times = {'intervalMs': 20, 'timeoutMs': 500}
        probe = {'type': 'http', 'port': server.server_address[1], 'path': '/v1/models', 'morePaths': paths, **times}
        self.begin(entrypoint=['sleep', '1000'], slots=1, probe=probe)
        peer, _hello = self.greeted()
        peer.expect(protocol.STARTING)
        # The first path hangs; the others are asked all the same, in turn.
        eventually(lambda: set(seen) == {'/v1/models', *paths})
        at = seen.index('/health')
        self.assertEqual(seen[at : at + 3], paths)
        self.assertFalse(readable(peer.socket, 0.1))
        good.append('/get_model_info')
        peer.expect(protocol.READY)

    def test_a_probe_that_hangs_is_tried_again(self) -> None:
        listener = socket.socket()
        self.addCleanup(listener.close)
        listener.bind(('127.0.0.1', 0))
        listener.listen(16)
        listener.settimeout(SECONDS)
        probe = {'type': 'http', 'port': listener.getsockname()[1], 'path': '/', 'intervalMs': 20, 'timeoutMs': 100}
        self.begin(entrypoint=['sleep', '1000'], slots=1, probe=probe)
        peer, _hello = self.greeted()
        peer.expect(protocol.STARTING)
        kept = [listener.accept()[0] for _ in range(3)]
        kept[-1].recv(1000)
        kept.append(listener.accept()[0])
        kept[-1].sendall(b'HTTP/1.1 204 No')
        kept[-1].sendall(b' Content\r\n\r\n')
        peer.expect(protocol.READY)
        for one in kept:
            one.close()

    def test_a_probe_by_command(self) -> None:
        script = 'echo "$OWN" >> tries; sleep 0.01; test -e good || { sleep 1000 & test -e hang && wait; exit 1; }'
        probe = {'type': 'command', 'command': ['sh', '-c', script], 'intervalMs': 20, 'timeoutMs': 300}
        open(self.work + '/hang', 'w').close()
        self.begin(entrypoint=['sleep', '1000'], slots=1, probe=probe, env={'OWN': 'value'})
        peer, _hello = self.greeted()
        peer.expect(protocol.STARTING)

        def tries() -> int:
            return len(open(self.work + '/tries').readlines()) if os.path.exists(self.work + '/tries') else 0

        eventually(lambda: tries() >= 3)
        open(self.work + '/good', 'w').close()
        peer.expect(protocol.READY)
        self.assertEqual(set(open(self.work + '/tries').readlines()), {'value\n'})
        eventually(lambda: len(children_of(self.process.pid)) == 1)
        self.assertEqual(self.ask_ok(type='processes')['processes'][0]['command'], ['sleep', '1000'])

    def test_a_probe_that_cannot_be_started_says_so_once_and_is_tried_again(self) -> None:
        late = self.work + '/late'
        probe = {'type': 'command', 'command': [late], 'intervalMs': 20, 'timeoutMs': 2000}
        self.begin(entrypoint=['sleep', '1000'], slots=1, probe=probe)
        peer, _hello = self.greeted()
        peer.expect(protocol.STARTING)
        line = self.process.stderr.readline().decode()
        self.assertIn('the readiness probe cannot be started', line)
        self.assertIn('%s: No such file' % late, line)
        self.assertFalse(readable(peer.socket, 0.2))
        with open(late + '.part', 'w') as file:
            file.write('#!/bin/sh\n')
        os.chmod(late + '.part', 0o755)
        os.rename(late + '.part', late)
        peer.expect(protocol.READY)
        self.assertFalse(readable(self.process.stderr, 0))

    def test_an_entrypoint_that_cannot_be_started(self) -> None:
        plain = self.work + '/plain'
        open(plain, 'w').close()
        cases = [
            (['no-such-program'], '', 127, 'no-such-program'),
            ([plain], '', 126, plain),
            (['true'], '/no/where', 127, '/no/where'),
        ]
        for entrypoint, cwd, code, word in cases:
            self.begin(entrypoint=entrypoint, slots=1, cwd=cwd)
            peer, _hello = self.greeted()
            peer.expect(protocol.STARTING)
            failed = peer.expect(protocol.FAILED)[1]
            self.assertIn(word, failed['error'])
            self.assertIn('entrypoint', failed['error'])
            self.assertIsNone(self.process.poll())
            peer.send(protocol.ACKED, {})
            self.assertEqual(self.process.wait(SECONDS), code)
            self.assertIn(word, self.process.stderr.read().decode())

    def test_settings_that_cannot_be_used(self) -> None:
        for settings, word in (
            ({'ports': [0]}, 'ports'),
            ({'slots': -1}, 'slots'),
            ({'entrypoint': 'x'}, 'entrypoint'),
            ({'probe': {'type': 'x'}}, 'probe.type'),
            ({'probe': {'type': 'http', 'port': 80, 'path': '/a b'}}, 'probe.path'),
            ({'probe': {'type': 'http', 'port': 80, 'morePaths': ['/a b']}}, 'probe.path'),
            ({'probe': {'type': 'tcp'}}, 'probe.port'),
            ({'probe': {'type': 'command'}}, 'probe.command'),
        ):
            self.begin(**settings)
            self.assertEqual(self.process.wait(SECONDS), 2)
            self.assertIn(word, self.process.stderr.read().decode())


class Calls(Served):
    def test_a_call_reaches_the_port_and_its_result_the_agent(self) -> None:
        runner, port = self.serving()
        peer = self.connected(runner, port, 'task-1')
        peer.send(protocol.DATA, {}, b'hello')
        self.assertEqual(peer.expect(protocol.DATA)[2], b'HELLO')
        peer.send(protocol.END)
        self.assertEqual(peer.data(), b'')
        header, value = self.result(runner)
        self.assertEqual((header['taskId'], header['token'], header['outcome'], header['chunks']), ('task-1', 't', 'ok', 0))
        self.assertEqual(value, {'status': 200})
        self.assertGreaterEqual(header['durationMs'], 0)
        # The call is not taken again before the agent has acknowledged it.
        runner.send(protocol.RUN, {'taskId': 'task-1', 'token': 't', 'stream': True})
        runner.send(protocol.ACKED, {'taskId': 'task-1', 'token': 't'})
        self.call(runner, 'task-2').close()
        header, value = self.result(runner)
        self.assertEqual((header['taskId'], header['outcome']), ('task-2', 'cancelled'))

    def test_results_of_calls_that_end_otherwise(self) -> None:
        runner, port = self.serving()
        runner.send(protocol.RUN, {'taskId': 'plain', 'token': 't'})
        runner.expect(protocol.STARTED)
        header, value = self.result(runner)
        self.assertEqual((header['taskId'], header['outcome']), ('plain', 'error'))

        peer = self.call(runner, 'refused')
        closed = free_port()
        peer.send(protocol.REQUEST, {}, json.dumps({'type': 'connect', 'port': closed, 'waitMs': 0}).encode())
        self.assertEqual(peer.response()['code'], 'refused')
        header, value = self.result(runner)
        self.assertEqual((header['outcome'], value), ('error', {'error': 'nothing listens on port %d' % closed}))

        for body in (b'{', b'[]', b'{"type": "start", "command": ["true"]}', b'{"type": "connect", "port": 0}'):
            peer = self.call(runner, 'wrong')
            peer.send(protocol.REQUEST, {}, body)
            self.assertEqual(peer.response()['code'], 'bad_request')
            self.assertEqual(self.result(runner)[0]['outcome'], 'error')
            runner.send(protocol.ACKED, {'taskId': 'wrong', 'token': 't'})

        peer = self.call(runner, 'left')
        peer.send(protocol.REQUEST, {}, json.dumps({'type': 'connect', 'port': port, 'waitMs': 0}).encode())
        peer.response()
        peer.close()
        header, value = self.result(runner)
        self.assertEqual((header['outcome'], value), ('cancelled', {'error': 'the caller left'}))

        peer = self.call(runner, 'cancelled')
        peer.send(protocol.REQUEST, {}, json.dumps({'type': 'connect', 'port': port, 'waitMs': 0}).encode())
        peer.response()
        runner.send(protocol.CANCEL, {'taskId': 'cancelled', 'token': 't', 'reason': 'x'})
        header, value = self.result(runner)
        self.assertEqual((header['outcome'], value), ('cancelled', {'error': 'task was cancelled'}))
        self.assertIsNone(peer.next())

    def test_a_program_that_ends_never_ends_its_bytes_in_order(self) -> None:
        for _ in range(5):
            runner, port = self.serving()
            peer = self.connected(runner, port, 'task')
            peer.send(protocol.DATA, {}, b'die')
            self.assertEqual(peer.expect(protocol.DATA)[2], b'DIE')
            self.assertIsNone(peer.next())
            # The agent tells by the container's end, which has the exit code.
            self.assertIsNone(runner.next())

    def test_what_a_program_said_before_its_end_reaches_a_slow_reader(self) -> None:
        runner, port = self.serving()
        peer = self.connected(runner, port, 'task')
        peer.send(protocol.DATA, {}, b'big')
        time.sleep(0.5)
        got = [body for kind, _header, body in peer.frames() if kind == protocol.DATA]
        self.assertEqual(len(b''.join(got)), len(b'BIG') + 600_000)

    def test_a_restarted_agent_hears_all_again(self) -> None:
        runner, port = self.serving()
        done, held = self.call(runner, 'done'), self.call(runner, 'held')
        for peer in (done, held):
            peer.send(protocol.REQUEST, {}, json.dumps({'type': 'connect', 'port': port, 'waitMs': 0}).encode())
            self.assertTrue(peer.response()['ok'])
        done.send(protocol.END)
        done.data()
        self.result(runner)
        attached = self.attached('sh', '-c', 'echo before; read x; echo after')
        Output(attached, until=b'before\n')
        self.agent.close()
        for peer in (runner, attached):
            peer.close()
        time.sleep(0.5)
        self.agent.listen()
        runner, hello = self.greeted()
        keys = [(one['taskId'], one['token']) for one in hello['holding']]
        self.assertEqual(sorted(keys), [('done', 't'), ('held', 't')])
        runner.expect(protocol.READY)
        self.assertEqual(self.result(runner)[0]['taskId'], 'done')
        held.send(protocol.DATA, {}, b'still')
        self.assertEqual(held.expect(protocol.DATA)[2], b'STILL')
        held.close()
        header, _value = self.result(runner)
        self.assertEqual((header['taskId'], header['outcome']), ('held', 'cancelled'))
        back = self.open(type='attach', pid=self.pid, stdout=0)
        self.assertTrue(back.response()['running'])
        back.send(protocol.DATA, {}, b'x\n')
        self.assertEqual(Output(back).stdout, b'before\nafter\n')

    def test_a_drain_ends_the_programs_once_no_call_is_in_hand(self) -> None:
        runner, port = self.serving()
        peer = self.call(runner, 'last')
        peer.send(protocol.REQUEST, {}, json.dumps({'type': 'connect', 'port': port, 'waitMs': 0}).encode())
        peer.response()
        runner.send(protocol.DRAIN, {'graceMs': 60_000})
        time.sleep(0.3)
        peer.send(protocol.DATA, {}, b'served')
        self.assertEqual(peer.expect(protocol.DATA)[2], b'SERVED')
        peer.send(protocol.END)
        peer.data()
        self.assertEqual(self.result(runner)[0]['outcome'], 'ok')
        runner.send(protocol.ACKED, {'taskId': 'last', 'token': 't'})
        self.assertEqual(self.process.wait(SECONDS), 128 + signal.SIGTERM)

    def test_a_drain_waits_no_longer_than_its_time(self) -> None:
        runner, port = self.serving()
        peer = self.call(runner, 'long')
        peer.send(protocol.REQUEST, {}, json.dumps({'type': 'connect', 'port': port, 'waitMs': 0}).encode())
        peer.response()
        peer.send(protocol.DATA, {}, b'hold')
        runner.send(protocol.DRAIN, {'graceMs': 100})
        self.assertEqual(self.process.wait(SECONDS), 128 + signal.SIGTERM)

    def test_frames_may_be_cut_anywhere(self) -> None:
        runner, port = self.serving()
        whole = protocol.pack(99, {}, b'unknown') + protocol.pack(protocol.RUN, {'taskId': 'x', 'token': 'y', 'stream': True})
        for at in range(1, len(whole)):
            runner.socket.sendall(whole[:at])
            time.sleep(0.001)
            runner.socket.sendall(whole[at:])
            runner.expect(protocol.STARTED)
            peer = self.agent.accept('streams.sock')
            peer.expect(protocol.STREAM)
            peer.close()
            self.assertEqual(self.result(runner)[0]['outcome'], 'cancelled')
            runner.send(protocol.ACKED, {'taskId': 'x', 'token': 'y'})

    def test_bytes_that_are_no_frames_end_only_their_connection(self) -> None:
        runner, port = self.serving()
        runner.socket.sendall(b'\xff' * 100)
        self.assertIsNone(runner.next())
        runner, _hello = self.greeted()
        runner.expect(protocol.READY)


class Ends(Served):
    def ended(self, script: str, **more: Any) -> Tuple[int, bytes, bytes]:
        self.begin(entrypoint=['sh', '-c', script], **more)
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, err

    def test_the_entrypoints_code_and_output_are_the_containers(self) -> None:
        self.assertEqual(self.ended('echo out; echo err >&2; exit 7'), (7, b'out\n', b'err\n'))
        self.assertEqual(self.ended('kill -USR1 $$'), (128 + 10, b'', b''))
        code, out, _err = self.ended('head -c 5000000 /dev/zero')
        self.assertEqual((code, len(out)), (0, 5_000_000))

    def test_variables_that_programs_alone_have(self) -> None:
        settings = {'entrypoint': ['sh', '-c', 'echo "$ONLY $BOTH"'], 'env': {'ONLY': 'own', 'BOTH': 'new'}}
        self.begin(env={'LONGSHORE_SUPERVISOR': json.dumps(settings), 'BOTH': 'old'})
        self.assertEqual(self.process.communicate(timeout=SECONDS)[0], b'own new\n')
        self.begin(env={'LONGSHORE_SUPERVISOR': json.dumps({'env': {'A': 1}})})
        self.assertEqual(self.process.wait(SECONDS), 2)

    def test_output_that_nobody_takes_makes_the_entrypoint_wait(self) -> None:
        self.begin(entrypoint=['sh', '-c', 'head -c 5000000 /dev/zero; echo end >&2'])
        pid = self.entry_pid()
        self.assertTrue(self.ask_ok(type='wait', pid=pid, timeoutMs=500)['running'])
        out, err = self.process.communicate(timeout=SECONDS)
        self.assertEqual((len(out), err), (5_000_000, b'end\n'))

    def test_those_attached_get_the_last_output_and_the_end(self) -> None:
        self.begin(entrypoint=['sh', '-c', 'echo one; while ! test -e go; do sleep 0.02; done; head -c 3000000 /dev/zero; exit 4'])
        pid = self.entry_pid()
        peer = self.open(type='attach', pid=pid, stdout=0, stderr=0)
        peer.response()
        open(self.work + '/go', 'w').close()
        drained = threading.Thread(target=self.process.communicate)
        drained.start()
        output = Output(peer)
        drained.join()
        self.assertEqual((len(output.stdout), output.lost), (3_000_004, 0))
        self.assertEqual(output.exit, {'exitCode': 4, 'signal': ''})
        self.assertEqual(self.process.returncode, 4)

    def test_the_entrypoint_has_no_input(self) -> None:
        self.assertEqual(self.ended('cat; echo end'), (0, b'end\n', b''))

    def test_sigterm_goes_to_all_programs_and_the_entrypoint_decides(self) -> None:
        script = "trap 'echo told; sleep 0.3; exit 9' TERM; echo up; while :; do sleep 0.02; done"
        self.begin(entrypoint=['sh', '-c', script])
        other = self.attached('sh', '-c', "trap 'echo also' TERM; echo up; while :; do sleep 0.02; done")
        Output(other, until=b'up\n')
        self.assertEqual(self.process.stdout.readline(), b'up\n')
        self.process.send_signal(signal.SIGTERM)
        self.assertIn(b'also', Output(other, until=b'also').stdout)
        out, _err = self.process.communicate(timeout=SECONDS)
        self.assertEqual((self.process.returncode, out), (9, b'told\n'))

    def test_sigterm_without_an_entrypoint(self) -> None:
        self.begin()
        Output(self.attached('sh', '-c', 'echo up; exec sleep 1000'), until=b'up')
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(SECONDS), 143)


class Limits(Served):
    def test_a_container_without_free_process_numbers(self) -> None:
        # The limit of a user who has no other processes stands for the container's; only root can become one.
        user = 100_000 + os.getpid()
        # Modules are imported before: that user may be unable to read Python's library.
        before = 'from longshore.supervisor import attach, entries, programs, requests; import importlib, os, resource; '
        before += 'os.setgid(%d); os.setuid(%d); '
        before = before % (user, user) + 'resource.setrlimit(resource.RLIMIT_NPROC, (12, 12))'
        for path in (self.path, self.work, *(os.path.join(self.path, name) for name in os.listdir(self.path))):
            os.chmod(path, 0o777)
        self.begin(before=before, entrypoint=['sleep', '1000'])
        self.addCleanup(end_all_of, user)
        bomb = self.start('bash', '-c', 'while :; do sleep 1000 & done')
        eventually(lambda: self.ask(type='start', command=['true']).get('code') == 'too_many_processes')
        eventually(lambda: self.ask(type='stat', path='/').get('code') == 'too_many_processes')
        self.assertIn(bomb, [one['pid'] for one in self.ask_ok(type='processes')['processes']])
        self.ask_ok(type='kill', pid=bomb)
        eventually(lambda: self.ask(type='start', command=['true'])['ok'])
        self.assertIsNone(self.process.poll())

    def test_a_connection_of_an_error_ends_alone(self) -> None:
        self.begin(before='import longshore.supervisor.attach as a; a.size_of = None')
        peer = self.attached('cat')
        peer.send(protocol.CONTROL, {'rows': 5, 'columns': 5})
        self.assertIsNone(Output(peer).exit)
        self.assertIn(b'TypeError', os.read(self.process.stderr.fileno(), 1000))
        self.assertTrue(self.ask_ok(type='processes')['processes'][0]['running'])


def end_all_of(user: int) -> None:
    """Ends the processes of a user."""
    for name in os.listdir('/proc'):
        if name.isdigit():
            try:
                if os.stat('/proc/' + name).st_uid == user:
                    os.kill(int(name), signal.SIGKILL)
            except OSError:
                pass


class Imports(unittest.TestCase):
    def test_the_start_imports_little(self) -> None:
        script = (
            'import sys; sys.path.insert(0, %r); import longshore.supervisor.main; '
            'print([one for one in sys.modules if one in %r or one.startswith("longshore.") and not '
            'one.startswith(("longshore.runner", "longshore.supervisor"))])'
        )
        heavy = ('asyncio', 'socket', 'signal', 'subprocess', 'threading', 'tarfile', 'shutil', 'typing', 'selectors', 'logging')
        out = subprocess.check_output([sys.executable, '-I', '-S', '-c', script % (SOURCE, heavy)])
        self.assertEqual(out.decode().strip(), '[]')


if __name__ == '__main__':
    unittest.main()
