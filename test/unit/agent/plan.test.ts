import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Action, Known, PlanInput, Seen, Wanted } from '../../../agent/reconcile/plan.ts';
import { plan } from '../../../agent/reconcile/plan.ts';
import { stories } from '../../helpers/stories.ts';

const ORPHAN_GRACE_MS = 300_000;
const NOW = 1_000_000_000;
const wanted = (id: string, rest: Partial<Wanted> = {}): Wanted => ({
  containerId: id,
  assignmentId: `a-${id}-${rest.epoch ?? 1}`,
  epoch: 1,
  stop: false,
  graceMs: 0,
  stopReason: '',
  ...rest,
});
const known = (id: string, rest: Partial<Known> = {}): Known => ({
  containerId: id,
  assignmentId: `a-${id}-${rest.epoch ?? 1}`,
  epoch: 1,
  stage: 'created',
  ...rest,
});
const seen = (id: string, rest: Partial<Seen> = {}): Seen => ({
  dockerId: `d-${id}-${rest.epoch ?? 1}`,
  containerId: id,
  assignmentId: `a-${id}-${rest.epoch ?? 1}`,
  epoch: 1,
  state: 'running',
  orphanSinceMs: NOW,
  ...rest,
});
const input = (rest: {
  wanted?: readonly Wanted[] | undefined;
  known?: readonly Known[];
  seen?: readonly Seen[];
  attended?: readonly string[];
  acked?: readonly string[];
  proceeded?: readonly string[];
  ending?: readonly string[];
  busy?: PlanInput['busy'];
}): PlanInput => ({
  wanted: rest.wanted === undefined ? undefined : new Map(rest.wanted.map((one) => [one.containerId, one])),
  known: new Map((rest.known ?? []).map((one) => [one.containerId, one])),
  seen: rest.seen ?? [],
  attended: new Set(rest.attended),
  acked: new Set(rest.acked),
  proceeded: new Set(rest.proceeded),
  refused: new Set(),
  ending: new Map((rest.ending ?? []).map((id) => [id, { graceMs: 5, reason: 'start_timeout' }])),
  busy: rest.busy ?? new Map(),
  orphanGraceMs: ORPHAN_GRACE_MS,
});
const kinds = (actions: readonly Action[]): string[] => actions.map((action) => action.kind);

test('a new assignment is accepted, and created only after it may proceed', () => {
  expect(kinds(plan(input({ wanted: [wanted('x')] }), NOW))).toEqual(['accept']);
  const accepted = { wanted: [wanted('x')], known: [known('x', { stage: 'accepted' })] };
  expect(kinds(plan(input(accepted), NOW))).toEqual(['accept']);
  expect(kinds(plan(input({ ...accepted, acked: ['a-x-1'] }), NOW))).toEqual([]);
  expect(kinds(plan(input({ ...accepted, acked: ['a-x-1'], proceeded: ['a-x-1'] }), NOW))).toEqual(['start']);
});

test('nothing is stopped before the first snapshot of a session', () => {
  expect(plan(input({ known: [known('x')], seen: [seen('x')], attended: ['x'] }), NOW)).toEqual([]);
  expect(kinds(plan(input({ known: [known('x')], seen: [seen('x')] }), NOW))).toEqual(['adopt']);
});

test('absence from a snapshot means stop, with the ordinary grace', () => {
  const [action] = plan(input({ wanted: [], known: [known('x')], seen: [seen('x')], attended: ['x'] }), NOW);
  expect(action).toMatchObject({ kind: 'stop', graceMs: 30_000 });
});

test('an order to stop carries its grace and reason', () => {
  const order = wanted('x', { stop: true, graceMs: 700, stopReason: 'drained' });
  const [action] = plan(input({ wanted: [order], known: [known('x')], seen: [seen('x')] }), NOW);
  expect(action).toMatchObject({ kind: 'stop', graceMs: 700, reason: 'drained' });
});

