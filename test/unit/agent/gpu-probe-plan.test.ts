// When devices are probed: the devices that are due, the wait after
// a failure, and the loop's handling of a result. Time is fake.
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createLog } from '#shared/log.ts';
import type { ProbeOutcome, ProbeResult } from '../../../agent/devices/probe-outcome.ts';
import type { Candidate, ProbeNotes } from '../../../agent/devices/probe-plan.ts';
import {
  MOST_PROBES,
  NO_NOTES,
  notesAfterFault,
  notesAfterProbe,
  planProbes,
} from '../../../agent/devices/probe-plan.ts';
import { Prober } from '../../../agent/devices/prober.ts';
import { AgentMetrics } from '../../../agent/telemetry/metrics.ts';

const due = (uuid: string, facts: Partial<Candidate> = {}): Candidate => ({
  uuid,
  isHeld: false,
  isBroken: false,
  ...facts,
});
const none = new Set<string>();
const noNotes = (): ProbeNotes => NO_NOTES;

describe('a plan', () => {
  test('starts what is due, two at once, none twice, none that somebody has', () => {
    const three = [due('a'), due('b'), due('c')];
    expect(planProbes(three, noNotes, none, 0)).toEqual({ start: ['a', 'b'], lookAtMs: undefined });
    expect(planProbes(three, noNotes, new Set(['a']), 0).start).toEqual(['b']);
    expect(planProbes(three, noNotes, new Set(['a', 'c']), 0).start).toEqual([]);
    const held = planProbes([due('a', { isHeld: true })], noNotes, none, 1000);
    expect(held).toEqual({ start: [], lookAtMs: 6000 });
  });

  test('waits as long as the notes say, and a rest counts for a device with an error alone', () => {
    const notes = (): ProbeNotes => ({ ...NO_NOTES, notBeforeMs: 50, restUntilMs: 90 });
    expect(planProbes([due('a')], notes, none, 49)).toEqual({ start: [], lookAtMs: 50 });
    expect(planProbes([due('a')], notes, none, 50).start).toEqual(['a']);
    expect(planProbes([due('a', { isBroken: true })], notes, none, 50)).toEqual({ start: [], lookAtMs: 90 });
    expect(planProbes([due('a', { isBroken: true })], notes, none, 90).start).toEqual(['a']);
  });

  test('failures wait ever longer, up to half an hour; what is the host’s a minute at most', () => {
    const waits = (result: ProbeResult): number[] => {
      let notes = NO_NOTES;
      return Array.from({ length: 9 }, () => {
        notes = notesAfterProbe(notes, result, 1000);
        return (notes.notBeforeMs - 1000) / 1000;
      });
    };
    expect(waits('failed')).toEqual([30, 60, 120, 240, 480, 960, 1800, 1800, 1800]);
    expect(waits('host')).toEqual([5, 10, 20, 40, 60, 60, 60, 60, 60]);
    expect(waits('unable').at(-1)).toBe(60);
    const failed = notesAfterProbe(notesAfterProbe(NO_NOTES, 'failed', 0), 'failed', 0);
    expect(notesAfterProbe(failed, 'passed', 0)).toMatchObject({ tries: 0, notBeforeMs: 0 });
    expect(notesAfterProbe(failed, 'host', 0)).toMatchObject({ tries: 1, notBeforeMs: 5000 });
  });

  test('a device that breaks again and again rests longer each time, an hour at most', () => {
    let notes = NO_NOTES;
    let nowMs = 0;
    const rests = Array.from({ length: 8 }, () => {
      nowMs = notes.restUntilMs;
      notes = notesAfterFault(notes, nowMs);
      return (notes.restUntilMs - nowMs) / 60_000;
    });
    expect(rests).toEqual([1, 2, 4, 8, 16, 32, 60, 60]);
    // A probe that passes does not make it forget.
    nowMs = notes.restUntilMs;
    expect(notesAfterFault(notesAfterProbe(notes, 'passed', nowMs), nowMs).restUntilMs - nowMs).toBe(3_600_000);
  });

  test('many lines of one error are one error: the rest begins anew with each, and grows no longer', () => {
    let notes = NO_NOTES;
    for (let line = 0; line < 20; line += 1) notes = notesAfterFault(notes, line * 1000);
    expect(notes).toMatchObject({ faults: 1, restUntilMs: 79_000 });
    expect(notesAfterFault(notes, 79_000)).toMatchObject({ faults: 2, restUntilMs: 199_000 });
  });
});

