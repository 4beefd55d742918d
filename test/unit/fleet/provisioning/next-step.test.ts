import { describe, expect, test } from 'vitest';
import type { Instance } from '#scheduler/domain/provisioning.ts';
import { RULES, UNSEEN, nextStep, retryAfterMs } from '#scheduler/fleet/provisioning/next-step.ts';
import type { MachineFacts, Present, Seen } from '#scheduler/fleet/provisioning/next-step.ts';
import { backOff, poolCapacity } from '#scheduler/fleet/provisioning/pool-capacity.ts';
import { failureOf } from '#scheduler/fleet/provisioning/steps.ts';
import { provisionedAfter } from '#scheduler/fleet/provisioning/states.ts';
import type { EndWhy, ProvisionedRow } from '#scheduler/fleet/provisioning/states.ts';
import type { MachineId } from '#shared/domain/ids.ts';
import { randomFrom } from '../../../helpers/unruly-cloud.ts';

const T = 1_800_000_000_000;
const MINUTE = 60_000;

const aRow = (over: Partial<ProvisionedRow> = {}): ProvisionedRow => ({
  requestId: 'r1',
  poolId: 1,
  poolName: 'gpu',
  poolWorkspaceId: null,
  machineId: 'm1' as MachineId,
  provider: 'p',
  state: 'requested',
  shape: { gpuModel: '', gpuCount: 0, cpuCores: 1, memoryMib: 1024 },
  reason: '',
  joinToken: null,
  instanceId: null,
  address: null,
  hourlyCost: null,
  endsAtMs: null,
  creates: 0,
  calledAtMs: null,
  terminatedAtMs: null,
  failures: 0,
  failedAtMs: null,
  failure: null,
  endWhy: null,
  drainUntilMs: null,
  revision: 1,
  requestedAtMs: T,
  createdAtMs: null,
  joinedAtMs: null,
  endedAtMs: null,
  ...over,
});
const aMachine = (over: Partial<MachineFacts> = {}): MachineFacts => ({
  isJoined: false,
  isReady: false,
  blockedBy: [],
  isConnected: false,
  isLost: false,
  silentMs: 0,
  intent: 'active',
  drainedMs: 0,
  isOccupied: false,
  ...over,
});
const anInstance = (over: Partial<Instance> = {}): Instance => ({
  instanceId: 'i1',
  requestId: 'r1',
  state: 'running',
  address: null,
  hourlyCost: null,
  endsAtMs: null,
  ...over,
});
const at = (nowMs: number, over: Partial<Present> = {}): Present => ({
  nowMs,
  leadingSinceMs: T - 60 * MINUTE,
  notBeforeMs: 0,
  callEndsMs: 0,
  isProviderKnown: true,
  ...over,
});
const absent = (absences: number, sinceMs = T): Seen => ({ instance: null, absences, absentSinceMs: sinceMs });
const there = (over: Partial<Instance> = {}): Seen => ({ instance: anInstance(over), absences: 0, absentSinceMs: 0 });

describe('a create that failed', () => {
  const row = aRow({ state: 'creating', creates: 1, calledAtMs: T });
  test('is not repeated before two listings without the instance', () => {
    expect(nextStep(row, aMachine(), UNSEEN, at(T + MINUTE))).toEqual({ kind: 'look' });
    expect(nextStep(row, aMachine(), absent(1), at(T + MINUTE))).toEqual({ kind: 'look' });
    expect(nextStep(row, aMachine(), absent(2), at(T + MINUTE))).toEqual({ kind: 'create' });
  });
  test('is not repeated while a call of another process may run', () => {
    const step = nextStep(row, aMachine(), absent(2), at(T + MINUTE, { callEndsMs: T + 2 * MINUTE }));
    expect(step).toEqual({ kind: 'wait', untilMs: T + 2 * MINUTE });
  });
  test('waits for the back-off of its pool', () => {
    const step = nextStep(row, aMachine(), absent(2), at(T + MINUTE, { notBeforeMs: T + 2 * MINUTE }));
    expect(step).toEqual({ kind: 'wait', untilMs: T + 2 * MINUTE });
  });
  test('takes over the instance that a listing shows', () => {
    expect(nextStep(row, aMachine(), there(), at(T + MINUTE))).toMatchObject({ kind: 'made' });
  });
  test('is given up after three calls', () => {
    const third = { ...row, creates: RULES.mostCreates };
    expect(nextStep(third, aMachine(), absent(2), at(T + MINUTE))).toEqual({ kind: 'end', why: 'not_created' });
  });
  test('is forgotten when its instance is ready, and is not repeated once its agent has joined', () => {
    const joined = aMachine({ isJoined: true });
    expect(nextStep(row, { ...joined, isReady: true }, UNSEEN, at(T + MINUTE))).toEqual({ kind: 'join' });
    expect(nextStep(row, joined, absent(9), at(T + MINUTE))).toEqual({ kind: 'wait', untilMs: T + RULES.joinWithinMs });
    expect(nextStep(row, joined, there(), at(T + MINUTE))).toMatchObject({ kind: 'made' });
    const end = { kind: 'end', why: 'never_joined' };
    expect(nextStep(row, joined, absent(9), at(T + RULES.joinWithinMs))).toEqual(end);
  });
});

