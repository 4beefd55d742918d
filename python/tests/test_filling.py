"""fill_once: threads and processes of one folder, killed fillers, and what is left."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from longshore import fill_once

CHILD = """
import os, sys, time
from longshore import fill_once
path, counts, slow = sys.argv[1:]
def fill(folder):
    with open(counts, 'a') as file:
        file.write('x')
    with open(os.path.join(folder, 'weights'), 'w') as file:
        file.write('half')
        file.flush()
        print('filling', flush=True)
        time.sleep(float(slow))
        file.write(' and whole')
print(open(os.path.join(fill_once(path, fill), 'weights')).read())
"""


class FillOnce(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.home = temporary.name
        self.path = os.path.join(self.home, 'models', 'phi')

    def child(self, slow='0.3'):
        command = [sys.executable, '-c', CHILD, self.path, os.path.join(self.home, 'counts'), slow]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(child.communicate)
        return child

    def counts(self):
        with open(os.path.join(self.home, 'counts')) as file:
            return len(file.read())

    def names(self):
        return sorted(os.listdir(os.path.dirname(self.path)))

    def test_ten_processes_at_once_fill_once_and_all_read_the_whole(self):
        children = [self.child() for _ in range(10)]
        for child in children:
            out, err = child.communicate(timeout=60)
            self.assertEqual((child.returncode, out.splitlines()[-1]), (0, 'half and whole'), err)
        self.assertEqual(self.counts(), 1)
        self.assertEqual(self.names(), ['.fill-phi.lock', 'phi'])

    def test_a_killed_filler_leaves_nothing_half_and_the_waiting_one_takes_over(self):
        first = self.child('60')
        self.assertEqual(first.stdout.readline(), 'filling\n')
        second = self.child('0')
        self.assertIn('this one waits', second.stderr.readline())
        self.assertFalse(os.path.exists(self.path))
        first.send_signal(signal.SIGKILL)
        out, _ = second.communicate(timeout=60)
        self.assertEqual(out, 'filling\nhalf and whole\n')
        self.assertEqual(self.names(), ['.fill-phi.lock', 'phi'])

    def test_a_failed_filler_is_raised_and_leaves_nothing(self):
        def fails(folder):
            with open(os.path.join(folder, 'part'), 'w'):
                raise OSError('the hub is away')

        with self.assertRaisesRegex(OSError, 'the hub is away'):
            fill_once(self.path, fails)
        self.assertEqual(self.names(), ['.fill-phi.lock'])
        self.assertEqual(fill_once(self.path, lambda folder: None), self.path)

    def test_threads_of_one_process_take_turns(self):
        filled = []

        def fill(folder):
            time.sleep(0.2)
            filled.append(folder)

        with mock.patch('sys.stderr'):
            threads = [threading.Thread(target=fill_once, args=(self.path, fill)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(len(filled), 1)

    def test_a_filled_folder_is_given_at_once_and_other_users_may_read_it(self):
        fill_once(self.path, lambda folder: os.makedirs(os.path.join(folder, 'a')))
        self.assertEqual(fill_once(self.path, lambda folder: self.fail('filled twice')), self.path)
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o755)


if __name__ == '__main__':
    unittest.main()
