"""The file server of a volume, on a connected pair of sockets: paths, links, ranges, and uploads."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import stat
import tempfile
import threading
import time
import unittest
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from longshore.runner.protocol import DATA, END, READING, REQUEST, RESPONSE, FrameCutter, pack
from longshore.volume_files import paths, uploads
from longshore.volume_files.serving import serve
from longshore.volume_files.wire import Refusal


class Answer(NamedTuple):
    status: int
    headers: Dict[str, str]
    body: bytes
    whole: bool

    @property
    def code(self) -> str:
        return str(json.loads(self.body)['code'])


class Client:
    """One request to the server, in the scheduler's place."""

    def __init__(self, root: int, head: Dict[str, Any]) -> None:
        self.own, theirs = socket.socketpair()
        first = pack(REQUEST, {}, json.dumps({'headers': [], 'requestId': 'r', **head}).encode())
        self.thread = threading.Thread(target=serve, args=(theirs, first, root))
        self.thread.start()

    def send(self, body: bytes) -> None:
        self.own.sendall(pack(DATA, {}, body))

    def cut(self) -> None:
        self.own.close()
        self.thread.join()

    def answer(self) -> Answer:
        # The other side may have broken off already.
        with contextlib.suppress(BrokenPipeError):
            self.own.sendall(pack(END, {}))
        cutter, frames = FrameCutter(), []
        while not frames or frames[-1][0] != END:
            try:
                data = self.own.recv(65536)
            except ConnectionResetError:
                data = b''
            if not data:
                break
            frames += cutter.feed(data)
        self.cut()
        head: Dict[str, Any] = next((json.loads(body) for kind, _, body in frames if kind == RESPONSE), {'status': 0})
        body = b''.join(body for kind, _, body in frames if kind == DATA)
        return Answer(head['status'], dict(head.get('headers', [])), body, bool(frames) and frames[-1][0] == END)


class Volume(unittest.TestCase):
    def setUp(self) -> None:
        self.path = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.path)
        os.chmod(self.path, 0o777)
        self.root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, self.root)
        mask = os.umask(0)
        self.addCleanup(os.umask, mask)

    def at(self, *names: str) -> str:
        return os.path.join(self.path, *names)

    def write(self, name: str, data: bytes) -> None:
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        with open(self.at(name), 'wb') as file:
            file.write(data)

    def read(self, name: str) -> bytes:
        with open(self.at(name), 'rb') as file:
            return file.read()

    def ask(self, purpose: str, method: str, path: str, headers: Optional[Dict[str, str]] = None) -> Client:
        pairs = list((headers or {}).items())
        return Client(self.root, {'purpose': purpose, 'method': method, 'path': path, 'headers': pairs})

    def get(self, path: str, headers: Optional[Dict[str, str]] = None, method: str = 'GET') -> Answer:
        return self.ask('get', method, path, headers).answer()

    def put(self, path: str, body: bytes, part: str = '', length: Optional[int] = -1) -> Answer:
        headers = {'content-range': 'bytes ' + part} if part else {}
        if length is not None:
            headers['content-length'] = str(len(body) if length < 0 else length)
        client = self.ask('put', 'PUT', path, headers)
        if body:
            client.send(body)
        return client.answer()

    def offset(self, path: str) -> Tuple[str, Optional[str]]:
        answer = self.ask('put', 'HEAD', path).answer()
        self.assertEqual(answer.status, 200)
        return answer.headers['upload-offset'], answer.headers.get('upload-length')

    def left(self) -> List[str]:
        return [name for _, folders, names in os.walk(self.path) for name in folders + names if name.startswith('.long')]


