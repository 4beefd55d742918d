"""Files by the supervisor: facts, lists, bytes, archives, patterns; and what is refused."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import tarfile
import time
import unittest
from typing import Any, Dict, List, Optional

from longshore.runner import protocol
from longshore.supervisor.wrongs import of_os_error

from .supervised import Supervised, eventually

ODD = ['a b', 'ü 漢字', '-rf', 'line\nbreak', '"quoted"\\', '.hidden', '\udcff\udcfe']


class Files(Supervised):
    def setUp(self) -> None:
        super().setUp()
        self.begin()

    def again(self, before: str) -> None:
        """Another supervisor takes the place of the first."""
        self.process.kill()
        self.process.wait()
        self.agent.close()
        self.agent.listen()
        self.begin(before=before)

    def at(self, name: str) -> str:
        return os.path.join(self.work, name)

    def make(self, name: str, data: bytes = b'') -> str:
        path = self.at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as file:
            file.write(data)
        return path

    def bytes_of(self, name: str) -> bytes:
        with open(self.at(name), 'rb') as file:
            return file.read()

    def write(self, data: bytes, **request: Any) -> Dict[str, Any]:
        peer = self.open(type='write', **request)
        for at in range(0, len(data), protocol.PIECE_BYTES):
            peer.send(protocol.DATA, {}, data[at : at + protocol.PIECE_BYTES])
        peer.send(protocol.END)
        answer = peer.response()
        peer.close()
        return answer

    def read(self, **request: Any) -> bytes:
        peer = self.open(type='read', **request)
        self.assertTrue(peer.response()['ok'])
        data = peer.data()
        peer.close()
        return data

    def unpack(self, archive: bytes, path: str) -> Dict[str, Any]:
        peer = self.open(type='unpack', path=path)
        for at in range(0, len(archive), 100_000):
            peer.send(protocol.DATA, {}, archive[at : at + 100_000])
        peer.send(protocol.END)
        answer = peer.response()
        peer.close()
        return answer

    def pack(self, path: str) -> bytes:
        peer = self.open(type='pack', path=path)
        self.assertTrue(peer.response()['ok'])
        data = peer.data()
        peer.close()
        return data

    def left(self) -> List[str]:
        """Temporary files that stayed."""
        return [name for _, _, names in os.walk(self.work) for name in names if name.startswith('.longshore-')]


class Entries(Files):
    def test_facts_are_those_of_ls(self) -> None:
        self.make('file', b'12345')
        os.chmod(self.at('file'), 0o4751)
        os.utime(self.at('file'), (1000, 1000.25))
        entry = self.ask_ok(type='stat', path='file')['entry']
        self.assertEqual((entry['name'], entry['size'], entry['mode'], entry['modTimeMs']), ('file', 5, 0o4751, 1_000_250))
        self.assertEqual((entry['permissions'], entry['isDir'], entry['isLink']), ('-rwsr-x--x', False, False))
        os.mkdir(self.at('folder'))
        os.symlink('folder', self.at('link'))
        os.symlink('nowhere', self.at('broken'))
        entry = self.ask_ok(type='stat', path=self.at('link'))['entry']
        self.assertEqual((entry['isDir'], entry['isLink'], entry['permissions']), (True, True, 'lrwxrwxrwx'))
        entry = self.ask_ok(type='stat', path='broken')['entry']
        self.assertEqual((entry['isDir'], entry['isLink']), (False, True))
        entry = self.ask_ok(type='stat', path='/etc/passwd')['entry']
        self.assertEqual((entry['owner'], entry['group']), ('root', 'root'))
        os.chown(self.at('file'), 54_321, 54_322)
        entry = self.ask_ok(type='stat', path='file')['entry']
        self.assertEqual((entry['owner'], entry['group']), ('54321', '54322'))
        self.assertEqual(self.ask_ok(type='stat', path='/')['entry']['name'], '/')
        self.assertEqual(self.ask_ok(type='stat', path='folder/')['entry']['name'], 'folder')

    def test_paths_that_are_none(self) -> None:
        self.make('file')
        for kind in ('stat', 'list', 'read', 'pack', 'remove', 'mkdir', 'find', 'move', 'write', 'unpack'):
            for path in (None, '', 5, 'a\0b', 'x' * 5000, '\ud800'):
                self.refused('bad_request', 'path', type=kind, path=path, pattern='x')
        for kind in ('stat', 'list', 'read', 'pack', 'remove', 'find', 'move'):
            self.refused('not_found', 'no/such', type=kind, path='no/such', pattern='x', newPath='y')
            self.refused('not_a_directory', 'file/x', type=kind, path='file/x', pattern='x', newPath='y')
            self.refused('bad_request', 'x' * 200, type=kind, path='x' * 300, pattern='x', newPath='y')
        self.refused('not_a_directory', 'file', type='list', path='file')
        self.assertEqual(sorted(os.listdir(self.work)), ['file'])

    def test_a_list_is_in_order_and_bounded(self) -> None:
        for name in ODD:
            self.make('odd/' + name)
        answer = self.ask_ok(type='list', path='odd')
        self.assertEqual([one['name'] for one in answer['entries']], sorted(ODD))
        self.assertFalse(answer['more'])
        os.mkdir(self.at('many'))
        for number in range(3000):
            os.close(os.open(self.at('many/' + 'n' * 200 + '%05d' % number), os.O_CREAT))
        answer = self.ask_ok(type='list', path='many')
        names = [one['name'] for one in answer['entries']]
        self.assertTrue(answer['more'])
        self.assertGreater(len(names), 1000)
        self.assertEqual(names, sorted(os.listdir(self.at('many')))[: len(names)])
        self.assertEqual(self.ask_ok(type='list', path='odd/..')['entries'][0]['name'], 'many')

    def test_a_list_has_so_many_entries(self) -> None:
        os.mkdir(self.at('many'))
        for number in range(10_001):
            os.close(os.open(self.at('many/%d' % number), os.O_CREAT))
        answer = self.ask_ok(type='list', path='many')
        self.assertTrue(answer['more'])
        self.assertLessEqual(len(answer['entries']), 10_000)

    def test_making_removing_and_moving(self) -> None:
        self.ask_ok(type='mkdir', path='one', mode=0o700)
        self.assertEqual(stat.S_IMODE(os.stat(self.at('one')).st_mode), 0o700)
        self.refused('exists', 'one', type='mkdir', path='one')
        self.refused('not_found', 'x/y', type='mkdir', path='x/y')
        self.ask_ok(type='mkdir', path='x/y/z', parents=True)
        self.ask_ok(type='mkdir', path='x/y/z', parents=True)
        self.make('x/y/file', b'1')
        self.refused('exists', 'file', type='mkdir', path='x/y/file', parents=True)
        self.refused('bad_request', 'mode', type='mkdir', path='new', mode=0o10000)
        self.refused('not_empty', 'x', type='remove', path='x')
        self.refused('not_found', 'gone', type='remove', path='gone')
        self.ask_ok(type='move', path='x/y/file', newPath='moved')
        self.assertEqual(self.bytes_of('moved'), b'1')
        self.make('target', b'old')
        self.ask_ok(type='move', path='moved', newPath='target')
        self.assertEqual(self.bytes_of('target'), b'1')
        self.refused('is_a_directory', 'x', type='move', path='target', newPath='x')
        self.refused('not_a_directory', 'target', type='move', path='x', newPath='target')
        self.refused('not_empty', 'x', type='move', path='one', newPath='x')
        self.refused('not_found', 'no/such', type='move', path='target', newPath='no/such/name')
        self.refused('bad_request', 'newPath', type='move', path='target')
        self.refused('bad_request', 'itself', type='move', path='x', newPath='x/y/z/x')
        self.ask_ok(type='remove', path='one')
        self.ask_ok(type='remove', path='x', recursive=True)
        self.ask_ok(type='remove', path='target')
        self.assertEqual(os.listdir(self.work), [])
        self.refused('bad_request', 'root', type='remove', path='/', recursive=True)
        self.refused('bad_request', 'root', type='remove', path='../../../../..', recursive=True)

    def test_a_removal_follows_no_link(self) -> None:
        self.make('kept/file', b'1')
        os.symlink(self.at('kept'), self.at('link'))
        os.mkdir(self.at('folder'))
        os.symlink(self.at('kept'), self.at('folder/inner'))
        self.ask_ok(type='remove', path='folder', recursive=True)
        self.ask_ok(type='remove', path='link/', recursive=True)
        self.assertEqual((os.listdir(self.work), self.bytes_of('kept/file')), (['kept'], b'1'))

    def test_moves_to_another_file_system(self) -> None:
        other = '/dev/shm/longshore-%d' % os.getpid()
        self.make('folder/file', b'1')
        os.symlink('file', self.at('folder/link'))
        self.ask_ok(type='move', path='folder', newPath=other)
        try:
            self.assertEqual((os.listdir(self.work), sorted(os.listdir(other))), ([], ['file', 'link']))
            self.ask_ok(type='move', path=other + '/file', newPath='back')
            self.assertEqual(self.bytes_of('back'), b'1')
            self.assertTrue(os.path.islink(other + '/link'))
        finally:
            self.ask_ok(type='remove', path=other, recursive=True)


class Bytes(Files):
    def test_a_file_is_read_whole_and_in_part(self) -> None:
        data = os.urandom(1_500_000)
        self.make('file', data)
        os.chmod(self.at('file'), 0o640)
        peer = self.open(type='read', path='file', offset=0, length=-1)
        answer = peer.response()
        self.assertEqual((answer['size'], answer['mode']), (len(data), 0o640))
        self.assertEqual(peer.data(), data)
        self.assertEqual(self.read(path='file', offset=1_000_000, length=300_000), data[1_000_000:1_300_000])
        self.assertEqual(self.read(path='file', offset=1_499_999, length=10), data[-1:])
        self.assertEqual(self.read(path='file', offset=2_000_000), b'')
        self.assertEqual(self.read(path='file', length=0), b'')
        self.make('empty')
        self.assertEqual(self.read(path='empty'), b'')
        self.assertIn(b'Linux', self.read(path='/proc/version'))
        self.refused('is_a_directory', 'work', type='read', path='.')
        self.refused('bad_request', 'ordinary', type='read', path='/dev/zero')
        self.refused('bad_request', 'offset', type='read', path='file', offset=-1)
        self.refused('bad_request', 'length', type='read', path='file', length=-2)
        os.mkfifo(self.at('pipe'))
        self.refused('bad_request', 'ordinary', type='read', path='pipe')

    def test_a_file_is_written_with_its_mode(self) -> None:
        data = os.urandom(1_500_000)
        self.assertEqual(self.write(data, path='file', mode=0o754)['size'], len(data))
        self.assertEqual((self.bytes_of('file'), stat.S_IMODE(os.stat(self.at('file')).st_mode)), (data, 0o754))
        # Another write keeps what it does not name.
        os.chown(self.at('file'), 54_321, 54_322)
        self.write(b'new', path='file')
        found = os.stat(self.at('file'))
        self.assertEqual((self.bytes_of('file'), stat.S_IMODE(found.st_mode)), (b'new', 0o754))
        self.assertEqual((found.st_uid, found.st_gid), (54_321, 54_322))
        self.assertEqual(self.write(b'', path='empty')['size'], 0)
        umask = os.umask(0)
        os.umask(umask)
        self.assertEqual(stat.S_IMODE(os.stat(self.at('empty')).st_mode), 0o666 & ~umask)
        for name in ODD:
            self.assertTrue(self.write(name.encode('utf-8', 'surrogateescape'), path='odd/' + name, parents=True)['ok'])
        self.assertEqual(sorted(os.listdir(self.at('odd'))), sorted(ODD))
        self.assertEqual(self.left(), [])

    def test_writes_that_fail_change_nothing(self) -> None:
        self.make('file', b'old')
        os.mkdir(self.at('folder'))
        self.assertEqual(self.write(b'x', path='no/such')['code'], 'not_found')
        self.assertEqual(self.write(b'x', path='folder')['code'], 'is_a_directory')
        self.assertEqual(self.write(b'x', path='folder/')['code'], 'is_a_directory')
        self.assertEqual(self.write(b'x', path='folder', append=True)['code'], 'is_a_directory')
        self.assertEqual(self.write(b'x', path='file/x', parents=True)['code'], 'exists')
        self.assertEqual(self.write(b'x', path='file', mode='rw')['code'], 'bad_request')
        self.assertEqual(self.write(b'x', path='/dev/null')['code'], 'bad_request')
        self.assertEqual(self.write(b'x', path='/proc/nothing')['code'], 'not_found')
        self.assertEqual(self.bytes_of('file'), b'old')
        self.assertEqual(self.left(), [])

    def test_a_cut_connection_leaves_the_old_file(self) -> None:
        self.make('file', b'old')
        for append in (False, True):
            for path in ('file', 'new'):
                peer = self.open(type='write', path=path, append=append)
                for _ in range(3):
                    peer.send(protocol.DATA, {}, b'x' * 200_000)
                if not append:
                    eventually(lambda: self.left() != [])
                peer.close()
                eventually(lambda: self.left() == [])
                eventually(lambda: os.listdir(self.work) == ['file'])
                eventually(lambda: self.bytes_of('file') == b'old')

    def test_appends_and_links(self) -> None:
        self.assertEqual(self.write(b'one', path='log', append=True)['size'], 3)
        self.assertEqual(self.write(b'two', path='log', append=True, mode=0o600)['size'], 6)
        self.assertEqual((self.bytes_of('log'), stat.S_IMODE(os.stat(self.at('log')).st_mode)), (b'onetwo', 0o600))
        os.symlink('log', self.at('link'))
        self.write(b'through', path='link')
        self.assertEqual((self.bytes_of('log'), os.readlink(self.at('link'))), (b'through', 'log'))

    def test_errors_of_the_kernel_have_codes(self) -> None:
        numbers = {errno.ENOSPC: 'no_space', errno.EDQUOT: 'no_space', errno.EROFS: 'denied', errno.EACCES: 'denied', errno.EIO: 'failed'}
        for number, code in numbers.items():
            wrong = of_os_error(OSError(number, ''), '/a/path')
            self.assertEqual((wrong.code, wrong.text), (code, '/a/path: ' + os.strerror(number)))

    def test_a_file_that_may_not_become_so_large(self) -> None:
        self.again(before='import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))')
        self.make('file', b'old')
        self.assertEqual(self.write(b'x' * 200_000, path='file')['code'], 'too_large')
        self.assertEqual(self.write(b'x' * 200_000, path='file', append=True)['code'], 'too_large')
        self.assertEqual((self.bytes_of('file'), self.left()), (b'old', []))

    def test_reading_and_writing_does_not_keep_others_waiting(self) -> None:
        self.make('large', b'x' * 5_000_000)
        slow = [self.open(type='read', path='large') for _ in range(5)]
        for peer in slow:
            peer.response()
        writes = [self.open(type='write', path='w%d' % number) for number in range(5)]
        began = time.monotonic()
        self.assertEqual(self.run_to_end('echo', 'hello').stdout, b'hello\n')
        self.assertEqual(self.ask_ok(type='stat', path='large')['entry']['size'], 5_000_000)
        self.assertLess(time.monotonic() - began, 20)
        for peer in slow:
            self.assertEqual(len(peer.data()), 5_000_000)
        for peer in writes:
            peer.send(protocol.END)
            self.assertEqual(peer.response()['size'], 0)


class Archives(Files):
    def test_a_directory_comes_back_as_it_was(self) -> None:
        for name in ODD:
            self.make('tree/' + name, name.encode('utf-8', 'surrogateescape'))
        self.make('tree/deep/' + 'n' * 120 + '/' + 'm' * 120 + '/large', os.urandom(700_000))
        os.chmod(self.at('tree/a b'), 0o751)
        os.utime(self.at('tree/a b'), (1234, 1234))
        os.symlink('/usr/bin/env', self.at('tree/link'))
        os.symlink('deep', self.at('tree/inner'))
        os.link(self.at('tree/a b'), self.at('tree/same'))
        os.mkfifo(self.at('tree/pipe'))
        os.mkdir(self.at('tree/closed'), 0o500)
        archive = self.pack('tree')
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            names = tar.getnames()
        self.assertEqual(names[0], 'tree')
        self.assertIn('tree/same', names)
        self.assertNotIn('tree/pipe', names)
        self.assertTrue(self.unpack(archive, 'back/here')['ok'])
        os.unlink(self.at('tree/pipe'))
        for folder, folders, files in os.walk(self.at('tree')):
            twin = self.at('back/here/tree') + folder[len(self.at('tree')) :]
            self.assertEqual(sorted(os.listdir(twin)), sorted(folders + files))
            self.assertEqual(stat.S_IMODE(os.stat(twin).st_mode), stat.S_IMODE(os.stat(folder).st_mode))
            for name in files:
                one, other = os.path.join(folder, name), os.path.join(twin, name)
                if os.path.islink(one):
                    self.assertEqual(os.readlink(one), os.readlink(other))
                    continue
                with open(one, 'rb') as left, open(other, 'rb') as right:
                    self.assertEqual(left.read(), right.read())
                self.assertEqual(stat.S_IMODE(os.stat(one).st_mode), stat.S_IMODE(os.stat(other).st_mode))
                self.assertEqual(int(os.stat(one).st_mtime), int(os.stat(other).st_mtime))
        self.assertEqual(os.stat(self.at('back/here/tree/same')).st_nlink, 2)
        self.assertEqual(self.left(), [])

    def test_one_file_is_packed_and_others_are_refused(self) -> None:
        self.make('file', b'data')
        with tarfile.open(fileobj=io.BytesIO(self.pack('file'))) as tar:
            self.assertEqual(tar.getnames(), ['file'])
        self.refused('bad_request', 'null', type='pack', path='/dev/null')

    def tar(self, *infos: Any) -> bytes:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode='w') as tar:
            for name, kind, link, data in infos:
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.size = kind, link, len(data)
                tar.addfile(info, io.BytesIO(data))
        return made.getvalue()

    def test_entries_that_lead_outside_are_refused(self) -> None:
        self.make('outside/kept', b'kept')
        os.mkdir(self.at('to'))
        os.symlink(self.at('outside'), self.at('to/link'))
        plain, sym, hard = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
        cases = [
            ('bad_request', [('../outside/kept', plain, '', b'x')]),
            ('bad_request', [('a/../../outside/kept', plain, '', b'x')]),
            ('bad_request', [(self.at('outside/kept'), plain, '', b'x')]),
            ('bad_request', [('hard', hard, '../outside/kept', b'')]),
            ('bad_request', [('hard', hard, self.at('outside/kept'), b'')]),
            ('bad_request', [('hard', hard, 'nothing', b'')]),
            ('bad_request', [('..', tarfile.DIRTYPE, '', b'')]),
            ('not_a_directory', [('link/kept', plain, '', b'x')]),
            ('not_a_directory', [('link', tarfile.DIRTYPE, '', b'')]),
            ('not_a_directory', [('mine', sym, '../outside', b''), ('mine/kept', plain, '', b'x')]),
            ('not_a_directory', [('hard', hard, 'link/kept', b'')]),
            ('bad_request', [('device', tarfile.CHRTYPE, '', b'')]),
            ('bad_request', [('device', tarfile.BLKTYPE, '', b'')]),
            ('bad_request', [('pipe', tarfile.FIFOTYPE, '', b'')]),
            ('is_a_directory', [('d/x', plain, '', b'1'), ('d', plain, '', b'2')]),
        ]
        for code, infos in cases:
            answer = self.unpack(self.tar(*infos), 'to')
            self.assertEqual((answer['ok'], answer.get('code')), (False, code), (infos, answer))
            self.assertEqual((os.listdir(self.at('outside')), self.bytes_of('outside/kept')), (['kept'], b'kept'))
        # A link is replaced, not followed.
        self.assertTrue(self.unpack(self.tar(('link', plain, '', b'file')), 'to')['ok'])
        self.assertEqual((self.bytes_of('to/link'), self.bytes_of('outside/kept')), (b'file', b'kept'))
        self.assertEqual(self.left(), [])

    def test_bytes_that_are_no_archive(self) -> None:
        for data in (b'', b'x' * 5000, self.tar(('file', tarfile.REGTYPE, '', b'y' * 5000))[:2000]):
            self.assertEqual(self.unpack(data, 'to')['code'], 'bad_request')
        self.make('file')
        self.assertEqual(self.unpack(self.tar(), 'file')['code'], 'exists')
        self.assertEqual(self.left(), [])

    def test_neither_setuid_nor_an_owner_is_taken_over(self) -> None:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode='w') as tar:
            info = tarfile.TarInfo('tool')
            info.mode, info.uid, info.gid = 0o4755, 54_321, 54_321
            tar.addfile(info)
        self.assertTrue(self.unpack(made.getvalue(), 'to')['ok'])
        found = os.stat(self.at('to/tool'))
        self.assertEqual((stat.S_IMODE(found.st_mode), found.st_uid), (0o755, os.geteuid()))


class Patterns(Files):
    def search(self, kind: str = 'find', **request: Any) -> Dict[str, Any]:
        return self.ask_ok(type=kind, path='.', **request)

    def test_matches_have_their_places(self) -> None:
        self.make('one.txt', 'first\nsecönd word word\r\nlast'.encode())
        self.make('below/two.txt', b'word')
        self.make('binary', b'word\0')
        self.make('latin', 'w\u00f6rd word'.encode('latin-1'))
        os.symlink('one.txt', self.at('link'))
        answer = self.search(pattern='w[o]rd')
        self.assertFalse(answer['more'])
        found = {os.path.relpath(one['path'], self.work): one['matches'] for one in answer['results']}
        self.assertEqual(sorted(found), ['below/two.txt', 'one.txt'])
        places = [(one['range']['start'], one['range']['end'], one['content']) for one in found['one.txt']]
        self.assertEqual(
            places,
            [
                ({'line': 2, 'column': 8}, {'line': 2, 'column': 12}, 'secönd word word'),
                ({'line': 2, 'column': 13}, {'line': 2, 'column': 17}, 'secönd word word'),
            ],
        )
        one = self.ask_ok(type='find', path='one.txt', pattern='^last$')
        self.assertEqual(one['results'][0]['matches'][0]['range']['start'], {'line': 3, 'column': 1})
        self.refused('bad_request', 'pattern', type='find', path='.', pattern='(')
        self.refused('bad_request', 'pattern', type='find', path='.')
        self.refused('bad_request', 'most', type='find', path='.', pattern='x', most=0)

    def test_texts_are_replaced_and_modes_stay(self) -> None:
        self.make('one', b'a word\r\na word\nnone')
        os.chmod(self.at('one'), 0o741)
        self.make('two', b'none')
        before = os.stat(self.at('two')).st_ino
        answer = self.search('replace', pattern='w(or)d', newString=r'\1\n')
        self.assertEqual([len(one['matches']) for one in answer['results']], [2])
        self.assertEqual(self.bytes_of('one'), b'a \\1\\n\r\na \\1\\n\nnone')
        self.assertEqual(stat.S_IMODE(os.stat(self.at('one')).st_mode), 0o741)
        self.assertEqual(os.stat(self.at('two')).st_ino, before)
        self.refused('bad_request', 'newString', type='replace', path='.', pattern='x')
        self.assertEqual(self.left(), [])

    def test_bounds_tell_that_there_is_more(self) -> None:
        self.make('many', b'x' * 20_000)
        answer = self.search(pattern='x')
        self.assertEqual((sum(len(one['matches']) for one in answer['results']), answer['more']), (0, True))
        self.make('many', b'x\n' * 20_000)
        answer = self.search(pattern='x', most=7)
        self.assertEqual((sum(len(one['matches']) for one in answer['results']), answer['more']), (7, True))
        self.make('large', b'y' * (10 * 1024 * 1024 + 1))
        self.assertEqual(self.search(pattern='y')['results'], [])
        answer = self.search('replace', pattern='x', newString='z', most=7)
        self.assertEqual((answer['more'], self.bytes_of('many')), (True, b'x\n' * 20_000))

    def test_a_pattern_that_takes_for_ever_is_left_and_nothing_else_waits(self) -> None:
        self.make('bad', b'a' * 60)
        peer = self.open(type='find', path='.', pattern='(a+)+$x|(a|aa)+y')
        self.assertEqual(self.run_to_end('echo', 'hello').stdout, b'hello\n')
        answer = peer.response()
        self.assertEqual((answer['ok'], answer['more'], answer['results']), (True, True, []))


class Connections(Files):
    def test_more_connections_than_may_be_wait(self) -> None:
        self.again(before='import longshore.supervisor.requests as r; r.MOST_CONNECTIONS = 4')
        held = [self.open(type='write', path='f%d' % number) for number in range(4)]
        self.agent.listeners['supervisor.sock'].settimeout(0.5)
        self.assertRaises(OSError, self.agent.accept, 'supervisor.sock')
        self.agent.listeners['supervisor.sock'].settimeout(30)
        held[0].send(protocol.END)
        self.assertTrue(held[0].response()['ok'])
        held[0].close()
        self.assertTrue(self.ask(type='processes')['ok'])

    def test_a_process_that_is_killed_cuts_its_request_off_alone(self) -> None:
        peer: Optional[Any] = self.open(type='write', path='file')
        assert peer is not None
        peer.send(protocol.DATA, {}, b'x')
        eventually(lambda: self.left() != [])
        with open('/proc/%d/task/%d/children' % (self.process.pid, self.process.pid)) as file:
            os.kill(int(file.read().split()[0]), 9)
        self.assertIsNone(peer.next())
        self.assertEqual(json.loads(json.dumps(self.ask_ok(type='processes')))['processes'], [])


if __name__ == '__main__':
    unittest.main()