test('an older epoch neither stops nor starts anything', () => {
  const echo = wanted('x', { epoch: 1, stop: true });
  const now = { known: [known('x', { epoch: 2 })], seen: [seen('x', { epoch: 2 })], attended: ['x'] };
  expect(plan(input({ wanted: [echo], ...now }), NOW)).toEqual([]);
});

test('a newer epoch ends the older container before anything new is taken', () => {
  const next = wanted('x', { epoch: 2 });
  const running = input({ wanted: [next], known: [known('x')], seen: [seen('x')], attended: ['x'] });
  expect(kinds(plan(running, NOW))).toEqual(['stop']);
  const gone = input({ wanted: [next], known: [known('x', { stage: 'gone' })] });
  expect(kinds(plan(gone, NOW))).toEqual(['forget']);
});

test('what is being worked on is left alone, but a start nobody wants is interrupted', () => {
  const busy = new Map([['x', 'start' as const]]);
  const entry = known('x', { stage: 'creating' });
  expect(plan(input({ wanted: [wanted('x')], known: [entry], busy }), NOW)).toEqual([]);
  expect(kinds(plan(input({ wanted: [], known: [entry], busy }), NOW))).toEqual(['interrupt']);
});

test('what the agent itself ends is stopped even without a scheduler', () => {
  const [action] = plan(input({ known: [known('x')], seen: [seen('x')], attended: ['x'], ending: ['x'] }), NOW);
  expect(action).toMatchObject({ kind: 'stop', reason: 'start_timeout', graceMs: 5 });
});

test('a container cut off between create and start is removed, and made anew if it is wanted', () => {
  const half = {
    wanted: [wanted('x')],
    known: [known('x', { stage: 'creating' })],
    acked: ['a-x-1'],
    proceeded: ['a-x-1'],
  };
  expect(plan(input({ ...half, seen: [seen('x', { state: 'created' })] }), NOW)[0]).toMatchObject({
    kind: 'remove-stray',
    why: 'never_started',
  });
  expect(kinds(plan(input(half), NOW))).toEqual(['start']);
});

test('an orphan of ours is removed after its grace, and only then', () => {
  const young = seen('x', { orphanSinceMs: NOW - ORPHAN_GRACE_MS + 1 });
  const old = seen('x', { orphanSinceMs: NOW - ORPHAN_GRACE_MS });
  expect(plan(input({ wanted: [], seen: [young] }), NOW)).toEqual([]);
  expect(plan(input({ wanted: [], seen: [old] }), NOW)[0]).toMatchObject({ kind: 'remove-stray', why: 'orphan' });
  expect(plan(input({ seen: [old] }), NOW)).toEqual([]);
});

test('a running container that the journal has lost is adopted when it is wanted', () => {
  expect(kinds(plan(input({ wanted: [wanted('x')], seen: [seen('x')] }), NOW))).toEqual(['adopt']);
});

test('removals come before additions', () => {
  const actions = plan(input({ wanted: [wanted('new')], known: [known('old')], seen: [seen('old')] }), NOW);
  expect(kinds(actions)).toEqual(['stop', 'accept']);
});

// ---- a model that carries plans out ---------------------------------------------------------------------------------

const ids = ['p', 'q', 'r'];
const anId = fc.constantFrom(...ids);
const anEpoch = fc.integer({ min: 1, max: 3 });
const worlds = fc.record({
  wanted: fc.option(
    fc.uniqueArray(fc.record({ id: anId, epoch: anEpoch, stop: fc.boolean() }), { selector: (one) => one.id }),
    {
      freq: 6,
      nil: undefined,
    },
  ),
  known: fc.uniqueArray(
    fc.record({ id: anId, epoch: anEpoch, stage: fc.constantFrom('accepted', 'creating', 'created', 'gone') }),
    { selector: (one) => one.id },
  ),
  seen: fc.uniqueArray(
    fc.record({ id: anId, epoch: anEpoch, state: fc.constantFrom('created', 'running', 'exited') }),
    {
      selector: (one) => `${one.id} ${one.epoch}`,
    },
  ),
  attended: fc.subarray(ids),
  proceed: fc.boolean(),
});

