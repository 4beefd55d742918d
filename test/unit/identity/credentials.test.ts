import { generateKeyPairSync } from 'node:crypto';
import { expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import {
  MACHINE_CREDENTIAL_LIFE_MS,
  issueMachineCredential,
  verifyMachineCredential,
} from '../../../scheduler/workspaces/identity/machine-credentials.ts';
import { signClaims } from '../../../scheduler/workspaces/identity/jwt.ts';

function someKeys() {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  return { signingKey: privateKey, publicKey };
}
const keys = someKeys();
const machine = 'abcd1234' as MachineId;
const nowMs = 1_800_000_000_000;

test('a machine credential says whose it is, and its version, for an hour', async () => {
  const { text, expiresAtMs } = await issueMachineCredential(keys, machine, 3, nowMs);
  expect(expiresAtMs).toBe(nowMs + MACHINE_CREDENTIAL_LIFE_MS);
  expect(await verifyMachineCredential(keys, text, nowMs)).toEqual({ machineId: machine, version: 3, expiresAtMs });
  expect(await verifyMachineCredential(keys, text, expiresAtMs - 1_000)).not.toBeNull();
  // Clocks of replicas differ.
  expect(await verifyMachineCredential(keys, text, expiresAtMs + 29_000)).not.toBeNull();
  expect(await verifyMachineCredential(keys, text, expiresAtMs + 31_000)).toBeNull();
});

test('another installation, a changed text, nonsense and other kinds of token are no machine credential', async () => {
  const { text } = await issueMachineCredential(keys, machine, 1, nowMs);
  const [header = '', body = '', signature = ''] = text.split('.');
  const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${body}.`;
  const other = await signClaims(keys, { typ: 'admin', ver: 1 }, { id: 'x', subject: machine, nowMs, lifeMs: 60_000 });
  expect(await verifyMachineCredential(someKeys(), text, nowMs)).toBeNull();
  for (const bad of [
    unsigned,
    other,
    '',
    'a.b.c',
    `${header}.${body}`,
    `${header}.${body}.${signature}x`,
    'x'.repeat(9_999),
  ]) {
    expect(await verifyMachineCredential(keys, bad, nowMs)).toBeNull();
  }
});