describe('the prober', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  interface World {
    candidates: readonly Candidate[];
    readonly outcomes: string[];
    /** Running probes, each with the function that ends it. */
    readonly running: Map<string, (outcome: ProbeOutcome) => void>;
    readonly prober: Prober;
    readonly metrics: AgentMetrics;
  }
  function aWorld(candidates: readonly Candidate[]): World {
    const metrics = new AgentMetrics();
    const world: World = {
      candidates,
      outcomes: [],
      running: new Map(),
      metrics,
      prober: new Prober({
        candidates: () => world.candidates,
        probe: (uuid, signal) =>
          new Promise((resolve) => {
            signal.addEventListener('abort', () => world.running.delete(uuid));
            expect(world.running.has(uuid)).toBe(false);
            world.running.set(uuid, (outcome) => {
              world.running.delete(uuid);
              resolve(outcome);
            });
            expect(world.running.size).toBeLessThanOrEqual(MOST_PROBES);
          }),
        onOutcome: (uuid, { kind }, tries) => {
          world.outcomes.push(`${uuid} ${kind} ${tries}`);
          if (kind === 'passed') world.candidates = world.candidates.filter((one) => one.uuid !== uuid);
        },
        metrics,
        log: createLog({ name: 'test', level: 'silent' }),
      }),
    };
    return world;
  }
  const ends = async (world: World, uuid: string, kind: ProbeResult): Promise<void> => {
    world.running.get(uuid)?.({ kind, text: 'why' });
    await vi.advanceTimersByTimeAsync(0);
  };

  test('runs nothing before its start, then all in turn, and again what failed', async () => {
    const world = aWorld([due('a'), due('b'), due('c')]);
    world.prober.check();
    await vi.advanceTimersByTimeAsync(100_000);
    expect(world.running.size).toBe(0);
    world.prober.start();
    await vi.advanceTimersByTimeAsync(0);
    expect([...world.running.keys()]).toEqual(['a', 'b']);
    await ends(world, 'a', 'failed');
    expect([...world.running.keys()]).toEqual(['b', 'c']);
    await ends(world, 'b', 'passed');
    await ends(world, 'c', 'passed');
    await vi.advanceTimersByTimeAsync(29_000);
    expect(world.running.size).toBe(0);
    await vi.advanceTimersByTimeAsync(2000);
    expect([...world.running.keys()]).toEqual(['a']);
    await ends(world, 'a', 'passed');
    expect(world.outcomes).toEqual(['a failed 1', 'b passed 0', 'c passed 0', 'a passed 0']);
    const page = await world.metrics.registry.metrics();
    expect(page).toContain('gpu_cuda_probes_total{result="passed"} 3');
    expect(page).toContain('gpu_cuda_probes_total{result="failed"} 1');
    expect(page).toContain('gpu_cuda_probes_total{result="stuck"} 0');
    expect(page).toContain('gpu_cuda_probe_duration_seconds_count 4');
    await world.prober.stop();
  });

  test('gives up a probe that never answers: nothing was learned, and its turn comes again', async () => {
    const world = aWorld([due('a')]);
    world.prober.start();
    await vi.advanceTimersByTimeAsync(14 * 60_000);
    expect([...world.running.keys()]).toEqual(['a']);
    expect(world.outcomes).toEqual([]);
    await vi.advanceTimersByTimeAsync(2 * 60_000);
    expect(world.outcomes).toEqual(['a unable 1']);
    expect([...world.running.keys()]).toEqual(['a']);
    await ends(world, 'a', 'passed');
    expect(world.outcomes).toEqual(['a unable 1', 'a passed 0']);
    await world.prober.stop();
  });

  test('a device that is given back is probed within seconds, and one whose reset was seen at once', async () => {
    const world = aWorld([due('a', { isHeld: true })]);
    world.prober.start();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(world.running.size).toBe(0);
    world.candidates = [due('a')];
    await vi.advanceTimersByTimeAsync(5000);
    await ends(world, 'a', 'failed');
    world.prober.again('a');
    world.prober.check();
    await vi.advanceTimersByTimeAsync(0);
    expect(world.running.size).toBe(1);
    await ends(world, 'a', 'failed');
    await world.prober.stop();
  });

  test('a probe that passes says nothing of an error that came while it ran', async () => {
    const world = aWorld([due('a', { isBroken: true })]);
    world.prober.start();
    await vi.advanceTimersByTimeAsync(0);
    world.prober.faulted('a');
    await ends(world, 'a', 'passed');
    expect(world.outcomes).toEqual([]);
    await vi.advanceTimersByTimeAsync(59_000);
    expect(world.running.size).toBe(0);
    await vi.advanceTimersByTimeAsync(2000);
    await ends(world, 'a', 'passed');
    expect(world.outcomes).toEqual(['a passed 0']);
    await world.prober.stop();
  });

  test('the rest of a device with an error outlives the agent', async () => {
    const [before, after] = [aWorld([]), aWorld([due('a', { isBroken: true })])];
    before.prober.faulted('a');
    await vi.advanceTimersByTimeAsync(60_000);
    before.prober.faulted('a');
    after.prober.restore(before.prober.stored());
    after.prober.start();
    await vi.advanceTimersByTimeAsync(119_000);
    expect(after.running.size).toBe(0);
    await vi.advanceTimersByTimeAsync(2000);
    expect(after.running.size).toBe(1);
    await ends(after, 'a', 'passed');
    await after.prober.stop();
  });

  test('a stop waits 5 s at most for a probe that hangs, and starts none', async () => {
    const world = aWorld([due('a')]);
    world.prober.start();
    await vi.advanceTimersByTimeAsync(0);
    const stopped = world.prober.stop();
    await vi.advanceTimersByTimeAsync(5000);
    await stopped;
    world.prober.check();
    await vi.advanceTimersByTimeAsync(100_000);
    expect(world.outcomes).toEqual([]);
  });
});
