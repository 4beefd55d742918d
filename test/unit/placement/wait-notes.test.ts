// Reasons of containers that wait, as rows and the gauge have them.
import { expect, test } from 'vitest';
import type { ContainerId, MachineId } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { WaitNotes } from '#scheduler/control/placement/wait-notes.ts';
import { Planner } from '#scheduler/control/plan/planner.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import { TestClock } from '../../helpers/test-clock.ts';
import { aMachine, aWanted, gpus } from '../plan/made.ts';

type Note = { readonly id: ContainerId; readonly rejections: Readonly<Record<string, number>> };

class Played {
  readonly planner = new Planner();
  readonly clock = new TestClock();
  readonly metrics = new FleetMetrics(new Registry());
  readonly written: Note[][] = [];
  fails = false;
  readonly notes = new WaitNotes({
    planner: this.planner,
    containers: { noteRejections: (notes) => this.#write(notes) },
    metrics: this.metrics,
    clock: this.clock,
    log: createLog({ name: 'test', level: 'silent' }),
  });

  #write(notes: readonly Note[]): Promise<void> {
    if (this.fails) return Promise.reject(new Error('the database is away'));
    this.written.push([...notes]);
    return Promise.resolve();
  }

  /** A round in which no container finds a place. */
  round(): void {
    this.planner.forgetFacts();
    for (let step = this.planner.next(); step !== undefined; step = this.planner.next()) {
      if (step.kind === 'chosen') throw new Error('a machine was found');
      if (step.kind === 'ask')
        for (const one of step.classes)
          this.planner.know(one, { quota: undefined, volumeHomes: new Set(), image: null });
    }
  }

  /** Rows written since this was asked last. */
  rows(): Note[] {
    return this.written.splice(0).flat();
  }

  async gauge(): Promise<Record<string, number>> {
    const { values } = await this.metrics.unschedulable.get();
    return Object.fromEntries(values.map(({ labels, value }) => [String(labels.reason), value]));
  }
}

const M1 = 'm-1' as MachineId;
const wantsGpu = () => aWanted({ gpu: ['A10G'], gpuCount: 1 });

test('each container that waits gets its reason once, and again when the main reason of its class is another', async () => {
  const played = new Played();
  played.planner.setMachine(aMachine({ machineId: M1, gpus: gpus('A10G', [false], 'a') }));
  const [first, second] = [wantsGpu(), wantsGpu()];
  played.planner.add(first);
  played.round();
  await played.notes.tell();
  expect(played.rows()).toEqual([{ id: first.id, rejections: { gpu_count: 1 } }]);
  played.planner.add(second);
  await played.notes.tell();
  expect(played.rows()).toEqual([{ id: second.id, rejections: { gpu_count: 1 } }]);
  expect(await played.gauge()).toEqual({ gpu_count: 2 });
  played.planner.setMachine(aMachine({ machineId: M1, intentActive: false, gpus: gpus('A10G', [true], 'a') }));
  played.round();
  await played.notes.tell();
  expect(played.rows()).toEqual([]);
  played.clock.aheadMs += 5000;
  await played.notes.tell();
  expect(played.rows().map(({ rejections }) => rejections)).toEqual([{ cordoned: 1 }, { cordoned: 1 }]);
  expect(await played.gauge()).toEqual({ cordoned: 2 });
});

test('many rows are a statement, the rest follows with the next; what was not written is written then', async () => {
  const played = new Played();
  for (let count = 0; count < 700; count += 1) played.planner.add(wantsGpu());
  played.round();
  played.fails = true;
  await played.notes.tell();
  played.fails = false;
  await played.notes.tell();
  expect(played.written.map(({ length }) => length)).toEqual([500]);
  await played.notes.tell();
  expect(new Set(played.rows().map(({ id }) => id)).size).toBe(700);
});

test('a container that waits no more is not told of', async () => {
  const played = new Played();
  const one = wantsGpu();
  played.planner.add(one);
  played.round();
  await played.notes.tell();
  expect(await played.gauge()).toEqual({ no_machine: 1 });
  played.planner.remove(one.id);
  await played.notes.tell();
  expect(await played.gauge()).toEqual({});
});
