"""Programs of the supervisor: start, output, input, terminals, signals, their end, and the bounds of each."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import threading
import time
import unittest
from typing import Any, Dict, List, Tuple

from longshore.runner import protocol
from longshore.runner.protocol import pack

from .supervised import SECONDS, Output, Peer, Supervised, children_of, eventually, readable

MIB = 1024 * 1024
TERMINAL = {'rows': 30, 'columns': 90}
#: Prints, then sleeps; the argument of `exec` keeps the process the program's own.
FOREVER = ('sh', '-c', 'echo up; exec sleep 1000')


def resident_bytes(pid: int) -> int:
    with open('/proc/%d/status' % pid) as file:
        for line in file:
            if line.startswith('VmRSS:'):
                return int(line.split()[1]) * 1024
    raise AssertionError('no VmRSS')


def counted(peer: Peer) -> Tuple[List[int], bytes]:
    """Counts of input that a connection tells, and the output, up to the end of the program."""
    told: List[int] = []
    out = b''
    for kind, header, body in peer.frames():
        if kind == protocol.CONTROL:
            told.append(header['input'])
        elif kind == protocol.DATA:
            out += body
    return told, out


class Starting(Supervised):
    def test_both_outputs_the_exit_code_and_what_the_start_names(self) -> None:
        self.begin(env={'SEEN': 'yes'})
        os.mkdir(self.work + '/below')
        script = 'pwd; echo "$SEEN $OWN"; cat; echo wrong >&2; exit 3'
        peer = self.attached('sh', '-c', script, cwd='below', env={'OWN': 'value'})
        peer.send(protocol.DATA, {}, b'typed')
        peer.send(protocol.END)
        output = Output(peer)
        self.assertEqual(output.stdout.decode(), '%s/below\nyes value\ntyped' % os.path.realpath(self.work))
        self.assertEqual((output.text['stderr'], output.exit, output.lost), (b'wrong\n', {'exitCode': 3, 'signal': ''}, 0))
        listed = self.ask_ok(type='processes')['processes']
        self.assertEqual([one['pid'] for one in listed], [self.pid])
        entry = listed[0]
        self.assertEqual(entry['command'], ['sh', '-c', script])
        self.assertEqual((entry['cwd'], entry['env']), (self.work + '/below', ['OWN=value']))
        self.assertEqual((entry['running'], entry['exitCode'], entry['signal'], entry['terminal']), (False, 3, '', False))
        self.assertLess(abs(entry['startedAtMs'] / 1000 - time.time()), 60)

    def test_a_program_has_a_session_default_signals_and_none_of_our_files(self) -> None:
        self.begin()
        pid = self.start(*FOREVER)
        self.open(type='wait', pid=pid, timeoutMs=60_000)
        with open('/proc/%d/status' % pid) as file:
            status = dict(line.rstrip('\n').split(':\t', 1) for line in file if ':\t' in line)
        for name in ('SigBlk', 'SigIgn'):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual(os.getsid(pid), pid)
        self.assertEqual(os.getpgid(pid), pid)
        with open('/proc/%d/oom_score_adj' % pid) as file:
            self.assertEqual(file.read().strip(), '500')
        with open('/proc/%d/oom_score_adj' % self.process.pid) as file:
            self.assertNotEqual(file.read().strip(), '500')
        # A program that starts has further files for a moment, such as its libraries.
        eventually(lambda: sorted(os.listdir('/proc/%d/fd' % pid)) == ['0', '1', '2'])
        with open('/proc/self/limits') as ours, open('/proc/%d/limits' % pid) as theirs:
            self.assertEqual(ours.read(), theirs.read())

    def test_programs_do_not_see_the_platforms_variables(self) -> None:
        kept = {'LONGSHORE_TOKEN': 'secret-token', 'LONGSHORE_GATEWAY_SOCKET': '/g', 'TIMEOUT': '5'}
        self.begin(env=dict(kept, LONGSHORE_TRACEBACKS='1', LONGSHORE_CORES='2'))
        names = self.run_to_end('env').stdout.decode().split('\n')
        self.assertLessEqual({'%s=%s' % one for one in kept.items()}, set(names))
        self.assertEqual([one for one in names if one.startswith('LONGSHORE_') and one.split('=')[0] not in kept], [])
        self.assertNotIn('secret-token', json.dumps(self.ask_ok(type='processes')))

    def test_what_runner_processes_read_is_not_for_programs(self) -> None:
        self.begin(env={'LONGSHORE_WORKER_MODE': '', 'HANDLER': 'app:f', 'TIMEOUT': '5', 'OTHER': '1'})
        names = [one.split('=')[0] for one in self.run_to_end('env').stdout.decode().split('\n')]
        self.assertIn('OTHER', names)
        self.assertNotIn('HANDLER', names)
        self.assertNotIn('TIMEOUT', names)

    def test_starts_that_fail(self) -> None:
        self.begin()
        plain = os.path.join(self.work, 'plain')
        with open(plain, 'w') as file:
            file.write('text')
        start: Dict[str, Any] = {'type': 'start'}
        self.refused('not_found', 'no-such', command=['no-such'], **start)
        self.refused('denied', 'plain', command=['./plain'], **start)
        self.refused('not_found', '/no/where', command=['true'], cwd='/no/where', **start)
        self.refused('not_a_directory', 'plain', command=['true'], cwd=plain, **start)
        os.chmod(plain, 0o755)
        self.refused('denied', 'format', command=[plain], **start)
        self.refused('too_large', 'true', command=['true', 'x' * 200_000], **start)
        for command in ([], None, 'true', ['a', 5], ['a\0b'], [''], ['', 'a']):
            self.refused('bad_request', 'command', command=command, **start)
        environments: List[Any] = [[], {'a': 5}, {'a=b': 'c'}, {'': 'c'}, {'a': 'b\0'}]
        for env in environments:
            self.refused('bad_request', 'env', command=['true'], env=env, **start)
        for terminal in (5, {'rows': 0}, {'columns': 70_000}, {'rows': 'x'}):
            self.refused('bad_request', 'terminal', command=['true'], terminal=terminal, **start)
        self.refused('bad_request', 'cwd', command=['true'], cwd=5, **start)
        self.assertEqual(self.ask_ok(type='processes')['processes'], [])
        eventually(lambda: children_of(self.process.pid) == [])
        self.assertLess(len(os.listdir('/proc/%d/fd' % self.process.pid)), 20)

    def test_requests_that_no_one_knows(self) -> None:
        self.begin()
        self.refused('bad_request', 'sing', type='sing')
        self.refused('bad_request', 'None')
        for body in (b'', b'[]', b'{', b'"x"'):
            peer = self.agent.accept('supervisor.sock')
            peer.send(protocol.REQUEST, {}, body)
            self.assertEqual(peer.response()['code'], 'bad_request')
            self.assertIsNone(peer.next())
            peer.close()
        for name in ('attach', 'output', 'wait', 'kill'):
            for pid in (1, 0, -1, None, 'x', self.process.pid):
                self.refused('not_found', 'pid', type=name, pid=pid)
        pid = self.start('true')
        self.refused('bad_request', 'signal', type='kill', pid=pid, signal='NONE')
        self.refused('bad_request', 'signal', type='kill', pid=pid, signal=9)
        self.refused('bad_request', 'stream', type='output', pid=pid, stream='x')
        self.refused('bad_request', 'from', type='output', pid=pid, **{'from': 10**9})
        self.refused('bad_request', 'mostBytes', type='output', pid=pid, mostBytes=-1)
        self.refused('bad_request', 'stdout', type='attach', pid=pid, stdout=10**9)
        self.refused('bad_request', 'timeoutMs', type='wait', pid=pid, timeoutMs='x')

    def test_a_frame_over_the_bound_is_refused_and_others_are_served(self) -> None:
        self.begin()
        peer = self.agent.accept('supervisor.sock')
        peer.socket.sendall((2 * MIB).to_bytes(4, 'big') + bytes([protocol.REQUEST, 0, 0]) + b'x' * 100)
        self.assertEqual(peer.response()['code'], 'too_large')
        peer.close()
        peer = self.agent.accept('supervisor.sock')
        peer.socket.sendall(b'\0\0\0\1' + b'junk')
        self.assertEqual(peer.response()['code'], 'too_large')
        peer.close()
        self.start('true')

    def test_a_request_may_be_cut_anywhere(self) -> None:
        self.begin()
        request = pack(protocol.REQUEST, {'unknown': 1}, json.dumps({'type': 'start', 'command': ['cat'], 'attach': True}).encode())
        whole = pack(77, {}, b'unknown') + request + pack(protocol.DATA, {}, b'in') + pack(protocol.END, {})
        for at in range(1, len(whole)):
            peer = self.agent.accept('supervisor.sock')
            peer.socket.sendall(whole[:at])
            if at % 3 == 0:
                time.sleep(0.002)
            peer.socket.sendall(whole[at:])
            self.assertTrue(peer.response()['ok'])
            output = Output(peer)
            self.assertEqual((output.stdout, output.exit), (b'in', {'exitCode': 0, 'signal': ''}), at)
            peer.close()


class Outputs(Supervised):
    def test_what_nobody_reads_is_kept_up_to_a_mebibyte(self) -> None:
        self.begin()
        pid = self.start('sh', '-c', 'head -c 3000000 /dev/zero; printf end; echo other >&2')
        self.wait_end(pid)
        head, data = self.output(pid, stream='stdout', **{'from': 0})
        end = 3_000_003
        self.assertEqual((head['from'], head['next'], head['lostBytes']), (end - MIB, end, end - MIB))
        self.assertEqual((len(data), data[-4:]), (MIB, b'\0end'))
        self.assertEqual((head['running'], head['exitCode']), (False, 0))
        head, data = self.output(pid, stream='stdout', mostBytes=10, **{'from': end - 12})
        self.assertEqual((head['from'], head['next'], head['lostBytes'], data), (end - 12, end - 2, 0, b'\0' * 9 + b'e'))
        self.assertEqual(self.output(pid, stream='stderr')[1], b'other\n')
        attached = self.open(type='attach', pid=pid, stdout=5, stderr=2)
        answer = attached.response()
        self.assertEqual((answer['pid'], answer['running'], answer['terminal']), (pid, False, False))
        output = Output(attached)
        self.assertEqual((len(output.stdout), output.lost), (MIB, end - MIB + 2))
        self.assertEqual((output.text['stderr'], output.exit), (b'her\n', {'exitCode': 0, 'signal': ''}))

    def test_reads_of_what_is_new_return_each_byte_once(self) -> None:
        self.begin()
        pid = self.start('sh', '-c', 'echo one; exec sleep 1000')
        eventually(lambda: self.output(pid)[1] == b'one\n')
        head, data = self.output(pid, mostBytes=2, **{'from': -1})
        self.assertEqual((head['from'], head['next'], data), (0, 2, b'on'))
        self.assertEqual(self.output(pid, **{'from': -1})[1], b'e\n')
        head, data = self.output(pid, **{'from': -1})
        self.assertEqual((head['from'], head['next'], head['lostBytes'], data), (4, 4, 0, b''))
        self.assertEqual((head['running'], head['exitCode']), (True, -1))
        # Reads from a place do not count.
        self.assertEqual(self.output(pid, **{'from': 1})[1], b'ne\n')

    def test_only_what_comes_from_now_on(self) -> None:
        self.begin()
        peer = self.attached('sh', '-c', 'echo old; read x; echo new')
        Output(peer, until=b'old\n')
        late = self.open(type='attach', pid=self.pid, stdout=-1, stderr=-1)
        late.response()
        late.send(protocol.DATA, {}, b'go\n')
        output = Output(late)
        self.assertEqual(output.stdout, b'new\n')
        self.assertEqual(Output(peer).stdout, b'new\n')

    def test_a_program_waits_for_its_slowest_reader_and_loses_nothing(self) -> None:
        self.begin()
        size = 20 * MIB
        # Output from before the second reader came is kept for it up to a bound, so the program waits for both.
        peer = self.attached('sh', '-c', 'read go; head -c %d /dev/zero; echo end >&2' % size)
        other = self.open(type='attach', pid=self.pid, stdout=0, stderr=0)
        other.response()
        peer.send(protocol.DATA, {}, b'go\n')
        seen: List[Output] = []
        thread = threading.Thread(target=lambda: seen.append(Output(other)))
        thread.start()
        time.sleep(0.5)
        self.assertTrue(self.ask_ok(type='wait', pid=self.pid, timeoutMs=0)['running'])
        self.assertEqual(seen, [])
        output = Output(peer)
        thread.join()
        for one in (output, seen[0]):
            self.assertEqual((len(one.stdout), one.lost, one.text['stderr']), (size, 0, b'end\n'))

    def test_a_reader_that_takes_nothing_is_cut_off(self) -> None:
        self.begin(before='import longshore.supervisor.programs as p; p.STALL_SECONDS = 0.5')
        peer = self.attached('sh', '-c', 'head -c 9000000 /dev/zero')
        self.assertEqual(self.wait_end(self.pid)['exitCode'], 0)
        output = Output(peer)
        self.assertIsNone(output.exit)
        self.assertLess(len(output.stdout), 9_000_000)

    def test_a_reader_that_takes_little_is_not_cut_off(self) -> None:
        self.begin(before='import longshore.supervisor.programs as p; p.STALL_SECONDS = 1.5')
        peer = self.attached('sh', '-c', 'head -c 4000000 /dev/zero')
        taken = 0
        for _ in range(25):
            taken += len(peer.socket.recv(65536))
            time.sleep(0.1)
        data = b''
        while True:
            piece = peer.socket.recv(1 << 20)
            if not piece:
                break
            taken += len(piece)
            data = (data + piece)[-100:]
        self.assertIn(b'"exitCode":0', data)

    def test_much_output_goes_through_little_memory(self) -> None:
        self.begin()
        size = 100 * MIB
        peer = self.attached('cat')
        block = os.urandom(MIB)
        sent, received = hashlib.sha256(), hashlib.sha256()

        def send() -> None:
            for at in range(size // MIB):
                piece = block[at:] + block[:at]
                sent.update(piece)
                for begin in range(0, MIB, protocol.PIECE_BYTES):
                    peer.send(protocol.DATA, {}, piece[begin : begin + protocol.PIECE_BYTES])
            peer.send(protocol.END)

        before = resident_bytes(self.process.pid)
        thread = threading.Thread(target=send)
        thread.start()
        total, place, most, ended = 0, 0, 0, False
        for kind, header, body in peer.frames():
            if kind == protocol.DATA:
                self.assertEqual(header['at'], place)
                place += len(body)
                received.update(body)
                total += len(body)
                if total % (8 * MIB) < len(body):
                    most = max(most, resident_bytes(self.process.pid))
            ended = ended or kind == protocol.EXIT
        thread.join()
        self.assertEqual((total, received.hexdigest(), ended), (size, sent.hexdigest(), True))
        self.assertLess(most - before, 12 * MIB)

    def test_input_that_a_program_does_not_take_waits_at_its_sender(self) -> None:
        self.begin()
        self.run_to_end('true')
        before = resident_bytes(self.process.pid)
        peer = self.attached('sleep', '1000')
        peer.socket.settimeout(1.0)
        with self.assertRaises(socket.timeout):
            for _ in range(100):
                peer.send(protocol.DATA, {}, b'x' * protocol.PIECE_BYTES)
        self.assertLess(resident_bytes(self.process.pid) - before, 6 * MIB)
        self.ask_ok(type='kill', pid=self.pid)

    def test_counted_input_goes_on_where_it_was_lost(self) -> None:
        self.begin()
        go, piece = os.path.join(self.work, 'go'), os.urandom(64 * 1024)
        pieces = 64
        peer = self.attached('sh', '-c', 'until [ -e go ]; do sleep 0.01; done; exec sha256sum', input=True)
        # More than the program takes now: the rest is in the connection.
        frame, sent = pack(protocol.DATA, {}, piece), 0
        with self.assertRaises(socket.timeout):
            peer.socket.settimeout(1)
            while sent < pieces:
                peer.socket.sendall(frame)
                sent += 1
        again = self.open(type='attach', pid=self.pid, stdout=0, stderr=0, input=True)
        taken = again.response()['input']
        self.assertLess(taken, sent * len(piece))
        peer.socket.settimeout(SECONDS)
        with open(go, 'w'):
            pass
        whole = piece * pieces
        counts: List[Tuple[List[int], bytes]] = []
        reads = threading.Thread(target=lambda: counts.append(counted(again)))
        reads.start()
        for at in range(taken, len(whole), len(piece)):
            again.send(protocol.DATA, {}, whole[at : at + len(piece)])
        again.send(protocol.END)
        reads.join()
        told, out = counts[0]
        self.assertEqual(out.split()[0].decode(), hashlib.sha256(whole).hexdigest())
        self.assertEqual(told, sorted(told))
        self.assertGreater(len(told), (len(whole) - taken) // (512 * 1024))
        # The connection before was ended, so that its bytes do not come twice.
        self.assertEqual([frame for frame in peer.frames() if frame[0] == protocol.DATA], [])

    def test_input_that_is_not_counted_takes_nothing_over(self) -> None:
        self.begin()
        peer = self.attached('cat')
        other = self.open(type='attach', pid=self.pid, stdout=0, stderr=0)
        self.assertEqual(other.response()['input'], 0)
        other.send(protocol.DATA, {}, b'b\n')
        self.assertEqual(Output(other, b'b\n').stdout, b'b\n')
        peer.send(protocol.DATA, {}, b'a\n')
        peer.send(protocol.END)
        self.assertEqual(Output(peer).stdout, b'b\na\n')

    def test_input_behind_a_closed_one_is_dropped(self) -> None:
        self.begin()
        peer = self.attached('sh', '-c', 'exec <&-; echo closed; sleep 0.3; echo end')
        Output(peer, until=b'closed')
        for _ in range(20):
            peer.send(protocol.DATA, {}, b'x' * protocol.PIECE_BYTES)
        output = Output(peer)
        self.assertIn(b'end', output.stdout)
        self.assertEqual(output.exit, {'exitCode': 0, 'signal': ''})

    def test_many_small_outputs_do_not_cost_more_than_their_bytes(self) -> None:
        self.begin()
        self.run_to_end('true')
        before = resident_bytes(self.process.pid)
        pid = self.start('python3', '-c', 'import os\nfor _ in range(300000): os.write(1, b"abc")')
        self.wait_end(pid)
        self.assertEqual(self.output(pid)[0]['next'], 900_000)
        self.assertLess(resident_bytes(self.process.pid) - before, 8 * MIB)


class Ends(Supervised):
    def assert_gone(self, group: int) -> None:
        def is_gone() -> bool:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return True
            return False

        eventually(is_gone)

    def test_signals_go_to_the_group_and_are_told(self) -> None:
        self.begin()
        for name, number in (('TERM', 15), ('SIGKILL', 9), ('int', 2), (None, 9)):
            peer = self.attached('sh', '-c', 'sleep 1000 & echo up; wait')
            Output(peer, until=b'up')
            more = {} if name is None else {'signal': name}
            self.ask_ok(type='kill', pid=self.pid, **more)
            told = signal.Signals(number).name[3:]
            if name == 'int':
                self.ask_ok(type='kill', pid=self.pid)  # sh waits for a sleep that ignores it
                Output(peer)
                continue
            self.assertEqual(Output(peer).exit, {'exitCode': 128 + number, 'signal': told})
            self.assert_gone(self.pid)
        # A kill of one that ended is no error.
        self.ask_ok(type='kill', pid=self.pid)

    def test_a_control_frame_sends_signals(self) -> None:
        self.begin()
        peer = self.attached(*FOREVER)
        Output(peer, until=b'up')
        peer.send(protocol.CONTROL, {'signal': 'NONSENSE'})
        peer.send(protocol.CONTROL, {'signal': 'USR1'})
        self.assertEqual(Output(peer).exit, {'exitCode': 128 + 10, 'signal': 'USR1'})

    def test_wait_waits_so_long(self) -> None:
        self.begin()
        peer = self.attached('sh', '-c', 'read x; exit 9')
        answer = self.ask_ok(type='wait', pid=self.pid, timeoutMs=50)
        self.assertEqual((answer['running'], answer['exitCode']), (True, -1))
        waiting = self.open(type='wait', pid=self.pid, timeoutMs=60_000)
        gone = self.open(type='wait', pid=self.pid, timeoutMs=60_000)
        gone.close()
        self.assertFalse(readable(waiting.socket, 0.2))
        peer.send(protocol.DATA, {}, b'x\n')
        answer = waiting.response()
        self.assertEqual((answer['running'], answer['exitCode']), (False, 9))

    def test_what_a_program_leaves_behind_does_not_keep_its_end_and_goes_on(self) -> None:
        self.begin()
        peer = self.attached('sh', '-c', '(sleep 1; echo later; sleep 1; echo still > still) & echo now')
        output = Output(peer)
        self.assertEqual((output.stdout, output.exit), (b'now\n', {'exitCode': 0, 'signal': ''}))
        pid = self.pid
        eventually(lambda: self.output(pid)[1] == b'now\nlater\n')
        eventually(lambda: os.path.exists(self.work + '/still'))

    def test_output_before_the_end_comes_before_it(self) -> None:
        self.begin()
        for terminal in (None, TERMINAL):
            for _ in range(20):
                output = self.run_to_end('python3', '-S', '-c', 'import os; os.write(1, b"x" * 3000); os._exit(4)', terminal=terminal)
                self.assertEqual((output.stdout, output.exit), (b'x' * 3000, {'exitCode': 4, 'signal': ''}))

    def test_the_oldest_that_ended_are_forgotten(self) -> None:
        self.begin(before='import longshore.supervisor.programs as p; p.MOST_ENDED = 3')
        running = self.start(*FOREVER)
        left = self.attached('sh', '-c', '(sleep 0.5; echo written; echo alive > alive) & exit 0')
        Output(left)
        pids = []
        for _ in range(5):
            pids.append(self.start('true'))
            self.wait_end(pids[-1])
        listed = self.ask_ok(type='processes')['processes']
        self.assertEqual(len(listed), 4)
        self.assertIn(running, [one['pid'] for one in listed])
        self.assertIn(pids[-1], [one['pid'] for one in listed])
        self.refused('not_found', 'forgotten', type='output', pid=pids[0])
        eventually(lambda: os.path.exists(self.work + '/alive'))

    def test_those_that_ended_keep_so_many_bytes(self) -> None:
        self.begin(before='import longshore.supervisor.programs as p; p.MOST_ENDED_BYTES = 2500')
        pids = [self.start('head', '-c', '1000', '/dev/zero') for _ in range(3)]
        for pid in pids:
            self.ask(type='wait', pid=pid, timeoutMs=30_000)
        self.assertEqual(len(self.ask_ok(type='processes')['processes']), 2)

    def test_so_many_programs_run(self) -> None:
        self.begin(before='import longshore.supervisor.programs as p; p.MOST_RUNNING = 3')
        pids = [self.start('sleep', '1000') for _ in range(3)]
        self.refused('too_many_processes', '3', type='start', command=['true'])
        self.ask_ok(type='kill', pid=pids[0])
        self.wait_end(pids[0])
        self.start('true')

    def test_a_connection_that_breaks_leaves_the_program_running(self) -> None:
        self.begin()
        peer = self.attached('sh', '-c', 'echo one; read x; echo "got $x"')
        Output(peer, until=b'one\n')
        peer.close()
        back = self.open(type='attach', pid=self.pid, stdout=4, stderr=0)
        self.assertTrue(back.response()['running'])
        back.send(protocol.DATA, {}, b'word\n')
        output = Output(back)
        self.assertEqual(output.stdout, b'got word\n')

    def test_no_zombie_stays_and_no_file_stays_open(self) -> None:
        self.begin()
        self.run_to_end('true')
        before = len(os.listdir('/proc/%d/fd' % self.process.pid))
        for _ in range(30):
            self.run_to_end('sh', '-c', 'true')
            self.run_to_end('true', terminal=TERMINAL)
            self.ask(type='stat', path='/')
        eventually(lambda: children_of(self.process.pid) == [])
        eventually(lambda: len(os.listdir('/proc/%d/fd' % self.process.pid)) <= before + 1)

    def test_the_request_to_end_ends_programs_that_ignore_it_too(self) -> None:
        self.begin()
        self.start(*FOREVER)
        peer = self.attached('sh', '-c', "trap '' TERM; echo up; while :; do sleep 1; done")
        Output(peer, until=b'up')
        stubborn = self.pid
        self.ask_ok(type='end')
        self.assertEqual(self.process.wait(SECONDS), 0)
        self.assert_gone(stubborn)


class Entrypoint(Supervised):
    def test_it_is_found_as_number_0(self) -> None:
        self.begin(entrypoint=['sh', '-c', 'echo begun; sleep 1000'])
        eventually(lambda: self.ask(type='wait', pid=0, timeoutMs=0)['ok'])
        peer = self.open(type='attach', pid=0, stdout=0, stderr=0)
        self.assertGreater(peer.response()['pid'], 0)
        self.assertEqual(Output(peer, until=b'begun').stdout, b'begun\n')

    def test_there_may_be_none(self) -> None:
        self.begin()
        self.refused('not_found', type='attach', pid=0, stdout=0, stderr=0)


class Terminals(Supervised):
    def shell(self) -> Peer:
        peer = self.attached('bash', '--norc', '--noprofile', '-i', terminal=TERMINAL, env={'PS1': 'ready> ', 'TERM': 'dumb'})
        Output(peer, until=b'ready> ')
        return peer

    def test_a_terminal_has_a_size_and_tells_of_another(self) -> None:
        self.begin()
        script = "trap 'stty size' WINCH; stty size; tty; echo up; while :; do sleep 0.05; done"
        peer = self.attached('bash', '-c', script, terminal=TERMINAL)
        output = Output(peer, until=b'up')
        self.assertIn(b'30 90\r\n/dev/pts/', output.stdout)
        peer.send(protocol.CONTROL, {'rows': 0, 'columns': 9})
        peer.send(protocol.CONTROL, {'rows': 11, 'columns': 22})
        self.assertIn(b'11 22', Output(peer, until=b'11 22').stdout)
        attached = self.open(type='attach', pid=self.pid, stdout=-1, stderr=-1)
        self.assertTrue(attached.response()['terminal'])
        self.ask_ok(type='kill', pid=self.pid)
        self.assertEqual(Output(peer).exit, {'exitCode': 137, 'signal': 'KILL'})

    def test_the_terminal_is_the_programs_own_and_has_one_stream(self) -> None:
        self.begin()
        output = self.run_to_end('bash', '-c', 'echo out > /dev/tty; echo err >&2; echo $TERM; test -t 0', terminal=TERMINAL)
        self.assertEqual(output.stdout, b'out\r\nerr\r\nxterm-256color\r\n')
        self.assertEqual((output.text['stderr'], output.exit), (b'', {'exitCode': 0, 'signal': ''}))

    def test_control_c_is_the_line_disciplines(self) -> None:
        self.begin()
        peer = self.shell()
        peer.send(protocol.DATA, {}, b'echo be""gin; sleep 1000\n')
        Output(peer, until=b'begin')
        time.sleep(0.2)
        peer.send(protocol.DATA, {}, b'\x03')
        Output(peer, until=b'ready> ')
        peer.send(protocol.DATA, {}, b'echo $?-code\n')
        # The end of input counts at the prompt: bash would read an earlier one as a character.
        Output(peer, until=b'130-code\r\nready> ')
        peer.send(protocol.END)
        self.assertEqual(Output(peer).exit, {'exitCode': 0, 'signal': ''})

    def test_a_signal_reaches_what_runs_in_front(self) -> None:
        self.begin()
        peer = self.shell()
        peer.send(protocol.DATA, {}, b'echo be""gin; sleep 1000; echo $?-code\n')
        Output(peer, until=b'begin')
        time.sleep(0.2)
        peer.send(protocol.CONTROL, {'signal': 'TERM'})
        Output(peer, until=b'143-code')

    def test_hanging_up_ends_the_session(self) -> None:
        self.begin()
        peer = self.shell()
        peer.send(protocol.DATA, {}, b'sleep 1000 & echo job-$!-e""nd\n')
        text = Output(peer, until=b'-end\r\nready> ').stdout
        job = int(text.split(b'job-')[-1].split(b'-')[0])
        # Until it has become `sleep` it is a copy of the shell, whose handler would lose the signal.
        eventually(lambda: open('/proc/%d/comm' % job).read() == 'sleep\n')
        peer.send(protocol.CONTROL, {'signal': 'HUP'})
        peer.send(protocol.END)
        exit = Output(peer).exit
        assert exit is not None
        self.assertEqual((exit['exitCode'], exit['signal']), (129, 'HUP'))
        eventually(lambda: not os.path.exists('/proc/%d' % job) or 'Z' in open('/proc/%d/stat' % job).read().split()[2])

    def test_a_hung_up_program_still_has_its_terminal_for_a_moment(self) -> None:
        self.begin()
        script = "trap 'stty size > size; exit 7' HUP; echo up; while :; do sleep 0.05; done"
        peer = self.attached('bash', '-c', script, terminal=TERMINAL)
        Output(peer, until=b'up')
        peer.send(protocol.CONTROL, {'signal': 'HUP'})
        peer.send(protocol.END)
        self.assertEqual(Output(peer).exit, {'exitCode': 7, 'signal': ''})
        with open(self.work + '/size') as file:
            self.assertEqual(file.read(), '30 90\n')

    def test_a_terminal_that_nobody_comes_back_to_is_hung_up(self) -> None:
        self.begin()
        peer = self.attached('cat', terminal={}, hangUpAfterMs=1500)
        peer.close()
        # Somebody who comes back in time stops the wait, and begins another when leaving.
        back = self.open(type='attach', pid=self.pid, stdout=0, stderr=0)
        self.assertTrue(back.response()['running'])
        time.sleep(2)
        self.assertTrue(self.ask_ok(type='wait', pid=self.pid, timeoutMs=0)['running'])
        back.close()
        self.assertEqual(self.wait_end(self.pid)['exitCode'], 129)

    def test_a_program_that_ignores_the_signal_reads_the_end(self) -> None:
        self.begin()
        script = "trap '' HUP; echo up; cat; echo gone > gone"
        peer = self.attached('bash', '-c', script, terminal=TERMINAL)
        Output(peer, until=b'up')
        peer.send(protocol.CONTROL, {'signal': 'HUP'})
        peer.send(protocol.END)
        self.assertIsNotNone(Output(peer).exit)
        self.assertTrue(os.path.exists(self.work + '/gone'))

    def test_a_terminal_that_is_left_is_found_again(self) -> None:
        self.begin()
        peer = self.shell()
        peer.send(protocol.DATA, {}, b'value=kept\n')
        seen = Output(peer, until=b'ready> ')
        peer.close()
        back = self.open(type='attach', pid=self.pid, stdout=0)
        self.assertEqual(back.response()['terminal'], True)
        back.send(protocol.DATA, {}, b'echo $value-there; exit 6\n')
        output = Output(back)
        self.assertIn(b'kept-there', output.stdout)
        self.assertTrue(output.stdout.startswith(b'ready> '), output.stdout)
        self.assertIn(seen.stdout, output.stdout)
        self.assertEqual(output.exit, {'exitCode': 6, 'signal': ''})


if __name__ == '__main__':
    unittest.main()
