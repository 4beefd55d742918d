/** Keys that change: the key that signs tokens, on two replicas, and the file with the key that seals all secrets. */
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { AppError } from '#shared/errors.ts';
import { openInstallation } from '../../scheduler/workspaces/identity/installation.ts';
import { createInvalidation } from '../../scheduler/workspaces/identity/invalidation.ts';
import { keyIdOf } from '../../scheduler/workspaces/identity/jwt.ts';
import {
  issueMachineCredential,
  machineSigner,
  verifyMachineCredential,
} from '../../scheduler/workspaces/identity/machine-credentials.ts';
import { sealAnew } from '../../scheduler/workspaces/identity/seal-anew.ts';
import { createTokens } from '../../scheduler/workspaces/identity/tokens.ts';
import { createWorkspace, signingKeyOf } from '../../scheduler/workspaces/identity/workspaces.ts';
import { createSealer } from '../../scheduler/workspaces/secrets/seal.ts';
import { Secrets } from '../../scheduler/workspaces/secrets/service.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Db } from '../../scheduler/stores/store/db.ts';
import { workspaceById } from '../../scheduler/stores/store/queries/workspaces.ts';
import type { WorkspaceRow } from '../../scheduler/stores/store/queries/workspaces.ts';
import { test } from '../helpers/services.ts';
import type { PrivateRedis } from '../helpers/redis.ts';
import { KINDS, aDb, silent } from './store-fixture.ts';
import type { OpenedDb } from './store-fixture.ts';

const OLD = new Uint8Array(32).fill(7);
const NEW = new Uint8Array(32).fill(8);
const sealer = createSealer(OLD);