test('a plan carried out leaves none, and what is left is what was wanted', () => {
  fc.assert(
    fc.property(worlds, (world) => {
      const want =
        world.wanted === undefined
          ? undefined
          : new Map(world.wanted.map((one) => [one.id, wanted(one.id, { epoch: one.epoch, stop: one.stop })]));
      const entries = new Map(
        world.known.map((one) => [one.id, known(one.id, { epoch: one.epoch, stage: one.stage })]),
      );
      let engine = world.seen.map((one) => seen(one.id, { epoch: one.epoch, state: one.state }));
      const attended = new Set(world.attended);
      const acked = new Set<string>();
      const proceeded = new Set<string>();
      const started: string[] = [];
      let nowMs = NOW;
      for (let round = 0; ; round += 1) {
        expect(round).toBeLessThan(30);
        const state = { ...input({}), wanted: want, known: entries, seen: engine, attended, acked, proceeded };
        const actions = plan(state, nowMs);
        expect(new Set(actions.map((action) => action.containerId)).size).toBe(actions.length);
        if (actions.length === 0) {
          if (nowMs > NOW) break;
          nowMs += ORPHAN_GRACE_MS;
          continue;
        }
        for (const action of actions) {
          const id = action.containerId;
          const entry = entries.get(id);
          switch (action.kind) {
            case 'accept':
              entries.set(id, known(id, { epoch: action.epoch, stage: 'accepted' }));
              acked.add(action.assignmentId);
              if (world.proceed) proceeded.add(action.assignmentId);
              break;
            case 'start':
              // A container never starts without permission, and never twice.
              expect(proceeded.has(action.assignmentId)).toBe(true);
              expect(engine.some((one) => one.containerId === id)).toBe(false);
              started.push(action.assignmentId);
              entries.set(id, known(id, { epoch: action.epoch }));
              engine.push(seen(id, { epoch: action.epoch }));
              attended.add(id);
              break;
            case 'stop':
              expect(want).toBeDefined();
              engine = engine.map((one) =>
                one.dockerId === action.dockerId ? { ...one, state: 'exited' as const } : one,
              );
              break;
            case 'finish':
            case 'vanished':
            case 'release':
              engine = engine.filter((one) => one.containerId !== id || one.epoch !== action.epoch);
              if (entry !== undefined) entries.set(id, { ...entry, stage: 'gone' });
              attended.delete(id);
              break;
            case 'forget':
              entries.delete(id);
              break;
            case 'confirm-gone':
              entries.set(id, known(id, { epoch: action.epoch, stage: 'gone' }));
              break;
            case 'remove-stray':
              engine = engine.filter((one) => one.dockerId !== action.dockerId);
              break;
            case 'adopt':
              if (entry === undefined) entries.set(id, known(id, { epoch: action.epoch }));
              else entries.set(id, { ...entry, stage: 'created' });
              attended.add(id);
              break;
            case 'interrupt':
              throw new Error('nothing is busy in this model');
          }
        }
      }
      expect(new Set(started).size).toBe(started.length);
      if (want === undefined) return;
      for (const id of ids) {
        const order = want.get(id);
        const entry = entries.get(id);
        const running = engine.filter((one) => one.containerId === id && one.state === 'running');
        expect(running.length).toBeLessThanOrEqual(1);
        if (order === undefined) {
          // An unwanted container leaves nothing, in the engine or in the journal.
          expect(entry).toBeUndefined();
          expect(running).toEqual([]);
        } else if (entry !== undefined && order.epoch === entry.epoch && order.stop) expect(running).toEqual([]);
      }
    }),
    { numRuns: stories(2_000) },
  );
});
