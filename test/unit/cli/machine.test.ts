import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import type { Client } from '#cli/client.ts';
import { machineRefusal } from '#cli/commands/explain.ts';
import { admitted } from '#cli/commands/machine.ts';
import { neverJoined } from '#cli/commands/worker.ts';
import { CliError } from '#cli/errors.ts';

const SCRIPT = Buffer.from('#!/bin/sh\n');
const MADE = {
  machine: { id: '1f2e3d4c' },
  agentUpstreamUrl: 'grpcs://longshore.example:1995',
  agentUpstreamBranch: 'stable',
  agentUpstreamToken: 'lsj1.a.b',
};

/** An installation whose install script answers with that status, and whose machines have these states. */
const anInstallation = (status: number, machines: Readonly<Record<string, string>> = {}): Client =>
  ({
    context: { url: 'https://longshore.example:1994' },
    call: () => Promise.resolve({ status, body: SCRIPT }),
    gateway: (method: string, path: string) => {
      if (method === 'POST') return Promise.resolve(MADE);
      const id = path.replace('/machines?machineId=', '');
      return Promise.resolve({ machines: id in machines ? [{ id, status: machines[id] }] : [] });
    },
  }) as unknown as Client;

test('an admitted machine comes with the line that installs its agent', async () => {
  const made = await admitted(anInstallation(200), 'gpu');
  expect(made).toMatchObject(MADE);
  expect(made.installLine).toContain(createHash('sha256').update(SCRIPT).digest('hex'));
  expect(made.installLine).toMatch(
    /\{ echo 'lsj1\.a\.b'; .* --from 'https:\/\/longshore\.example:1994' --scheduler 'longshore\.example:1995'$/,
  );
});

test('without a release there is no such line', async () => {
  expect(await admitted(anInstallation(404), 'gpu')).toEqual({ ...MADE, installLine: null });
});

test('a machine that has a token only never joined', async () => {
  const client = anInstallation(200, { aaaaaaaa: 'pending', bbbbbbbb: 'disabled' });
  expect(await neverJoined(client, 'aaaaaaaa')).toBe(true);
  expect(await neverJoined(client, 'bbbbbbbb')).toBe(false);
  expect(await neverJoined(client, 'cccccccc')).toBe(false);
});

test("an explanation of a machine is refused with the command that shows it, and of nothing else's id", async () => {
  const client = anInstallation(200, { aaaaaaaa: 'available' });
  const none = new CliError('there is none');
  const refusal = await machineRefusal(client, 'aaaaaaaa', none);
  expect(refusal?.message).toMatch(/^aaaaaaaa is a machine, .*`longshore machine show aaaaaaaa`/);
  for (const reference of ['bbbbbbbb', 'hello']) expect(await machineRefusal(client, reference, none)).toBeUndefined();
});
