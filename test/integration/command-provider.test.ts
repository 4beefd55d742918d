/** Providers that are programs: real processes, with their input, output, deadlines and environment. */
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { outputOf } from '#scheduler/fleet/provisioning/provider-failure.ts';
import { CommandProvider } from '#scheduler/fleet/provisioning/command-provider.ts';
import type { InstanceRequest } from '#scheduler/domain/provisioning.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { messageOf } from '#shared/errors.ts';
import { tempDirectory, test as base, waitFor } from '../helpers/services.ts';

// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
const test = base.extend('folder', async ({}, { onCleanup }): Promise<string> => {
  const directory = tempDirectory('provider');
  onCleanup(() => directory.remove());
  return directory.path;
});

function aProvider(folder: string, script: string, timeoutSeconds = 30) {
  const program = join(folder, 'program');
  writeFileSync(program, `#!/bin/sh\n${script}\n`);
  chmodSync(program, 0o755);
  const calls: unknown[] = [];
  const provider = new CommandProvider({
    name: 'p',
    settings: { command: [program, 'first'], timeoutSeconds, env: { FROM_FILE: 'yes' } },
    home: join(folder, 'home'),
    env: { PATH: process.env['PATH'], DATABASE_URL: 'postgres://secret' },
    onCalled: (...call) => calls.push(call),
  });
  return { provider, calls };
}

const REQUEST: InstanceRequest = {
  requestId: 'r1',
  installationId: 'ours',
  machineId: 'm1' as MachineId,
  poolName: 'gpu',
  shape: { gpuModel: 'L4', gpuCount: 1, cpuCores: 4, memoryMib: 16_384 },
  joinLine: "sh -c 'join'",
  userData: '#cloud-config\n',
};

test('a program gets its verb and the request, and none of the scheduler’s secrets', async ({ folder }) => {
  const { provider, calls } = aProvider(
    folder,
    `cat > input; echo "$@" > arguments; env > environment; echo '{"instanceId": "i-1", "hourlyCost": 0.5}'`,
  );
  expect(await provider.create(REQUEST)).toMatchObject({ instanceId: 'i-1', requestId: 'r1', hourlyCost: 0.5 });
  const read = (name: string): string => readFileSync(join(folder, 'home', name), 'utf8');
  expect(JSON.parse(read('input'))).toEqual(REQUEST);
  expect(read('arguments')).toBe('first create\n');
  expect(read('environment')).toMatch(/FROM_FILE=yes/);
  expect(read('environment')).not.toMatch(/DATABASE_URL/);
  expect(read('environment')).toContain(`HOME=${join(folder, 'home')}\n`);
  expect(calls).toEqual([['create', null, undefined]]);
});

test('a failure has the exit code and the end of the standard error', async ({ folder }) => {
  const { provider, calls } = aProvider(folder, `echo '{"instances": []}'; echo 'quota exceeded' >&2; exit 3`);
  await expect(provider.list('ours')).rejects.toThrow('list: ended with exit code 3: quota exceeded');
  expect(calls).toEqual([['list', 'list: ended with exit code 3: quota exceeded']]);
});

test('a failure keeps the last lines of the standard error apart, in bounds and without control characters', async ({
  folder,
}) => {
  const lines = `for i in $(seq 1 400); do echo "line $i of a trace" >&2; done; printf 'last\\033[2J\\r\\n' >&2; exit 1`;
  const failed = await aProvider(folder, lines)
    .provider.list('ours')
    .catch((error: unknown) => error);
  const output = outputOf(failed);
  expect(output.length).toBeLessThanOrEqual(2048);
  expect(output.length).toBeGreaterThan(1900);
  expect(output.split('\n').slice(-2)).toEqual(['line 400 of a trace', 'last [2J']);
  expect(output).toMatch(/^line \d+ of a trace\n/);
  expect(messageOf(failed).length).toBeLessThan(400);
  expect(messageOf(failed)).toMatch(/line 400 of a trace last \[2J$/);
  // A program that answers what is no answer may say why on its standard error, too.
  const unread = await aProvider(folder, `echo 'jq: error' >&2`)
    .provider.list('ours')
    .catch((error: unknown) => error);
  expect([messageOf(unread), outputOf(unread)]).toEqual([
    'list: its standard output is empty; JSON is expected there',
    'jq: error',
  ]);
});

test('a program that hangs is killed with everything that it started', async ({ folder }) => {
  const { provider } = aProvider(folder, 'sleep 300 & echo $! > child; wait', 1);
  await expect(provider.terminate({ instanceId: 'i', requestId: 'r' })).rejects.toThrow(/did not end within 1 s/);
  const pid = readFileSync(join(folder, 'home', 'child'), 'utf8').trim();
  const commandLine = `/proc/${pid}/cmdline`;
  await waitFor(() => !existsSync(commandLine) || readFileSync(commandLine, 'utf8') === '', 'its child has ended');
});

test('a program may leave a process behind that keeps its output, whether it ends or is killed', async ({
  folder,
  onTestFinished,
}) => {
  const pids: number[] = [];
  onTestFinished(() => {
    for (const pid of pids) process.kill(pid, 'SIGKILL');
  });
  // Out of the group, as the master of an SSH connection is.
  const daemon = 'setsid sleep 600 & echo $! > daemon';
  for (const [end, seconds] of [
    [`echo '{"instances": []}'`, 60],
    ['sleep 600', 1],
  ] as const) {
    const { provider, calls } = aProvider(folder, `${daemon}; ${end}`, seconds);
    const listed = await provider.list('ours').catch(messageOf);
    pids.push(Number(readFileSync(join(folder, 'home', 'daemon'), 'utf8')));
    const late = 'list: did not end within 1 s, and was killed';
    expect(listed).toEqual(seconds === 60 ? [] : late);
    expect(calls).toEqual([['list', seconds === 60 ? null : late, ...(seconds === 60 ? [0] : [])]]);
  }
});

test('a failure has no join token, whole or cut', async ({ folder }) => {
  const token = `lsj1.${'ab'.repeat(32)}.${'c'.repeat(600)}`;
  const request = { ...REQUEST, joinLine: `echo ${token} | sh` };
  const printed = aProvider(folder, `for i in 1 2 3 4 5 6 7 8; do echo "+ echo ${token}" >&2; done; exit 1`);
  await expect(printed.provider.create(request)).rejects.toThrow(
    /exit code 1: (\+ echo )?\[join token\].*\[join token\]$/,
  );
  expect(JSON.stringify(printed.calls)).not.toMatch(/lsj1|ccc/);
  expect(outputOf(await printed.provider.create(request).catch((error: unknown) => error))).not.toMatch(/lsj1|ccc/);
  const answered = aProvider(folder, `echo ${token}`);
  await expect(answered.provider.create(request)).rejects.toThrow(/begins with "\[join token\]"/);
});

test('a program that writes without end is stopped', async ({ folder }) => {
  const { provider } = aProvider(folder, 'cat /dev/zero');
  await expect(provider.list('ours')).rejects.toThrow(/wrote more than 8388608 bytes/);
});

test('a program that is not there is named', async ({ folder }) => {
  const provider = new CommandProvider({
    name: 'p',
    settings: { command: ['/nowhere/program'], timeoutSeconds: 5, env: {} },
    home: join(folder, 'home'),
    env: {},
  });
  await expect(provider.list('ours')).rejects.toThrow('list: /nowhere/program cannot be started: it is not there');
});
