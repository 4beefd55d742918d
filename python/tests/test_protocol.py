"""Frames, cut at every byte."""

from __future__ import annotations

import json
import struct
import unittest

from longshore.runner.protocol import (
    ACKED,
    DATA,
    END,
    MAX_FRAME_BYTES,
    RESULT,
    RUN,
    FrameCutter,
    FrameError,
    pack,
    prefix,
)


class Framing(unittest.TestCase):
    def test_the_layout_is_length_kind_header_length_header_body(self) -> None:
        frame = pack(RUN, {'taskId': 'ä'}, b'\x00\xffbody')
        header = b'{"taskId":"\\u00e4"}'
        self.assertEqual(frame, struct.pack('>IBH', 3 + len(header) + 6, 6, len(header)) + header + b'\x00\xffbody')

    def test_frames_cut_at_every_byte_come_out_the_same(self) -> None:
        stream = pack(RUN, {'a': 1}, b'xy') + pack(ACKED, {}) + pack(RESULT, {'b': 'ü'}, b'')
        expected = [(RUN, {'a': 1}, b'xy'), (ACKED, {}, b''), (RESULT, {'b': 'ü'}, b'')]
        for cut in range(len(stream) + 1):
            cutter = FrameCutter()
            self.assertEqual(cutter.feed(stream[:cut]) + cutter.feed(stream[cut:]), expected)
        cutter = FrameCutter()
        self.assertEqual([frame for byte in stream for frame in cutter.feed(bytes([byte]))], expected)

    def test_bodies_that_come_in_parts_are_complete_and_in_order_wherever_they_are_cut(self) -> None:
        bodies = [b'first body', b'', b'x' * 300]
        data = [prefix(DATA, len(body)) + body for body in bodies]
        stream = pack(RUN, {'a': 1}, b'xy') + data[0] + data[1] + prefix(END, 0) + data[2] + pack(DATA, {'at': 1}, b'whole')

        def joined(frames: list) -> list:
            # Parts of one body follow each other; END lies between the second and the third.
            told: list = []
            for kind, header, body in frames:
                if kind == DATA and told and told[-1][:2] == (DATA, {}) and not header:
                    told[-1] = (DATA, {}, told[-1][2] + body)
                else:
                    told.append((kind, header, body))
            return told

        expected = [
            (RUN, {'a': 1}, b'xy'),
            (DATA, {}, b'first body'),
            (END, {}, b''),
            (DATA, {}, b'x' * 300),
            (DATA, {'at': 1}, b'whole'),
        ]
        for cut in range(len(stream) + 1):
            cutter = FrameCutter(splits_data=True)
            frames = cutter.feed(stream[:cut]) + cutter.feed(stream[cut:])
            self.assertEqual(joined(frames), expected)
        cutter = FrameCutter(splits_data=True)
        self.assertEqual(joined([frame for byte in stream for frame in cutter.feed(bytes([byte]))]), expected)

    def test_a_part_of_a_body_is_there_before_its_end_and_is_not_copied(self) -> None:
        cutter = FrameCutter(splits_data=True)
        self.assertEqual(cutter.feed(prefix(DATA, 1000) + b'abc'), [(DATA, {}, b'abc')])
        rest = b'd' * 900
        ((_kind, _header, part),) = cutter.feed(rest)
        self.assertIs(part, rest)
        self.assertEqual(FrameCutter().feed(prefix(DATA, 1000) + b'abc'), [])
        with self.assertRaises(FrameError):
            cutter.feed(b'e' * 97 + struct.pack('>I', MAX_FRAME_BYTES + 1))

    def test_an_empty_header_is_an_empty_object(self) -> None:
        self.assertEqual(FrameCutter().feed(struct.pack('>IBH', 4, ACKED, 0) + b'x'), [(ACKED, {}, b'x')])

    def test_the_largest_frame_passes_and_one_byte_more_does_not(self) -> None:
        room = MAX_FRAME_BYTES - 3 - len('{}')
        frame = pack(RUN, {}, b'x' * room)
        self.assertEqual(len(FrameCutter().feed(frame)[0][2]), room)
        with self.assertRaises(FrameError):
            pack(RUN, {}, b'x' * (room + 1))
        with self.assertRaises(FrameError):
            pack(RUN, {'long': 'x' * 70000})

    def test_bytes_that_are_no_frame_are_refused(self) -> None:
        cases = {
            'too long': struct.pack('>I', MAX_FRAME_BYTES + 1),
            'shorter than its header': struct.pack('>IBH', 4, RUN, 2) + b'{}',
            'header is not JSON': struct.pack('>IBH', 5, RUN, 2) + b'{]',
            'header is not an object': struct.pack('>IBH', 5, RUN, 2) + b'[]',
            'header is not text': struct.pack('>IBH', 5, RUN, 2) + b'\xff\xfe',
        }
        for name, data in cases.items():
            with self.subTest(name), self.assertRaises(FrameError):
                FrameCutter().feed(data)

    def test_headers_are_json_without_spaces(self) -> None:
        frame = pack(RUN, {'a': [1, 2], 'b': None})
        self.assertEqual(frame[7:], json.dumps({'a': [1, 2], 'b': None}, separators=(',', ':')).encode())