describe('an instance', () => {
  const created = aRow({ state: 'created', creates: 1, instanceId: 'i1', createdAtMs: T });
  const joined = aRow({ ...created, state: 'joined', joinedAtMs: T });
  test('that does not join within 15 minutes ends', () => {
    const joinByMs = T + RULES.joinWithinMs;
    expect(nextStep(created, aMachine(), there(), at(joinByMs - 1))).toEqual({ kind: 'wait', untilMs: joinByMs });
    expect(nextStep(created, aMachine(), there(), at(joinByMs))).toEqual({ kind: 'end', why: 'never_joined' });
  });
  test('counts as joined only when its machine can take containers, and ends where it cannot for 15 minutes', () => {
    const late = T + RULES.joinWithinMs;
    const joining = aMachine({ isJoined: true });
    const blocked = { ...joining, isConnected: true, blockedBy: ['DiskPressure'] };
    for (const machine of [joining, blocked, { ...joining, isLost: true, silentMs: 60 * MINUTE }]) {
      expect(nextStep(created, machine, there(), at(late - 1))).toEqual({ kind: 'wait', untilMs: late });
      expect(nextStep(created, machine, there(), at(late))).toEqual({ kind: 'end', why: 'never_joined' });
    }
    expect(nextStep(created, blocked, there({ state: 'gone' }), at(T + MINUTE)).kind).toBe('wait');
    const ready = { ...blocked, isReady: true, blockedBy: [] };
    expect(nextStep(created, ready, there(), at(T + MINUTE))).toEqual({ kind: 'join' });
    // An earlier leader saw it ready, and placed a container there.
    expect(nextStep(created, { ...blocked, isOccupied: true }, there(), at(late))).toEqual({ kind: 'join' });
  });
  test('whose end fails its pool says why', () => {
    expect(failureOf('never_joined', undefined)).toMatch(/agent did not join within 15 min$/);
    const blocked = { isJoined: true, blockedBy: ['DiskPressure', 'ClockSkew'] };
    expect(failureOf('never_joined', blocked)).toMatch(/joined, and could not .* 15 min \(DiskPressure, ClockSkew\)$/);
    expect(failureOf('idle', blocked)).toBeNull();
  });
  test('that listings omit counts as gone after three, over two minutes', () => {
    expect(nextStep(created, aMachine(), absent(3), at(T + MINUTE)).kind).toBe('wait');
    expect(nextStep(created, aMachine(), absent(2), at(T + 5 * MINUTE)).kind).toBe('wait');
    expect(nextStep(created, aMachine(), absent(3), at(T + 2 * MINUTE))).toEqual({ kind: 'end', why: 'instance_gone' });
  });
  test('whose agent is connected is there, whatever its provider lists', () => {
    const machine = aMachine({ isJoined: true, isConnected: true });
    expect(nextStep(joined, machine, absent(99), at(T + 60 * MINUTE)).kind).toBe('wait');
    expect(nextStep(joined, machine, there({ state: 'gone' }), at(T + 60 * MINUTE)).kind).toBe('wait');
    const silent = { ...machine, isConnected: false };
    expect(nextStep(joined, silent, there({ state: 'gone' }), at(T))).toEqual({ kind: 'end', why: 'instance_gone' });
  });
  test('that its provider takes back drains before that', () => {
    const noticed = { ...joined, endsAtMs: T + 2 * MINUTE };
    const machine = aMachine({ isJoined: true, isConnected: true });
    const leave = { kind: 'leave', why: 'spot_notice', drainUntilMs: T + 2 * MINUTE - RULES.noticeMarginMs };
    expect(nextStep(noticed, machine, there(), at(T))).toEqual(leave);
    const leaving = aRow({ ...noticed, state: 'leaving', endWhy: 'spot_notice', drainUntilMs: leave.drainUntilMs });
    expect(nextStep(leaving, machine, there(), at(T))).toEqual({ kind: 'drain' });
    const drained = { ...machine, intent: 'drained' };
    expect(nextStep(leaving, drained, there(), at(T))).toEqual({ kind: 'end', why: 'spot_notice' });
    const busy = { ...machine, intent: 'draining', isOccupied: true };
    expect(nextStep(leaving, busy, there(), at(T + MINUTE)).kind).toBe('wait');
    expect(nextStep(leaving, busy, there(), at(T + 2 * MINUTE))).toEqual({ kind: 'end', why: 'spot_notice' });
  });
  test('with a far end stays until 30 minutes before', () => {
    const day = { ...joined, endsAtMs: T + 24 * 60 * MINUTE };
    const machine = aMachine({ isJoined: true, isConnected: true });
    const fromMs = day.endsAtMs - RULES.noticeLeadMs;
    expect(nextStep(day, machine, there(), at(T))).toEqual({ kind: 'wait', untilMs: fromMs });
    expect(nextStep(day, machine, there(), at(fromMs))).toMatchObject({ kind: 'leave', why: 'spot_notice' });
  });
  test('of a machine that is lost for long ends, but not right after a change of leader', () => {
    const lost = aMachine({ isJoined: true, isLost: true, silentMs: RULES.lostAfterMs });
    expect(nextStep(joined, lost, there(), at(T))).toEqual({ kind: 'end', why: 'lost' });
    expect(nextStep(joined, lost, there(), at(T, { leadingSinceMs: T - 1000 })).kind).toBe('wait');
    expect(nextStep(joined, { ...lost, silentMs: MINUTE }, there(), at(T)).kind).toBe('wait');
  });
  test('of a machine that somebody deleted ends', () => {
    for (const state of ['requested', 'creating', 'created', 'joined', 'leaving'] as const)
      expect(nextStep({ ...joined, state }, undefined, there(), at(T))).toEqual({
        kind: 'end',
        why: 'machine_deleted',
      });
  });
});