class Paths(Volume):
    def test_paths_that_name_no_file(self) -> None:
        bad = ['', '/', '/a', 'a/', 'a//b', '.', '..', 'a/../b', 'a/.', 'a\0b', 'x' * 256, 'a/' * 2048 + 'a', '\ud800']
        for path in [*bad, '.longshore-upload-x/1']:
            with self.subTest(path), self.assertRaises(Refusal):
                paths.parts_of(path)

    def test_links_folders_and_pipes_are_not_opened(self) -> None:
        self.write('inner/file', b'x')
        os.symlink('/etc/passwd', self.at('passwd'))
        os.symlink('/etc', self.at('etc'))
        os.symlink('inner', self.at('to-inner'))
        os.symlink('loop', self.at('loop'))
        os.symlink('absent', self.at('dangling'))
        os.mkfifo(self.at('pipe'))
        for path in ['passwd', 'etc/passwd', 'to-inner/file', 'loop', 'dangling', 'pipe', 'inner', 'inner/file/below']:
            with self.subTest(path):
                self.assertEqual((self.get(path).status, self.get(path).code), (409, 'volume_file_irregular'))
                self.assertEqual(self.put(path, b'evil').code, 'volume_file_irregular')
        self.assertEqual((self.read('inner/file'), os.path.exists(self.at('absent'))), (b'x', False))
        self.assertEqual(self.left(), [])

    def test_a_link_that_takes_the_place_of_a_checked_file_is_not_followed(self) -> None:
        self.write('file', b'x')
        folder = os.dup(self.root)
        self.addCleanup(os.close, folder)
        checked = paths.require_ordinary

        def swapped(where: int, name: bytes) -> os.stat_result:
            found = checked(where, name)
            os.unlink(self.at('file'))
            os.symlink('/etc/passwd', self.at('file'))
            return found

        paths.require_ordinary = swapped
        try:
            with self.assertRaises(Refusal):
                paths.open_file(folder, b'file')
        finally:
            paths.require_ordinary = checked

    def test_the_folder_of_an_upload_may_not_be_a_link(self) -> None:
        os.mkdir(self.at('elsewhere'))
        os.symlink('elsewhere', self.at(os.fsdecode(uploads.uploads_name(b'file'))))
        self.assertGreaterEqual(self.put('file', b'x').status, 400)
        self.assertEqual(os.listdir(self.at('elsewhere')), [])


class Downloads(Volume):
    def test_whole_ranges_and_conditions(self) -> None:
        data = os.urandom(700_000)
        self.write('a', data)
        whole = self.get('a')
        self.assertEqual((whole.status, whole.body == data, whole.whole), (200, True, True))
        etag = whole.headers['etag']
        cases: List[Tuple[Dict[str, str], int, bytes]] = [
            ({'range': 'bytes=0-0'}, 206, data[:1]),
            ({'range': 'bytes=5-'}, 206, data[5:]),
            ({'range': 'bytes=-5'}, 206, data[-5:]),
            ({'range': 'bytes=-9999999'}, 206, data),
            ({'range': 'bytes=699999-9999999'}, 206, data[-1:]),
            ({'range': 'bytes=9-5'}, 200, data),
            ({'range': 'bytes=1-2,4-5'}, 200, data),
            ({'range': 'lines=1-2'}, 200, data),
            ({'range': 'bytes=-'}, 200, data),
            ({'range': 'bytes=5-', 'if-range': etag}, 206, data[5:]),
            ({'range': 'bytes=5-', 'if-range': '"x"'}, 200, data),
            ({'if-none-match': '"x", W/' + etag}, 304, b''),
            ({'if-match': '*'}, 200, data),
        ]
        for headers, status, body in cases:
            with self.subTest(headers):
                answer = self.get('a', headers)
                self.assertEqual((answer.status, answer.body == body, answer.whole), (status, True, True))
        for text in ['bytes=700000-', 'bytes=-0']:
            refused = self.get('a', {'range': text})
            self.assertEqual((refused.status, refused.headers['content-range']), (416, 'bytes */700000'))
        self.assertEqual(self.get('a', {'if-match': 'W/' + etag}).status, 412)
        head = self.get('a', {'range': 'bytes=0-0'}, 'HEAD')
        self.assertEqual((head.status, head.headers['content-length'], head.body), (200, '700000', b''))

    def test_a_range_with_more_digits_than_a_number_may_have_is_answered(self) -> None:
        self.write('a', b'0123456789')
        digits = '9' * 5000
        for sent, status in (('bytes=%s-' % digits, 416), ('bytes=0-%s' % digits, 206), ('bytes=-%s' % digits, 206)):
            self.assertEqual(self.get('a', {'range': sent}).status, status)

    def test_a_file_that_changes_meanwhile_breaks_off_before_its_end(self) -> None:
        size = 8 * 1024 * 1024
        self.write('a', b'1' * size)
        client = self.ask('get', 'GET', 'a')
        client.own.recv(10, socket.MSG_PEEK)
        self.write('a', b'2' * size)
        answer = client.answer()
        self.assertFalse(answer.whole)
        self.assertLess(len(answer.body), size)