describe.each(KINDS)('on %s', (kind) => {
  let opened: OpenedDb;
  let db: Db;
  let workspace: WorkspaceRow;
  beforeAll(async () => {
    opened = await aDb(kind);
    db = opened.db;
    await openInstallation(db, sealer);
    workspace = await createWorkspace(db, sealer);
  });
  afterAll(() => opened.stop());

  async function aReplica(redis: PrivateRedis) {
    const invalidation = createInvalidation({
      publisher: redis.connect({ enableOfflineQueue: false }),
      subscriber: redis.connect(),
      log: silent,
    });
    await invalidation.start();
    const installation = await openInstallation(db, sealer);
    installation.ring.attach(invalidation);
    return { installation, invalidation, tokens: createTokens({ db, installation, invalidation }) };
  }

  test('a newer key signs, what older ones signed stays good until they are retired, at once on every replica', async ({
    redis,
  }) => {
    const [here, there] = [await aReplica(redis), await aReplica(redis)];
    const owner = { workspaceId: workspace.id };
    const before = await here.tokens.issue(owner, 'workspace');
    const machine = 'm1' as MachineId;
    const credential = await issueMachineCredential(there.installation, machine, 1);
    const upload = here.installation.deriveKeys('u')[0];
    expect(keyIdOf(before.token)).toBeNull();

    const made = await here.installation.ring.rotate();
    expect(made).toMatchObject({ signs: true, retiredAtMs: null, activeTokens: 0 });
    const after = await here.tokens.issue(owner, 'workspace');
    expect(keyIdOf(after.token)).toBe(made.id);
    for (const { tokens, installation } of [here, there]) {
      expect(await tokens.authenticate(before.token)).toMatchObject({ tokenId: before.row.id });
      expect(await tokens.authenticate(after.token)).toMatchObject({ tokenId: after.row.id });
      expect(await verifyMachineCredential(installation, credential.text)).toMatchObject({ machineId: machine });
      expect(installation.deriveKeys('u').map((key) => Buffer.from(key).toString('hex'))).toContain(
        Buffer.from(upload).toString('hex'),
      );
    }
    expect(keyIdOf((await there.tokens.issue(owner, 'workspace')).token)).toBe(made.id);
    expect(await there.installation.ring.list()).toMatchObject([
      { id: 'first', signs: false, activeTokens: 1 },
      { id: made.id, signs: true, activeTokens: 2 },
    ]);

    await expect(here.installation.ring.retire(made.id)).rejects.toMatchObject({ code: 'signing_key_in_use' });
    await expect(here.installation.ring.retire('0123456789ab')).rejects.toMatchObject({
      code: 'signing_key_not_found',
    });
    await expect(here.installation.ring.retire('\0')).rejects.toMatchObject({ code: 'signing_key_not_found' });
    await here.installation.ring.retire('first');
    for (const { tokens, installation } of [there, here]) {
      expect(await tokens.authenticate(before.token)).toBeNull();
      expect(await tokens.authenticate(after.token)).not.toBeNull();
      expect(await verifyMachineCredential(installation, credential.text)).toBeNull();
      expect(installation.deriveKeys('u')).toHaveLength(1);
    }
    // Agents know the installation by its first key, independent of the key that signs tokens.
    const statement = await machineSigner(there.installation).revoke(machine);
    expect(keyIdOf(statement)).toBeNull();
    // A start after all that accepts and refuses the same tokens.
    const later = createTokens({ db, installation: await openInstallation(db, sealer) });
    expect(await later.authenticate(before.token)).toBeNull();
    expect(await later.authenticate(after.token)).not.toBeNull();
    await here.invalidation.stop();
    await there.invalidation.stop();
  });

  test('a replica that hears no messages finds a key that it does not know, and drops one that was retired', async () => {
    let ms = 0;
    const clock = { nowMs: () => Date.now(), monotonicMs: () => performance.now() + ms };
    const deaf = await openInstallation(db, sealer, Date.now(), clock);
    const other = await openInstallation(db, sealer);
    const tokens = () => createTokens({ db, installation: deaf });
    const made = await other.ring.rotate();
    const issued = await createTokens({ db, installation: other }).issue({ workspaceId: workspace.id }, 'workspace');
    expect(keyIdOf(issued.token)).toBe(made.id);
    // Unknown key ids cause at most one query a second.
    expect(await tokens().authenticate(issued.token)).toBeNull();
    ms += 1_000;
    expect(await tokens().authenticate(issued.token)).toMatchObject({ tokenId: issued.row.id });
  });

  test('another key file opens everything once the former one was named beside it', async () => {
    const secrets = new Secrets(db, sealer);
    await secrets.create(workspace.id, 'API_KEY', 'hidden');
    const text = signingKeyOf(workspace, sealer);
    const { caFingerprint } = await openInstallation(db, sealer);

    const stranger = createSealer(NEW, new Uint8Array(32).fill(9));
    await expect(sealAnew(db, stranger, silent)).rejects.toMatchObject({
      code: 'secret_key_mismatch',
      message: expect.stringContaining('LONGSHORE_SECRET_KEY_FILE_PREVIOUS') as string,
    });
    expect((await openInstallation(db, sealer)).caFingerprint).toBe(caFingerprint);

    const both = createSealer(NEW, OLD);
    await sealAnew(db, both, silent);
    await sealAnew(db, both, silent);
    const alone = createSealer(NEW);
    const installation = await openInstallation(db, alone);
    expect(installation.caFingerprint).toBe(caFingerprint);
    expect(await installation.ring.list()).not.toEqual([]);
    const row = await workspaceById(db, workspace.id);
    if (row === undefined) throw new Error('the workspace is gone');
    expect(signingKeyOf(row, alone)).toBe(text);
    expect(await new Secrets(db, alone).valuesOf(workspace.id, ['API_KEY'])).toEqual({
      kind: 'values',
      values: { API_KEY: 'hidden' },
    });
    expect(() => signingKeyOf(row, sealer)).toThrow(AppError);
    // The other tests of this file need the old key again.
    await sealAnew(db, createSealer(OLD, NEW), silent);
  });
});
