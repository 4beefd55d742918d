// Rows of machines, on the database of `store.test.ts`.
import { createHash, randomBytes } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Db } from '../../../scheduler/stores/store/db.ts';
import {
  deleteMachine,
  listMachines,
  machineById,
  recordHello,
  updateMachine,
} from '../../../scheduler/stores/store/queries/machines.ts';
import {
  expireJoinSecrets,
  insertMachine,
  joinMachine,
  renewJoinSecret,
} from '../../../scheduler/stores/store/queries/machine-joins.ts';
import {
  offerCredential,
  replaceCredentials,
  useCredential,
} from '../../../scheduler/stores/store/queries/machine-credentials.ts';
import { getOrCreatePool } from '../../../scheduler/stores/store/queries/pools.ts';

/** @param of - the database, which is open when the tests run */
export function machineTests(of: () => Db): void {
  describe('machines', () => {
    let db: Db;
    beforeAll(() => {
      db = of();
    });

    const sha256 = (text: string): Uint8Array => createHash('sha256').update(text).digest();
    const nowMs = Date.now();
    async function aMachine(secret: string, joinExpiresAtMs = nowMs + 60_000) {
      const pool = await getOrCreatePool(db, { name: 'default', workspaceId: null });
      const id = randomBytes(4).toString('hex') as MachineId;
      return insertMachine(db, { id, poolId: pool.id, joinSecretHash: sha256(secret), joinExpiresAtMs });
    }
    const join = (secret: string, nonce: string, fingerprint = 'f', atMs = nowMs) =>
      joinMachine(db, {
        secretHash: sha256(secret),
        nonce,
        fingerprint,
        publicKey: 'k',
        hostname: 'host',
        agentVersion: '1',
        nowMs: atMs,
      });

    test('a join secret is burned by its first use; the same nonce gets the same answer for ten minutes', async () => {
      const machine = await aMachine('s1');
      const first = await join('s1', 'n1');
      expect(first).toMatchObject({ id: machine.id, fingerprint: 'f', credentialVersion: 1, poolName: 'default' });
      expect((await join('s1', 'n1', 'f', nowMs + 599_000))?.credentialVersion).toBe(1);
      expect(await join('s1', 'n1', 'f', nowMs + 601_000)).toBeUndefined();
      expect(await join('s1', 'n2')).toBeUndefined();
      expect(await join('s1', 'n1', 'another')).toBeUndefined();
      expect(await join('wrong', 'n1')).toBeUndefined();
    });

    test('of many that join with one secret one wins', async () => {
      await aMachine('s2');
      const outcomes = await Promise.all(
        Array.from({ length: 6 }, (_value, index) => join('s2', `n${index}`, `f${index}`)),
      );
      expect(outcomes.filter((row) => row !== undefined)).toHaveLength(1);
    });

    test('an expired secret is refused, shown as EXPIRED, and can be renewed', async () => {
      const machine = await aMachine('s3', nowMs - 1);
      expect(await join('s3', 'n')).toBeUndefined();
      expect(await expireJoinSecrets(db, nowMs)).toBeGreaterThanOrEqual(1);
      expect((await machineById(db, machine.id))?.health).toBe('EXPIRED');
      expect((await renewJoinSecret(db, machine.id, sha256('s4'), nowMs + 60_000))?.health).toBe('PENDING');
      expect((await join('s4', 'n'))?.id).toBe(machine.id);
      expect(await renewJoinSecret(db, machine.id, sha256('s5'), nowMs + 60_000)).toBeUndefined();
    });

    test('an offered credential takes the place of the one before when it is used, and is offered again until then', async () => {
      const { id } = await aMachine('s7');
      await join('s7', 'n');
      expect((await offerCredential(db, id, nowMs))?.credentialNext).toBe(2);
      expect(await offerCredential(db, id, nowMs + 60_000)).toMatchObject({
        credentialVersion: 1,
        credentialNext: 2,
        credentialNextAtMs: nowMs,
      });
      expect(await useCredential(db, id, 3)).toBeUndefined();
      expect(await useCredential(db, id, 2)).toMatchObject({ credentialVersion: 2, credentialNext: null });
      await offerCredential(db, id, nowMs);
      expect(await replaceCredentials(db, id)).toMatchObject({ credentialVersion: 4, credentialNext: null });
      expect(await useCredential(db, id, 3)).toBeUndefined();
    });

    test('an agent that comes back after another has taken its place is noted, one that only starts anew is not', async () => {
      const { id } = await aMachine('s8');
      const hello = (agentInstance: string) =>
        recordHello(db, {
          id,
          bootId: 'b',
          agentVersion: '1',
          hostname: 'h',
          inventory: {},
          conditions: [],
          replica: null,
          agentInstance,
        });
      for (const instance of ['a', 'a', 'b', 'c', 'd', 'e']) expect((await hello(instance))?.contestedAtMs).toBeNull();
      // Only the last four instances are remembered.
      expect((await hello('a'))?.contestedAtMs).toBeNull();
      expect((await hello('e'))?.contestedAtMs).not.toBeNull();
    });

    test('an older session changes nothing, and a deleted machine is gone', async () => {
      const machine = await aMachine('s6');
      const hello = {
        id: machine.id,
        bootId: 'b',
        agentVersion: '1',
        hostname: 'h',
        inventory: { cpu: 4 },
        conditions: ['DiskPressure'],
        replica: null,
        agentInstance: 'a',
      };
      const first = await recordHello(db, hello);
      const second = await recordHello(db, hello);
      expect(second?.sessionEpoch).toBe((first?.sessionEpoch ?? 0) + 1);
      const old = first?.sessionEpoch ?? 0;
      expect(await updateMachine(db, machine.id, { health: 'READY', ifSessionEpoch: old })).toBe(false);
      expect(
        await updateMachine(db, machine.id, { health: 'READY', conditions: ['DiskPressure'], ifSessionEpoch: old + 1 }),
      ).toBe(true);
      expect(await machineById(db, machine.id)).toMatchObject({
        health: 'READY',
        conditions: ['DiskPressure'],
        inventory: { cpu: 4 },
        intent: 'active',
      });
      expect((await recordHello(db, hello))?.conditions).toEqual(['DiskPressure']);
      expect((await recordHello(db, { ...hello, conditions: [] }))?.conditions).toEqual([]);
      expect(await deleteMachine(db, machine.id)).toBe(true);
      expect(await machineById(db, machine.id)).toBeUndefined();
      expect((await listMachines(db)).some((row) => row.id === machine.id)).toBe(false);
      expect(await join('s6', 'n')).toBeUndefined();
    });
  });
}
