"""Folders and packs of the file server of a volume: listing, counting, removing, moving, and many files at once."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import unittest
from typing import Any, Dict, List, Tuple
from unittest import mock

from longshore.volume_files import packs, tree, uploads
from longshore.volume_files.wire import Wire

from .test_volume_files import Answer, Client, Volume

ODD = ['a b', 'ü 漢字', '-rf', '100%2F', 'line\nbreak', '"quoted"\\', '.hidden', 'a+b&c=d?e#f']


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record(path: str, data: bytes, **more: Any) -> bytes:
    head = {'path': path, 'size': len(data), 'from': 0, 'length': len(data), **more}
    return json.dumps(head).encode() + b'\n' + data + json.dumps({'sha256': sha256(data)}).encode() + b'\n'


class Folders(Volume):
    def call(self, purpose: str, **head: Any) -> Answer:
        return Client(self.root, {'purpose': purpose, 'path': '', 'method': 'GET', **head}).answer()

    def value(self, purpose: str, **head: Any) -> Dict[str, Any]:
        answer = self.call(purpose, **head)
        self.assertEqual(answer.status, 200, answer.body)
        return dict(json.loads(answer.body))

    def pages(self, **head: Any) -> List[str]:
        found: List[str] = []
        cursor = ''
        while True:
            page = self.value('list', cursor=cursor, **head)
            found += [one['path'] for one in page['entries']]
            cursor = page['next']
            if cursor == '':
                return found

    def assert_refused(self, answer: Answer, status: int, code: str) -> None:
        self.assertEqual((answer.status, answer.code), (status, code))

    def test_a_listing_has_pages_in_order_and_tells_kinds(self) -> None:
        self.assertEqual(self.value('list'), {'kind': 'folder', 'entries': [], 'next': ''})
        self.write('b/inner', b'12')
        self.write('a', b'1')
        os.chmod(self.at('a'), 0o755)
        os.symlink('/etc/passwd', self.at('link'))
        os.mkfifo(self.at('pipe'))
        os.mkdir(self.at('.longshore-upload-x'))
        self.write('b.c', b'')
        entries = self.value('list')['entries']
        kinds = [(one['path'], one['kind'], one['size'], one['executable']) for one in entries]
        self.assertEqual(
            kinds,
            [('a', 'file', 1, True), ('b', 'folder', 0, False), ('b.c', 'file', 0, False)]
            + [('link', 'link', 0, False), ('pipe', 'other', 0, False)],
        )
        everything = ['a', 'b', 'b/inner', 'b.c', 'link', 'pipe']
        for limit in [1, 2, 3, 100]:
            self.assertEqual(self.pages(recursive=True, limit=limit), everything)
            self.assertEqual(self.pages(limit=limit), [one for one in everything if '/' not in one])
        with mock.patch.object(tree, '_CHUNK_NAMES', 2):
            self.assertEqual(self.pages(recursive=True, limit=4), everything)
        with mock.patch.object(tree, 'WORK_SECONDS', -1.0):
            self.assertEqual(len(self.value('list')['entries']), 1)
            self.assertEqual(self.pages(recursive=True), everything)
        self.assertEqual(self.pages(path='b'), ['inner'])
        self.assertEqual(self.value('list', path='a')['kind'], 'file')
        self.assertEqual(self.value('list', path='link')['entries'][0]['kind'], 'link')

    def test_odd_names_come_whole_and_names_that_are_not_unicode_are_marked(self) -> None:
        for name in ODD:
            self.write('odd/' + name, b'x')
        self.assertEqual(sorted(self.pages(path='odd')), sorted(ODD))
        self.assertEqual(sorted(self.pages(path='odd', limit=1)), sorted(ODD))
        with open(os.fsencode(self.path) + b'/\xff', 'wb'):
            pass
        marked = [one for one in self.value('list')['entries'] if not one['addressable']]
        self.assertEqual([one['path'] for one in marked], ['\ufffd'])

    def test_no_call_leaves_the_volume(self) -> None:
        os.symlink('/etc', self.at('etc'))
        self.write('file', b'x')
        for path in ['..', '/etc', 'a/../b', 'a//b', './a', 'x' * 256, 'a\0b', '.longshore-upload-x']:
            for purpose in ['list', 'measure', 'remove']:
                self.assert_refused(self.call(purpose, path=path, recursive=True), 400, 'invalid_query')
            self.assert_refused(self.call('move', **{'from': path, 'to': 'new'}), 400, 'invalid_query')
            self.assert_refused(self.call('move', **{'from': 'file', 'to': path}), 400, 'invalid_query')
        for purpose in ['list', 'measure', 'remove']:
            self.assert_refused(self.call(purpose, path='etc/passwd'), 409, 'volume_file_irregular')
            self.assert_refused(self.call(purpose, path='absent'), 404, 'volume_file_not_found')
            self.assert_refused(self.call(purpose, path='absent/b'), 404, 'volume_file_not_found')
        self.assert_refused(self.call('move', **{'from': 'file', 'to': 'etc/new'}), 409, 'volume_file_irregular')
        self.assert_refused(self.call('list', cursor='Li4='), 400, 'invalid_cursor')
        self.assert_refused(self.call('list', cursor='!'), 400, 'invalid_cursor')
        self.assertEqual(self.pages(recursive=True), ['etc', 'file'])

    def test_measuring_goes_on_where_the_time_was_over(self) -> None:
        self.assertEqual(self.value('measure')['files'], 0)
        for at in range(5):
            self.write('f%d/a' % at, b'x' * 1000)
        os.symlink('/etc/passwd', self.at('link'))
        whole = self.value('measure')
        self.assertEqual([whole[name] for name in ['bytes', 'files', 'folders', 'others']], [5000, 5, 5, 1])
        self.assertGreater(whole['diskBytes'], 5000)
        cursor, rounds, size = '', 0, 0
        with mock.patch.object(tree, 'WORK_SECONDS', -1.0):
            while cursor != '' or rounds == 0:
                part = self.value('measure', cursor=cursor)
                cursor, rounds, size = part['next'], rounds + 1, size + part['bytes']
        self.assertEqual((size, rounds), (5000, 11))
        self.assertEqual(self.value('measure', path='f1')['bytes'], 1000)
        self.assertEqual(self.value('measure', path='f1/a')['files'], 1)

    def test_removing(self) -> None:
        self.write('a/b/c', b'x')
        self.write('a/d', b'x')
        self.write('kept', b'x')
        os.symlink(self.at('kept'), self.at('a/link'))
        os.mkdir(self.at('a/.longshore-upload-x'))
        os.mkdir(self.at('empty'))
        self.assert_refused(self.call('remove', path='a'), 409, 'volume_folder_not_empty')
        self.assert_refused(self.call('remove'), 400, 'invalid_query')
        self.assertEqual(self.value('remove', path='empty'), {'removed': 1, 'complete': True})
        self.assertEqual(self.value('remove', path='a/d'), {'removed': 1, 'complete': True})
        with mock.patch.object(tree, 'WORK_SECONDS', -1.0):
            self.assertEqual(self.value('remove', path='a', recursive=True), {'removed': 0, 'complete': False})
        self.assertEqual(self.value('remove', path='a', recursive=True), {'removed': 5, 'complete': True})
        self.assertEqual(os.listdir(self.path), ['kept'])
        for at in range(30):
            self.write('many/%d/%d' % (at % 3, at), b'')
        with mock.patch.object(tree, '_REMOVE_NAMES', 4):
            self.assertEqual(self.value('remove', path='many', recursive=True)['removed'], 34)
        self.assertEqual(self.value('remove', recursive=True), {'removed': 1, 'complete': True})
        self.assertEqual(os.listdir(self.path), [])

    def test_moving(self) -> None:
        self.write('a/b', b'1')
        self.write('c', b'2')
        os.symlink('/etc/passwd', self.at('link'))
        move = lambda a, b, **more: self.call('move', **{'from': a, 'to': b, **more})  # noqa: E731
        self.assertEqual(move('a/b', 'new/folder/b').status, 200)
        self.assertEqual(self.read('new/folder/b'), b'1')
        self.assert_refused(move('c', 'new/folder/b'), 409, 'volume_file_exists')
        self.assert_refused(move('c', 'a', replace=True), 409, 'volume_file_exists')
        self.assert_refused(move('a', 'c', replace=True), 409, 'volume_file_exists')
        self.assert_refused(move('c', 'link', replace=True), 409, 'volume_file_exists')
        self.assertEqual(move('c', 'new/folder/b', replace=True).status, 200)
        self.assertEqual(self.read('new/folder/b'), b'2')
        self.assert_refused(move('new', 'new/folder/x'), 400, 'invalid_query')
        self.assert_refused(move('absent', 'x'), 404, 'volume_file_not_found')
        self.assertEqual(move('new', 'new').status, 200)
        self.assertEqual(move('link', 'moved').status, 200)
        self.assertEqual(os.readlink(self.at('moved')), '/etc/passwd')
        self.assertEqual(move('new', 'a/new').status, 200)
        self.assertEqual(self.read('a/new/folder/b'), b'2')


class Packs(Volume):
    def unpack(self, body: bytes, folder: str = '', **more: Any) -> Answer:
        client = Client(self.root, {'purpose': 'unpack', 'path': folder, 'method': 'PUT', **more})
        for at in range(0, len(body), 50_000):
            client.send(body[at : at + 50_000])
        return client.answer()

    def written(self, body: bytes, folder: str = '', **more: Any) -> Dict[str, Any]:
        answer = self.unpack(body, folder, **more)
        self.assertEqual(answer.status, 200, answer.body)
        return dict(json.loads(answer.body))

    def pack(self, items: List[Dict[str, Any]], folder: str = '') -> List[Tuple[Dict[str, Any], bytes, Dict[str, Any]]]:
        client = Client(self.root, {'purpose': 'pack', 'path': folder, 'method': 'POST'})
        client.send(b''.join(json.dumps(one).encode() + b'\n' for one in items))
        answer = client.answer()
        self.assertEqual((answer.status, answer.whole), (200, True), answer.body)
        found, rest = [], answer.body
        while rest:
            line, rest = rest.split(b'\n', 1)
            head = json.loads(line)
            data, trailer = b'', {}
            if 'length' in head:
                data, rest = rest[: head['length']], rest[head['length'] :]
                line, rest = rest.split(b'\n', 1)
                trailer = json.loads(line)
            found.append((head, data, trailer))
        return found

    def test_files_and_folders_of_a_pack_are_written(self) -> None:
        small, big = b'x', os.urandom(3 * 1024 * 1024)
        body = record('a/small', small, mtimeNs='1700000000123456789') + record('run', b'#!', executable=True)
        body += record('empty', b'') + record('big', big, key='0' * 16, mtimeNs=5)
        body += json.dumps({'path': 'folder/inner', 'kind': 'folder'}).encode() + b'\n'
        for name in ODD:
            body += record('odd/' + name, name.encode())
        told = self.written(body, 'to/here')
        self.assertEqual(told, {'files': 4 + len(ODD), 'bytes': told['bytes'], 'failures': 0, 'failed': []})
        seen = os.stat(self.at('to/here/a/small'))
        self.assertEqual((seen.st_mtime_ns, stat.S_IMODE(seen.st_mode)), (1700000000123456789, 0o644))
        self.assertEqual(stat.S_IMODE(os.stat(self.at('to/here/run')).st_mode), 0o755)
        self.assertEqual((self.read('to/here/empty'), self.read('to/here/big') == big), (b'', True))
        self.assertTrue(os.path.isdir(self.at('to/here/folder/inner')))
        for name in ODD:
            self.assertEqual(self.read('to/here/odd/' + name), name.encode())
        self.assertEqual(self.left(), [])

    def test_what_cannot_be_written_is_told_and_the_others_are_written(self) -> None:
        os.symlink('/etc', self.at('etc'))
        os.mkdir(self.at('folder'))
        bad = ['../x', 'etc/x', 'etc', 'folder', '.longshore-upload-x', 'x' * 256, '']
        wrong = json.dumps({'path': 'wrong', 'size': 1, 'length': 1}).encode() + b'\nx' + b'{"sha256": "0"}\n'
        large = json.dumps({'path': 'large', 'size': 9, 'from': 1, 'length': 1, 'key': '1' * 16}).encode()
        body = b''.join(record(path, b'evil') + record(path, b'') for path in bad) + wrong
        body += large + b'\nx' + json.dumps({'sha256': sha256(b'x')}).encode() + b'\n' + record('good', b'good')
        told = self.written(body)
        self.assertEqual((told['files'], told['failures'], self.read('good')), (1, 2 * len(bad) + 2, b'good'))
        self.assertEqual([one['path'] for one in told['failed'][-2:]], ['wrong', 'large'])
        codes = [one['code'] for one in told['failed']]
        self.assertEqual(codes[-2:], ['checksum_mismatch', 'upload_offset_mismatch'])
        self.assertEqual(set(codes[:-2]), {'invalid_query', 'volume_file_irregular'})
        self.assertFalse(os.path.exists(self.at('wrong')))
        self.assertEqual(self.left(), [])

    def test_files_that_do_not_fit_are_refused_and_leave_nothing(self) -> None:
        body = record('first', b'12345') + record('much', b'x' * 6) + record('second', b'67890') + record('third', b'!')
        told = self.written(body, room=10)
        self.assertEqual((told['files'], [one['path'] for one in told['failed']]), (2, ['much', 'third']))
        self.assertEqual({one['code'] for one in told['failed']}, {'volume_quota_reached'})
        self.assertIn('leaves room for 0 bytes, and this file needs 1', told['failed'][1]['message'])
        self.assertEqual((sorted(os.listdir(self.root)), self.left()), (['first', 'second'], []))

    def test_a_large_file_counts_once_and_as_what_is_left_of_it(self) -> None:
        data = os.urandom(30_000)
        parts = [
            record('large', data[at : at + 10_000], **{'size': len(data), 'from': at, 'key': 'ab' * 8}) for at in (0, 10_000, 20_000)
        ]
        told = self.written(b''.join(parts) + record('small', b'x' * 20_000), room=29_999)
        self.assertEqual((told['files'], [(one['path'], one['code']) for one in told['failed']]), (1, [('large', 'volume_quota_reached')]))
        self.assertEqual(os.listdir(self.root), ['small'])
        os.remove(self.at('small'))
        self.assertEqual(self.written(parts[0] + record('small', b'x'), room=30_000)['failures'], 1)
        self.assertEqual(self.written(parts[1] + parts[2], room=20_000)['files'], 1)
        self.assertEqual((self.read('large') == data, self.left()), (True, []))

    def test_texts_that_are_no_pack(self) -> None:
        bad = [b'x', b'x\n', b'[]\n', b'{}\n', b'{"path": "a", "length": 5, "size": 5}\nab', b'{"path": "a"}\n']
        bad += [b'{"path": "a", "length": -1}\n', b'{"path": "a", "length": 9, "size": 8}\n', b'[' * 70_000]
        for body in bad:
            with self.subTest(body[:50]):
                answer = self.unpack(body)
                self.assertEqual((answer.status, answer.code), (422, 'invalid_body'))
        self.assertEqual(os.listdir(self.path), [])

    def test_a_large_file_goes_on_in_a_later_pack(self) -> None:
        data = os.urandom(40_000)
        key = 'ab' * 8

        def part(begin: int, end: int, **more: Any) -> bytes:
            facts = {'size': len(data), 'from': begin, 'key': key, **more}
            return record('a', data[begin:end], **facts)

        def state(**more: Any) -> int:
            head = {'purpose': 'state', 'method': 'GET', 'path': 'a', 'size': len(data), 'key': key, **more}
            return int(json.loads(Client(self.root, head).answer().body)['received'])

        self.assertEqual((state(), state(path='absent/a')), (0, 0))
        self.assertEqual(self.written(part(0, 10_000) + part(10_000, 30_000))['files'], 0)
        self.assertEqual((state(), state(key='0' * 16), os.path.exists(self.at('a'))), (30_000, 0, False))
        client = Client(self.root, {'purpose': 'unpack', 'path': '', 'method': 'PUT'})
        client.send(part(30_000, 40_000)[:-50_00])
        client.cut()
        self.assertGreater(state(), 30_000)
        self.assertEqual(self.written(part(30_000, 35_000, key='9' * 16))['failures'], 1)
        self.assertEqual(self.written(part(20_000, 40_000))['files'], 1)
        self.assertEqual((self.read('a') == data, self.left(), state()), (True, [], 0))
        self.assertEqual(self.written(part(0, 20_000))['failures'], 0)
        self.assertEqual(self.written(part(0, 20_000, key='cd' * 8))['failures'], 0)
        self.assertEqual(state(), 0)

    def test_a_spoiled_part_is_found_and_the_file_goes_on_at_its_begin(self) -> None:
        data = os.urandom(30_000)

        def part(begin: int, **more: Any) -> bytes:
            facts = {'size': len(data), 'from': begin, 'key': 'ab' * 8, **more}
            return record('a', data[begin : begin + 10_000], **facts)

        spoiled = part(10_000).replace(data[12_000:12_100], bytes(100))
        told = self.written(part(0) + spoiled + part(20_000) + record('b', b'other'))
        codes = [one['code'] for one in told['failed']]
        self.assertEqual((told['files'], codes), (1, ['checksum_mismatch', 'upload_offset_mismatch']))
        self.assertFalse(os.path.exists(self.at('a')))
        head = {'purpose': 'state', 'method': 'GET', 'path': 'a', 'size': len(data), 'key': 'ab' * 8}
        state = json.loads(Client(self.root, head).answer().body)
        self.assertEqual(state['received'], 10_000)
        self.assertEqual(self.written(part(10_000) + part(20_000))['files'], 1)
        self.assertEqual((self.read('a') == data, self.left()), (True, []))

    def test_parts_of_large_files_may_come_in_turns(self) -> None:
        files = {name: os.urandom(30_000) for name in ['a', 'folder/b']}
        body = b''
        for begin in [0, 10_000, 20_000]:
            for name, data in files.items():
                facts = {'size': len(data), 'from': begin, 'key': 'ab' * 8}
                body += record(name, data[begin : begin + 10_000], **facts)
        self.assertEqual(self.written(body)['files'], 2)
        for name, data in files.items():
            self.assertEqual(self.read(name) == data, True)
        self.assertEqual(self.left(), [])

    def test_bytes_that_do_not_reach_the_disk_come_again(self) -> None:
        data = os.urandom(30_000)
        failures = [OSError(errno.EIO, 'broken')]

        def failing(_fd: int) -> None:
            if failures:
                raise failures.pop()

        def part(begin: int) -> bytes:
            return record('a', data[begin : begin + 10_000], size=len(data), key='ab' * 8, **{'from': begin})

        with mock.patch('os.fdatasync', failing), mock.patch.object(uploads, 'FLUSH_BYTES', 10_000):
            told = self.written(part(0) + part(10_000) + part(20_000))
        self.assertEqual([one['code'] for one in told['failed']], ['volume_failed'])
        head = {'purpose': 'state', 'method': 'GET', 'path': 'a', 'size': len(data), 'key': 'ab' * 8}
        self.assertEqual(json.loads(Client(self.root, head).answer().body)['received'], 0)
        self.assertEqual(self.written(part(0) + part(10_000) + part(20_000))['files'], 1)
        self.assertEqual((self.read('a') == data, self.left()), (True, []))

    def test_the_answer_comes_when_nothing_is_on_its_way(self) -> None:
        """A reader of the answer lists the folder, or sends the next part, at once."""
        seen: List[Tuple[int, List[str]]] = []
        answer = Wire.answer

        def noted(wire: Wire, status: int, headers: Any) -> None:
            left = self.left()
            for name in left:
                for entry in os.listdir(self.at(name)):
                    with open(self.at(name, entry), 'rb') as file:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen.append((status, [name[:18] for name in left]))
            answer(wire, status, headers)

        with mock.patch.object(Wire, 'answer', noted):
            self.written(record('small', b'x') + record('big', os.urandom(2 * 1024 * 1024), key='0' * 16))
            self.put('whole', b'data')
            self.put('parts', b'ab', '0-1/3')
            self.put('parts', b'c', '2-2/3')
        self.assertEqual(seen, [(200, []), (200, []), (202, ['.longshore-upload-']), (200, [])])

    def test_a_cut_pack_leaves_no_small_file_behind(self) -> None:
        client = Client(self.root, {'purpose': 'unpack', 'path': '', 'method': 'PUT'})
        client.send(record('whole', b'whole') + record('cut', b'cut off')[:-90])
        client.cut()
        self.assertEqual((os.listdir(self.path), self.left()), (['whole'], []))

    def test_files_come_as_records_with_their_sha256(self) -> None:
        data = os.urandom(100_000)
        self.write('in/a', data)
        self.write('in/b c', b'')
        os.symlink('/etc/passwd', self.at('in/link'))
        with mock.patch.object(packs, 'RECORD_BYTES', 40_000):
            found = self.pack([{'path': 'a'}, {'path': 'b c'}, {'path': 'link'}, {'path': '../in/a'}], 'in')
        self.assertEqual([head.get('from') for head, _, _ in found], [0, 40_000, 80_000, 0, None, None])
        self.assertEqual(b''.join(body for _, body, _ in found), data)
        for _head, body, trailer in found[:4]:
            self.assertEqual(trailer, {'sha256': sha256(body)})
        self.assertEqual(found[4][0]['error']['code'], 'volume_file_irregular')
        self.assertEqual(found[5][0]['error']['code'], 'invalid_query')
        etag = found[0][0]['etag']
        [rest] = self.pack([{'path': 'in/a', 'from': 99_990, 'etag': etag}])
        self.assertEqual((rest[1], rest[0]['size']), (data[-10:], 100_000))
        [behind] = self.pack([{'path': 'in/a', 'from': 100_000}])
        self.assertEqual((behind[1], behind[0]['length']), (b'', 0))
        for item in [{'path': 'in/a', 'etag': 'x'}, {'path': 'in/a', 'from': 100_001}]:
            self.assertEqual(self.pack([item])[0][0]['error']['code'], 'volume_file_changed')

    def test_a_file_that_shrinks_is_told(self) -> None:
        self.write('a', b'x' * 100_000)
        preadv = os.preadv

        def shrinking(fd: int, into: List[memoryview], at: int) -> int:
            os.truncate(self.at('a'), 10)
            return preadv(fd, into, at)

        with mock.patch('os.preadv', shrinking):
            [(head, data, trailer)] = self.pack([{'path': 'a'}])
        self.assertEqual((head['length'], len(data), trailer['error']['code']), (100_000, 100_000, 'volume_file_changed'))

    def test_what_a_pack_is_asked_for_must_be_lines_with_paths(self) -> None:
        for body in [b'x\n', b'[]\n', b'{"path": "a", "from": -1}\n', b'{"from": 1}\n', b'[' * 3000 + b'\n']:
            client = Client(self.root, {'purpose': 'pack', 'path': '', 'method': 'POST'})
            client.send(body)
            answer = client.answer()
            self.assertEqual((answer.status, answer.code), (422, 'invalid_body'))


if __name__ == '__main__':
    unittest.main()
