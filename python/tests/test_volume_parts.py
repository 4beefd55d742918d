"""Uploads to a volume whose parts come side by side: offsets, missing parts, cut ones, and what is left of them."""

from __future__ import annotations

import os
import threading
import time
import unittest
from typing import Any, Dict, List, Optional

from longshore.volume_files import parts, uploads

from .test_volume_files import Answer, Client, Volume

KEY = '0123456789abcdef'


class Parts(Volume):
    def call(self, purpose: str, path: str = 'a', **upload: Any) -> Answer:
        return self.client(purpose, path, **upload).answer()

    def client(self, purpose: str, path: str = 'a', number: Optional[int] = None, length: int = -1, **upload: Any) -> Client:
        facts: Dict[str, Any] = {'key': KEY, 'total': 10, 'partBytes': 4, **upload}
        headers = [] if length < 0 else [['content-length', str(length)]]
        head = {'purpose': purpose, 'method': 'PUT', 'path': path, 'upload': facts, 'number': number, 'headers': headers}
        return Client(self.root, head)

    def part(self, number: int, body: bytes, **facts: Any) -> Answer:
        client = self.client('part', number=number, length=len(body), **facts)
        if body:
            client.send(body)
        return client.answer()

    def test_parts_in_any_order_make_the_file_with_the_last_step_alone(self) -> None:
        self.write('a', b'before')
        self.assertEqual(self.call('begin').status, 200)
        tags: List[str] = []
        for number, body in ((3, b'89'), (1, b'0123'), (2, b'4567')):
            answer = self.part(number, body)
            self.assertEqual(answer.status, 200)
            tags.append(answer.headers['etag'])
            self.assertEqual(self.read('a'), b'before')
        self.assertEqual(len(set(tags)), 3)
        self.assertEqual(self.call('complete').status, 200)
        self.assertEqual((self.read('a'), self.left()), (b'0123456789', []))
        self.assertEqual(self.call('complete').code, 'upload_not_found')

    def test_parts_at_the_same_time_do_not_disturb_each_other(self) -> None:
        size, count = 100_000, 16
        data = os.urandom(size * count - 5)
        facts = {'total': len(data), 'partBytes': size}
        self.assertEqual(self.call('begin', **facts).status, 200)
        answers: Dict[int, Answer] = {}

        def send(number: int) -> None:
            answers[number] = self.part(number, data[(number - 1) * size : number * size], **facts)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(1, count + 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({answer.status for answer in answers.values()}, {200})
        self.assertEqual(self.call('complete', **facts).status, 200)
        self.assertEqual(self.read('a'), data)

    def test_a_missing_or_a_cut_part_holds_the_file_back(self) -> None:
        self.call('begin')
        self.part(1, b'0123')
        cut = self.client('part', number=2, length=4)
        cut.send(b'45')
        cut.cut()
        self.part(3, b'89')
        refused = self.call('complete')
        self.assertEqual((refused.status, refused.code), (409, 'upload_incomplete'))
        self.assertIn('2', refused.body.decode())
        self.assertFalse(os.path.exists(self.at('a')))
        self.assertEqual(self.part(2, b'4567').status, 200)
        self.assertEqual(self.call('complete').status, 200)
        self.assertEqual(self.read('a'), b'0123456789')

    def test_an_upload_is_completed_when_its_last_sender_has_ended(self) -> None:
        self.call('begin')
        for number, body in ((1, b'0123'), (2, b'4567'), (3, b'89')):
            self.part(number, body)
        again = self.client('part', number=2, length=4)
        again.send(b'45')
        done: List[Answer] = []
        completing = threading.Thread(target=lambda: done.append(self.call('complete')))
        completing.start()
        again.send(b'67')
        self.assertEqual(again.answer().status, 200)
        completing.join()
        self.assertEqual((done[0].status, self.read('a')), (200, b'0123456789'))

    def test_bytes_beside_a_part_are_refused(self) -> None:
        self.call('begin')
        for number, body, length in ((1, b'012', 3), (3, b'89x', 3), (1, b'01234', 4), (1, b'012', 4)):
            client = self.client('part', number=number, length=length)
            client.send(body)
            self.assertEqual(client.answer().code, 'upload_incomplete')
        for number in (0, 4, None, 'x'):
            self.assertEqual(self.client('part', number=number).answer().code, 'invalid_query')
        self.assertIn('1, 2, 3', self.call('complete').body.decode())

    def test_what_was_never_begun_or_has_ended_is_unknown(self) -> None:
        self.assertEqual(self.part(1, b'0123').code, 'upload_not_found')
        self.call('begin')
        for wrong in ({'key': 'f' * 16}, {'total': 11}, {'partBytes': 5}):
            self.assertEqual(self.call('complete', **wrong).code, 'upload_not_found')
        for bad in ({'key': '../../etc/passwd'}, {'total': -1}, {'partBytes': 0}, {'total': '10'}):
            self.assertEqual(self.call('begin', **bad).code, 'upload_not_found')
        running = self.client('part', number=1, length=4)
        running.send(b'01')
        self.assertEqual(self.call('abort').status, 200)
        running.send(b'23')
        self.assertEqual(running.answer().code, 'upload_not_found')
        self.assertEqual((self.call('abort').status, self.call('abort', path='x/y').status, self.left()), (200, 200, []))

    def test_bounds_of_parts_and_of_uploads(self) -> None:
        self.assertEqual(self.call('begin', total=parts.MOST_PARTS + 1, partBytes=1).code, 'invalid_query')
        for at in range(parts.MOST_UPLOADS + 2):
            self.assertEqual(self.call('begin', key='%016x' % at).status, 200)
        [own] = self.left()
        self.assertEqual(len(os.listdir(self.at(own))), parts.MOST_UPLOADS)
        self.assertEqual(self.call('complete', key='%016x' % 0).code, 'upload_not_found')

    def test_an_empty_file_has_no_parts(self) -> None:
        self.assertEqual(self.call('begin', total=0, partBytes=1).status, 200)
        self.assertEqual(self.call('complete', total=0, partBytes=1).status, 200)
        self.assertEqual((self.read('a'), self.left()), (b'', []))

    def test_an_upload_that_was_left_goes_with_its_age(self) -> None:
        self.call('begin')
        [own] = self.left()
        [entry] = os.listdir(self.at(own))
        then = time.time() - uploads.LIFE_SECONDS - 60
        os.utime(self.at(own, entry), (then, then))
        self.assertEqual(self.put('next', b'').status, 200)
        self.assertEqual(self.left(), [])

    def test_links_and_folders_are_not_written(self) -> None:
        os.mkdir(self.at('folder'))
        os.symlink('/etc/passwd', self.at('link'))
        for path in ('folder', 'link'):
            self.assertEqual(self.call('begin', path=path).code, 'volume_file_irregular')
        self.assertEqual(self.left(), [])


if __name__ == '__main__':
    unittest.main()
