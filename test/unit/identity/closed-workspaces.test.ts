// Tokens of a workspace that is being deleted, as a replica hears of it: containers' tokens have no row that says so.
import { generateKeyPairSync } from 'node:crypto';
import { expect, test } from 'vitest';
import { newId } from '#shared/domain/ids.ts';
import type { ContainerId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Queryable } from '#scheduler/stores/store/db.ts';
import { ClosedWorkspaces } from '#scheduler/workspaces/identity/closed-workspaces.ts';
import type { Invalidation } from '#scheduler/workspaces/identity/invalidation.ts';
import { createTokens } from '#scheduler/workspaces/identity/tokens.ts';
import { pino } from 'pino';

const { privateKey: signingKey, publicKey } = generateKeyPairSync('ed25519');

/** Messages that the test sends, and a database that has those workspaces as being deleted. */
function aReplica(deleting: readonly WorkspaceId[] = []) {
  let tell = (_id: string): unknown => undefined;
  let lost = (): void => undefined;
  const invalidation: Pick<Invalidation, 'on' | 'onReset'> = {
    on: (kind, handler) => void (kind === 'workspace_deleted' && (tell = handler)),
    onReset: (handler) => void (lost = handler),
  };
  const db: Queryable = {
    query: <R>() => Promise.resolve({ rows: deleting.map((id) => ({ id })) as R[], rowCount: deleting.length }),
  };
  const closed = new ClosedWorkspaces(db, invalidation, pino({ level: 'silent' }));
  const tokens = createTokens({
    db,
    installation: { signingKey, publicKey },
    isContainerLive: () => true,
    isClosed: (id) => closed.has(id),
  });
  return { closed, tokens, tell: (id: string) => tell(id), lost: () => lost() };
}
const containerOf = (workspaceId: WorkspaceId) => ({
  containerId: 'endpoint-s-1' as ContainerId,
  stubId: newId<StubId>(),
  deploymentId: null,
  workspaceId,
  epoch: 1,
  sinceMs: Date.now(),
});

test('the token of a container stops with its workspace, known before or not; others go on', async () => {
  const { tokens, tell } = aReplica();
  const [gone, stays] = [newId<WorkspaceId>(), newId<WorkspaceId>()];
  const token = await tokens.issueContainerToken(containerOf(gone));
  const unseen = await tokens.issueContainerToken({ ...containerOf(gone), epoch: 2 });
  const others = await tokens.issueContainerToken(containerOf(stays));
  expect(await tokens.authenticate(token)).toMatchObject({ workspaceId: gone });
  tell(gone);
  for (const one of [token, unseen]) {
    expect(await tokens.authenticate(one)).toBeNull();
    expect(await tokens.look(one)).toBeNull();
  }
  expect(tokens.peek(token)).toBeNull();
  expect(await tokens.authenticate(others)).toMatchObject({ workspaceId: stays });
});

test('a replica that starts, or missed messages, reads them from the database', async () => {
  const gone = newId<WorkspaceId>();
  const started = aReplica([gone]);
  expect(started.closed.has(gone)).toBe(false);
  await started.closed.start();
  expect(started.closed.has(gone)).toBe(true);
  const behind = aReplica([gone]);
  behind.lost();
  await expect.poll(() => behind.closed.has(gone)).toBe(true);
});