class Uploading(Volume):
    def test_a_whole_upload_makes_folders_and_belongs_to_the_owner_of_the_volume(self) -> None:
        if os.geteuid() == 0:
            os.chown(self.path, 1234, 1235)
        answer = self.put('new/folder/a', b'data')
        self.assertEqual((answer.status, json.loads(answer.body)), (200, {'size': 4}))
        seen, root = os.stat(self.at('new/folder/a')), os.stat(self.path)
        self.assertEqual((stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid), (0o644, root.st_uid, root.st_gid))
        folder = os.stat(self.at('new/folder'))
        self.assertEqual((stat.S_IMODE(folder.st_mode), folder.st_uid), (0o777, root.st_uid))
        self.assertEqual(self.put('new/folder/a', b'').status, 200)
        self.assertEqual((self.read('new/folder/a'), self.left()), (b'', []))

    def test_an_upload_goes_on_where_it_was_cut(self) -> None:
        self.write('a', b'before')
        client = self.ask('put', 'PUT', 'a', {'content-length': '10'})
        client.send(b'0123')
        client.cut()
        self.assertEqual((self.offset('a'), self.read('a')), (('4', '10'), b'before'))
        for part, body in [('5-6/10', b'56'), ('3-4/10', b'34'), ('4-5/11', b'45')]:
            refused = self.put('a', body, part)
            self.assertEqual((refused.status, refused.headers['upload-offset']), (409, '4'))
        answer = self.put('a', b'456', '4-6/10')
        self.assertEqual((answer.status, answer.headers['upload-offset']), (202, '7'))
        asked = self.put('a', b'', '*/10')
        self.assertEqual((asked.status, asked.headers['upload-length'], self.read('a')), (202, '10', b'before'))
        self.assertEqual(self.put('a', b'789', '7-9/10').status, 200)
        self.assertEqual((self.read('a'), self.left(), self.offset('a')), (b'0123456789', [], ('0', None)))

    def test_a_part_at_the_beginning_begins_anew_and_two_do_not_write_at_once(self) -> None:
        first = self.ask('put', 'PUT', 'a', {'content-length': '4'})
        first.send(b'xx')
        self.until(lambda: self.offset('a') == ('2', '4'))
        for part in ['0-1/4', '2-3/4']:
            refused = self.put('a', b'yy', part)
            self.assertEqual((refused.status, refused.code), (409, 'upload_in_progress'))
        self.assertEqual(self.put('a', b'whole').status, 200)
        first.send(b'xx')
        self.assertEqual((first.answer().code, self.read('a'), self.left()), ('upload_in_progress', b'whole', []))
        self.assertEqual(self.put('a', b'ab', '0-1/3').status, 202)
        self.assertEqual(self.put('a', b'AB', '0-1/3').status, 202)
        self.assertEqual(self.put('a', b'C', '2-2/3').status, 200)
        self.assertEqual(self.read('a'), b'ABC')

    def test_uploads_to_a_folder_at_once_do_not_disturb_each_other(self) -> None:
        answers: List[Answer] = []

        def upload(name: str) -> None:
            for _ in range(50):
                answers.append(self.put(name, b'x'))

        for names, codes in ((['a', 'b', 'c', 'd'], set()), (['e'] * 4, {'upload_in_progress'})):
            threads = [threading.Thread(target=upload, args=(name,)) for name in names]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual({answer.code for answer in answers if answer.status != 200} - codes, set())
            answers.clear()
        self.assertEqual(self.left(), [])

    def test_bytes_that_were_not_announced_are_refused(self) -> None:
        self.assertEqual(self.put('a', b'abc', length=2).code, 'upload_incomplete')
        self.assertEqual(self.put('a', b'ab', length=3).code, 'upload_incomplete')
        for part in ['0-0/2', '1-0/2', '0-2/2', 'x', '*/x', '*/2']:
            self.assertEqual(self.put('a', b'ab', part).code, 'invalid_content_range')
        self.assertFalse(os.path.exists(self.at('a')))

    def test_an_upload_without_a_length_leaves_nothing_when_it_is_cut(self) -> None:
        self.assertEqual(self.put('a', b'abc', length=None).status, 200)
        client = self.ask('put', 'PUT', 'a')
        client.send(b'xyz')
        client.cut()
        self.assertEqual((self.read('a'), self.left()), (b'abc', []))

    def test_a_sender_that_waits_is_told_to_begin(self) -> None:
        head = {'purpose': 'put', 'method': 'PUT', 'path': 'a', 'headers': [['content-length', '1']]}
        client = Client(self.root, {**head, 'expectsContinue': True})
        self.assertEqual(FrameCutter().feed(client.own.recv(100))[0][0], READING)
        client.send(b'a')
        self.assertEqual(client.answer().status, 200)

    def test_old_uploads_of_the_folder_go_with_the_next_one(self) -> None:
        client = self.ask('put', 'PUT', 'old', {'content-length': '9'})
        client.send(b'1')
        client.cut()
        [name] = self.left()
        self.assertEqual(self.put('next', b'').status, 200)
        self.assertEqual(self.left(), [name])
        [entry] = os.listdir(self.at(name))
        then = time.time() - uploads.LIFE_SECONDS - 60
        os.utime(self.at(name, entry), (then, then))
        self.assertEqual(self.put('next', b'').status, 200)
        self.assertEqual(self.left(), [])

    def until(self, done: Any) -> None:
        for _ in range(200):
            if done():
                return
            time.sleep(0.02)
        self.fail('it did not happen')


if __name__ == '__main__':
    unittest.main()