describe('an end', () => {
  const row = aRow({ state: 'terminating', creates: 1, instanceId: 'i1', endWhy: 'idle' });
  test('terminates, deletes the machine, and waits for a listing without the instance', () => {
    expect(nextStep(row, aMachine(), UNSEEN, at(T))).toEqual({ kind: 'terminate', instanceId: 'i1' });
    const terminated = { ...row, terminatedAtMs: T };
    expect(nextStep(terminated, aMachine(), UNSEEN, at(T))).toEqual({ kind: 'delete_machine' });
    expect(nextStep(terminated, undefined, UNSEEN, at(T))).toEqual({ kind: 'look' });
    expect(nextStep(terminated, undefined, there({ state: 'stopping' }), at(T + 1)).kind).toBe('wait');
    expect(nextStep(terminated, undefined, absent(1), at(T + 1))).toEqual({ kind: 'over' });
  });
  test('is tried again after a failure, and when the instance does not stop', () => {
    const failed = { ...row, failures: 1, failedAtMs: T };
    expect(nextStep(failed, aMachine(), UNSEEN, at(T + 1)).kind).toBe('wait');
    expect(nextStep(failed, aMachine(), UNSEEN, at(T + RULES.retryBaseMs)).kind).toBe('terminate');
    const stubborn = { ...row, terminatedAtMs: T };
    expect(nextStep(stubborn, undefined, there(), at(T + RULES.stopWithinMs)).kind).toBe('terminate');
  });
  test('is tried again after the last call of terminate, which keeps the time of a failed end', () => {
    const failed = aRow({ ...row, endWhy: 'never_joined', failures: 2, failedAtMs: T, calledAtMs: T + MINUTE });
    const endedMs = T + 2 * MINUTE;
    const againMs = endedMs + retryAfterMs(2);
    const after = (nowMs: number) => nextStep(failed, aMachine(), UNSEEN, at(nowMs, { callEndsMs: endedMs }));
    expect(after(endedMs + 1)).toEqual({ kind: 'wait', untilMs: againMs });
    expect(after(againMs).kind).toBe('terminate');
  });
  test('of a deleted machine needs no listing where none works for 15 minutes', () => {
    const terminated = { ...row, calledAtMs: T, terminatedAtMs: T };
    const untold = { ...row, instanceId: null, calledAtMs: T };
    const lateMs = T + RULES.unlistedMs;
    for (const [one, left] of [
      [terminated, /i1 may still run$/],
      [untold, /the tag r1 may still run$/],
    ] as const) {
      expect(nextStep(one, undefined, UNSEEN, at(lateMs - 1))).toEqual({ kind: 'look' });
      expect(nextStep(one, undefined, UNSEEN, at(lateMs, { leadingSinceMs: T + 1 }))).toEqual({ kind: 'look' });
      const over = { kind: 'over', failure: expect.stringMatching(left) };
      expect(nextStep(one, undefined, UNSEEN, at(lateMs))).toEqual(over);
    }
    expect(nextStep(untold, undefined, absent(1, T + 1), at(lateMs))).toEqual({ kind: 'look' });
    // A machine that nobody deleted keeps its row: its instance may cost money.
    expect(nextStep(untold, aMachine(), UNSEEN, at(lateMs))).toEqual({ kind: 'look' });
    expect(nextStep({ ...terminated, terminatedAtMs: null }, undefined, UNSEEN, at(lateMs)).kind).toBe('terminate');
  });
  test('of a request that nothing was called for needs no provider', () => {
    const uncalled = aRow({ state: 'terminating', endWhy: 'machine_deleted' });
    expect(nextStep(uncalled, undefined, UNSEEN, at(T))).toEqual({ kind: 'over' });
  });
  test('terminates the second instance of the request, too', () => {
    const terminated = { ...row, terminatedAtMs: T };
    const step = nextStep(terminated, undefined, there({ instanceId: 'i2' }), at(T + 1));
    expect(step).toEqual({ kind: 'terminate', instanceId: 'i2' });
  });
  test('without a known instance waits for three listings', () => {
    const unknown = { ...row, instanceId: null };
    expect(nextStep(unknown, undefined, absent(2), at(T))).toEqual({ kind: 'look' });
    expect(nextStep(unknown, undefined, absent(3), at(T))).toEqual({ kind: 'over' });
    expect(nextStep(unknown, undefined, there(), at(T))).toEqual({ kind: 'terminate', instanceId: 'i1' });
  });
});

