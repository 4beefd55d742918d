// Questions to the leader from another scheduler, over a bus that reaches both.
import { pino } from 'pino';
import { expect, test } from 'vitest';
import { AppError } from '#shared/errors.ts';
import type { Bus } from '#scheduler/cluster/bus.ts';
import { ScalingRelay } from '#scheduler/api/explain/relay.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { ReservationRow } from '#scheduler/control/plan/reservation-report.ts';
import type { ShareRow } from '#scheduler/control/plan/share-report.ts';
import type { Recording } from '#scheduler/control/placement/recordings.ts';

const RECORDING: Recording = {
  name: 'recording-1.jsonl',
  path: '/data/recordings/recording-1.jsonl',
  host: 'leading-host',
  startedAtMs: 1,
  bytes: 10,
  ended: undefined,
};

/** Two schedulers, of which the first leads. */
function aPair() {
  const handlers: ((message: unknown) => void)[] = [];
  const bus = {
    on: (_channel: string, handler: (message: unknown) => void) => handlers.push(handler),
    publish: (_channel: string, message: unknown) => {
      const sent: unknown = JSON.parse(JSON.stringify(message));
      for (const handler of handlers) handler(sent);
    },
  } as unknown as Bus;
  const [leader, other] = [true, false].map(
    (leads) =>
      new ScalingRelay({ bus, channel: 'c', isLeader: () => leads, log: pino({ enabled: false }), timeoutMs: 20 }),
  ) as [ScalingRelay, ScalingRelay];
  return { leader, other };
}

test('a recording is begun at the leader, whichever scheduler is asked', async () => {
  const { leader, other } = aPair();
  const asked: unknown[] = [];
  leader.onAskedToRecord((request) => {
    asked.push(request);
    return Promise.resolve([RECORDING]);
  });
  other.onAskedToRecord(() => Promise.reject(new Error('it does not lead')));
  for (const relay of [leader, other])
    expect(await relay.recording({ kind: 'begin', seconds: 5 })).toMatchObject([{ host: 'leading-host' }]);
  expect(asked).toEqual([1, 2].map(() => ({ kind: 'begin', seconds: 5 })));
});

test("the leader's refusal reaches the caller with its code", async () => {
  const { leader, other } = aPair();
  leader.onAskedToRecord(() => Promise.reject(new AppError('recording_under_way', 'one goes on')));
  for (const relay of [leader, other])
    await expect(relay.recording({ kind: 'list' })).rejects.toMatchObject({
      code: 'recording_under_way',
      message: 'one goes on',
    });
});

test('without an answer in time nobody leads', async () => {
  const { leader, other } = aPair();
  leader.onAskedToRecord(() => new Promise(() => {}));
  await expect(other.recording({ kind: 'end' })).rejects.toMatchObject({ code: 'not_leading' });
  leader.onAskedToRecord(() => Promise.reject(new Error('broken')));
  await expect(leader.recording({ kind: 'end' })).rejects.toMatchObject({ code: 'not_leading' });
});

test('shares of one workspace, or of all, are those that the leader counts', async () => {
  const { leader, other } = aPair();
  const row = { market: 'H100', workspaceId: 'w', used: 2 } as unknown as ShareRow;
  leader.onAskedOfShares((workspaceId) => (workspaceId === null ? [row, row] : [row]));
  for (const relay of [leader, other]) {
    expect(await relay.shares(null)).toEqual([row, row]);
    expect(await relay.shares('w' as WorkspaceId)).toEqual([row]);
  }
  leader.onAskedOfShares(() => {
    throw new Error('broken');
  });
  await expect(other.shares(null)).rejects.toMatchObject({ code: 'not_leading' });
});

test('reservations are those that the leader has', async () => {
  const { leader, other } = aPair();
  const row = { machineId: 'm-1' } as unknown as ReservationRow;
  leader.onAskedOfReservations(() => [row]);
  for (const relay of [leader, other]) expect(await relay.reservations()).toEqual([row]);
  leader.onAskedOfReservations(() => {
    throw new Error('broken');
  });
  await expect(other.reservations()).rejects.toMatchObject({ code: 'not_leading' });
});
