import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { runProgram } from '#shared/child-process.ts';

const LONG_MS = 20_000;
const shell = (
  script: string,
  options: Partial<Parameters<typeof runProgram>[2]> = {},
): ReturnType<typeof runProgram> => runProgram('/bin/sh', ['-c', script], { deadlineMs: LONG_MS, ...options });

/** A dead process may wait to be collected. */
function isAlive(pid: string): boolean {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

test('a program gives its exit code and both outputs, whole', async () => {
  expect(await shell('printf "é1\\n"; printf 2 >&2; exit 3')).toEqual({
    kind: 'ended',
    exitCode: 3,
    stdout: 'é1\n',
    stderr: '2',
  });
});

test('a program that does not exist is not started', async () => {
  expect(await runProgram('/nowhere/at/all', [], { deadlineMs: LONG_MS })).toMatchObject({
    kind: 'not_started',
    error: { code: 'ENOENT' },
  });
});

test('an error that the kernel gives at once is an outcome, too', async () => {
  const end = await runProgram('/bin/true', ['x'.repeat(4 * 1024 * 1024)], { deadlineMs: LONG_MS });
  expect(end).toMatchObject({ kind: 'not_started', error: { code: 'E2BIG' } });
});

test('a program that ended, and left its output to a process of another group, is gone at the deadline', async () => {
  const end = await shell('setsid sleep 2 & exit 0', { deadlineMs: 500 });
  if (end.kind !== 'timeout') throw new Error(`it ended: ${JSON.stringify(end)}`);
  await end.gone;
});

test('a process without a free file descriptor says so and goes on', async () => {
  const script = `
    const { openSync } = await import('node:fs');
    const { runProgram } = await import(${JSON.stringify(resolve('shared/child-process.ts'))});
    try { for (;;) openSync('/dev/null', 'r'); } catch {}
    const end = await runProgram('/bin/true', [], { deadlineMs: 5000 });
    process._rawDebug(end.kind, end.error?.code);`;
  const { stderr } = await promisify(execFile)('/bin/sh', [
    '-c',
    'ulimit -n 64; exec "$0" --input-type=module -e "$1"',
    process.execPath,
    script,
  ]);
  expect(stderr).toContain('not_started EMFILE');
});

test('at the deadline the program and its children are killed', async () => {
  let children = '';
  const end = await shell('sleep 60 & echo $! $$; sleep 60', {
    deadlineMs: 300,
    onOutput: (text) => (children = text),
  });
  if (end.kind !== 'timeout') throw new Error(`it ended: ${JSON.stringify(end)}`);
  await end.gone;
  const pids = children.trim().split(' ');
  expect(pids).toHaveLength(2);
  expect(pids).toContain(String(end.group));
  await expect.poll(() => pids.filter(isAlive)).toEqual([]);
});

test('output restarts the deadline where the caller listens to it', async () => {
  const seen: string[] = [];
  const end = await shell('for one in 1 2 3 4; do sleep 0.4; echo $one; done', {
    deadlineMs: 1000,
    onOutput: (text) => seen.push(text),
  });
  expect(end).toMatchObject({ kind: 'ended', exitCode: 0 });
  expect(seen.at(-1)).toBe('1\n2\n3\n4\n');
});

test('a program that writes without end is killed at the bound', async () => {
  const end = await shell('yes', { maxOutput: 1000 });
  if (end.kind !== 'ended') throw new Error(end.kind);
  expect({ ...end, stdout: end.stdout.length }).toEqual({ kind: 'ended', exitCode: null, stdout: 1000, stderr: '' });
});

test("systemd's socket is not passed on", async () => {
  process.env['NOTIFY_SOCKET'] = '/run/x';
  try {
    expect(await shell('echo "$NOTIFY_SOCKET"')).toMatchObject({ stdout: '\n' });
  } finally {
    delete process.env['NOTIFY_SOCKET'];
  }
});