describe('a provider that the installation has no more', () => {
  const unknown = { isProviderKnown: false };
  const lateMs = T + RULES.createWithinMs;
  test('is called for nothing, and requests end after ten minutes', () => {
    for (const row of [aRow(), aRow({ state: 'creating', creates: 1, calledAtMs: T })])
      for (const seen of [UNSEEN, absent(2)]) {
        expect(nextStep(row, aMachine(), seen, at(T, unknown))).toEqual({ kind: 'wait', untilMs: lateMs });
        expect(nextStep(row, aMachine(), seen, at(lateMs, unknown))).toEqual({ kind: 'end', why: 'not_created' });
      }
  });
  test('keeps no row that ends', () => {
    const asked = aRow({ state: 'terminating', creates: 1, endWhy: 'not_created' });
    expect(nextStep(asked, undefined, UNSEEN, at(T, unknown))).toEqual({ kind: 'wait', untilMs: lateMs });
    expect(nextStep(asked, aMachine(), UNSEEN, at(lateMs, unknown))).toEqual({ kind: 'delete_machine' });
    expect(nextStep(asked, undefined, UNSEEN, at(lateMs, unknown))).toEqual({ kind: 'over' });
    const made = { ...asked, instanceId: 'i1', endWhy: 'idle' as const };
    const failure = 'no provider p is configured: i1 may still run';
    expect(nextStep(made, undefined, UNSEEN, at(lateMs, unknown))).toEqual({ kind: 'over', failure });
    expect(nextStep({ ...made, terminatedAtMs: T }, undefined, UNSEEN, at(lateMs, unknown))).toEqual({ kind: 'over' });
  });
  test('leaves machines that joined as they are', () => {
    const joined = aRow({ state: 'joined', creates: 1, instanceId: 'i1', createdAtMs: T, joinedAtMs: T });
    const machine = aMachine({ isJoined: true, isConnected: true });
    expect(nextStep(joined, machine, UNSEEN, at(lateMs, unknown)).kind).toBe('wait');
  });
});

test('every step of random facts is one that the table takes', () => {
  const random = randomFrom(1);
  const pick = <T>(of: readonly T[]): T => of[Math.floor(random() * of.length)] as T;
  const EVENTS = { create: 'call', made: 'made', join: 'join', leave: 'leave', end: 'end' } as const;
  for (let seed = 0; seed < 10_000; seed += 1) {
    const state = pick(['requested', 'creating', 'created', 'joined', 'leaving', 'terminating'] as const);
    const row = aRow({
      state,
      creates: state === 'requested' ? 0 : pick([1, 2, 3]),
      instanceId: pick([null, 'i1']),
      endsAtMs: pick([null, T + MINUTE]),
      terminatedAtMs: pick([null, T]),
      failures: pick([0, 1, 9]),
      failedAtMs: pick([null, T]),
      drainUntilMs: pick([null, T + MINUTE]),
      createdAtMs: pick([null, T]),
    });
    const machine = pick([
      undefined,
      aMachine({
        isJoined: random() < 0.5,
        isReady: random() < 0.5,
        isOccupied: random() < 0.5,
        isConnected: random() < 0.5,
        isLost: random() < 0.5,
        intent: pick(['active', 'draining', 'drained']),
        silentMs: random() * 60 * MINUTE,
      }),
    ]);
    const seen = pick([UNSEEN, absent(1), absent(5), there(), there({ state: 'gone' }), there({ state: 'stopping' })]);
    const now = at(T + random() * 40 * MINUTE, {
      callEndsMs: pick([0, T + MINUTE]),
      notBeforeMs: pick([0, T + MINUTE]),
      isProviderKnown: random() < 0.8,
    });
    const step = nextStep(row, machine, seen, now);
    if (step.kind in EVENTS) expect(provisionedAfter(state, EVENTS[step.kind as keyof typeof EVENTS])).toBeDefined();
    if (step.kind === 'over') expect(provisionedAfter(state, 'over')).toBe('gone');
    if (!now.isProviderKnown) expect(['create', 'terminate', 'look']).not.toContain(step.kind);
    // The rule against doubles.
    if (step.kind === 'create') expect(row.creates === 0 || seen.absences >= RULES.looksBeforeRepeat).toBe(true);
    if (step.kind === 'create' || step.kind === 'wait') continue;
    if (step.kind === 'end' && machine?.isConnected === true && state === 'joined')
      expect(['drained', 'machine_deleted']).toContain(step.why);
  }
});

describe('the back-off of a pool', () => {
  test('grows from 5 seconds to 5 minutes', () => {
    expect([1, 2, 3, 7, 50].map(retryAfterMs)).toEqual([5_000, 10_000, 20_000, 300_000, 300_000]);
  });
  test('counts failures since the last machine that joined', () => {
    const failing = aRow({ state: 'creating', failures: 2, failedAtMs: T, failure: 'no quota' });
    const given = aRow({ state: 'failed', endWhy: 'not_created', creates: 3, failedAtMs: T - 1, failure: 'older' });
    expect(backOff([failing, given])).toEqual({ notBeforeMs: T + retryAfterMs(5), failure: 'no quota' });
    // An instance that boots no agent proves nothing.
    expect(backOff([failing, given, aRow({ createdAtMs: T + 1 })])).toEqual(backOff([failing, given]));
    expect(backOff([failing, given, aRow({ joinedAtMs: T + 1 })])).toEqual({ notBeforeMs: 0, failure: null });
  });
  test('counts every machine that ended without a join, but not one that somebody deleted', () => {
    const ended = (endWhy: EndWhy, over: Partial<ProvisionedRow> = {}) =>
      backOff([aRow({ state: 'failed', endWhy, failedAtMs: T, ...over })]).notBeforeMs;
    for (const why of ['not_created', 'never_joined', 'instance_gone', 'spot_notice'] as const)
      expect(ended(why), why).toBe(T + retryAfterMs(1));
    expect(ended('machine_deleted')).toBe(0);
    expect(ended('instance_gone', { joinedAtMs: T - MINUTE })).toBe(0);
  });
  test('grows by machines whose instances never join, each made after the failure of the one before', () => {
    const rows = Array.from({ length: 8 }, (_, n) =>
      aRow({ state: 'failed', endWhy: 'never_joined', createdAtMs: T + n, failedAtMs: T + n }),
    );
    expect(backOff(rows).notBeforeMs).toBe(T + 7 + RULES.retryCapMs);
  });
  test('is not caused by a failed terminate', () => {
    const joined = aRow({ state: 'terminating', endWhy: 'idle', joinedAtMs: T - MINUTE, failures: 4, failedAtMs: T });
    expect(backOff([joined]).notBeforeMs).toBe(0);
    const never = aRow({ state: 'terminating', endWhy: 'never_joined', creates: 1, createdAtMs: T - 1, failedAtMs: T });
    const once = { notBeforeMs: T + retryAfterMs(1), failure: 'its agent did not join' };
    expect(backOff([{ ...never, failures: 9, failure: 'its agent did not join' }])).toEqual(once);
  });
  test('sums count what may cost money', () => {
    const rows = [
      aRow({ state: 'created' }),
      aRow({ state: 'joined', hourlyCost: 2 }),
      aRow({ state: 'terminating', hourlyCost: 3 }),
      aRow({ state: 'gone', hourlyCost: 9 }),
    ];
    const sums = poolCapacity({ poolId: 1, workspaceId: null }, rows);
    expect(sums).toMatchObject({ pending: 1, alive: 3, hourlyCost: 5, unpriced: 1 });
  });
});
