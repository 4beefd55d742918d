// Part of `placement`: decisions on a full fleet while many containers wait. A container ends, and another one gets its
// place, of the workspace with the smallest share. A further one comes to wait. The planner alone, without book and
// database.
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import type { PlacementMachine } from '#scheduler/control/plan/filter.ts';
import type { Wanted } from '#scheduler/control/plan/fit-class.ts';
import type { Choice } from '#scheduler/control/plan/place.ts';
import { Planner } from '#scheduler/control/plan/planner.ts';
import { PLAIN_MACHINE, PLAIN_WANTED } from '#scheduler/control/simulator/plain.ts';
import { median } from '../stats.ts';

export interface QueuedSizes {
  readonly machines: number;
  readonly waiting: number;
  readonly classes: number;
  readonly workspaces: number;
}

const GPUS = 8;
const MIB = 1024 ** 2;
/** The first half warms the code up. */
const ENDS = 4000;
/** Time after which the placement loop lets other work have a turn. */
const SLICE_MS = 5;
const NO_QUOTA = { gpus: null, cpuMillicores: null };

/** Microseconds and decisions for each container that ends, and the longest block while many end at once. */
export function queuedFigures(sizes: QueuedSizes): {
  readonly decisionUs: number;
  readonly decisions: number;
  readonly blockMs: number;
} {
  const world = new QueuedWorld(sizes);
  const took: number[] = [];
  world.steps = 0;
  for (let n = 0; n < ENDS; n += 1) {
    const startedMs = performance.now();
    const placed = world.end(n);
    took.push((performance.now() - startedMs) * 1000);
    if (placed !== 1) throw new Error(`${placed} containers were placed where one ended`);
  }
  const decisions = world.steps / ENDS;
  return { decisionUs: median(took.slice(took.length / 2)), decisions, blockMs: world.burst(ENDS) };
}

class QueuedWorld {
  readonly #planner = new Planner();
  readonly #sizes: QueuedSizes;
  readonly #held: { readonly wanted: Wanted; readonly choice: Choice }[] = [];
  /** Decisions of rounds. */
  steps = 0;
  #made = 0;

  constructor(sizes: QueuedSizes) {
    this.#sizes = sizes;
    for (let n = 0; n < sizes.machines; n += 1) {
      this.#planner.setMachine(aFullMachine(n));
      for (let gpu = 0; gpu < GPUS; gpu += 1)
        this.#held.push({
          wanted: this.#wanted(0),
          choice: { machineId: `machine-${n}` as MachineId, gpuUuids: [`${n}-${gpu}`] },
        });
    }
    for (let n = 0; n < sizes.waiting; n += 1) this.#planner.add(this.#wanted(n));
    if (this.#round() !== 0) throw new Error('the fleet was not full');
  }

  /** A container that wants one GPU, or more where its class has an odd number. */
  #wanted(classNumber: number): Wanted {
    this.#made += 1;
    const number = classNumber % this.#sizes.classes;
    return {
      ...PLAIN_WANTED,
      id: `c-${this.#made}` as ContainerId,
      workspaceId: `w-${number % this.#sizes.workspaces}` as WorkspaceId,
      queue: `q-${number}` as QueueName,
      createdAtMs: this.#made,
      cpuMillicores: 1000,
      memoryBytes: (512 + number) * MIB,
      gpu: number % 3 === 0 ? ['A10G'] : ['H100', 'A10G'],
      gpuCount: number % 2 === 0 ? 1 : 2 + (number % 7),
      image: `image:${number}`,
    };
  }

  /** @returns containers that got a place */
  end(n: number): number {
    this.#give(n);
    const placed = this.#round();
    this.#planner.add(this.#wanted(2 * n));
    return placed;
  }

  /** Many containers end at once. @returns milliseconds of the longest time without a turn of other work */
  burst(ends: number): number {
    let longestMs = 0;
    let startedMs = performance.now();
    const mayTurn = (): void => {
      const tookMs = performance.now() - startedMs;
      if (tookMs < SLICE_MS) return;
      longestMs = Math.max(longestMs, tookMs);
      startedMs = performance.now();
    };
    for (let n = 0; n < ends; n += 1) {
      this.#give(n);
      mayTurn();
    }
    this.#round(mayTurn);
    return Math.max(longestMs, performance.now() - startedMs);
  }

  /** A machine has a GPU back, and what its container used. */
  #give(n: number): void {
    const at = (n * 7919) % this.#held.length;
    const one = this.#held[at];
    const last = this.#held.pop();
    if (one === undefined || last === undefined) return;
    if (at < this.#held.length) this.#held[at] = last;
    const machine = this.#planner.candidates.get(one.choice.machineId);
    if (machine === undefined) throw new Error('there is no such machine');
    this.#planner.release(one.wanted.id, one.wanted.workspaceId);
    this.#planner.setMachine({
      ...machine,
      gpus: machine.gpus.map((gpu) => (one.choice.gpuUuids.includes(gpu.uuid) ? { ...gpu, free: true } : gpu)),
    });
  }

  #round(afterEach: () => void = () => undefined): number {
    const planner = this.#planner;
    let placed = 0;
    planner.forgetFacts();
    for (let step = planner.next(); step !== undefined; step = planner.next()) {
      this.steps += 1;
      if (step.kind === 'ask')
        for (const one of step.classes) planner.know(one, { quota: NO_QUOTA, volumeHomes: new Set(), image: null });
      else if (step.kind === 'chosen') {
        const { item, choice } = step;
        planner.take(item.wanted, choice);
        this.#held.push({ wanted: item.wanted, choice });
        const { machineId } = choice;
        const rest = planner.candidates.get(machineId);
        // Each machine is read again once the row is written. Only GPUs are scarce here.
        if (rest !== undefined) planner.setMachine({ ...rest, freeCpuMillicores: 64_000, freeMemoryBytes: 2 ** 40 });
        placed += 1;
      }
      afterEach();
    }
    return placed;
  }
}

const aFullMachine = (n: number): PlacementMachine => ({
  ...PLAIN_MACHINE,
  machineId: `machine-${n}` as MachineId,
  freeCpuMillicores: 64_000,
  freeMemoryBytes: 2 ** 40,
  totalCpuMillicores: 64_000,
  totalMemoryBytes: 2 ** 40,
  freeDiskBytes: 2 ** 40,
  gpus: Array.from({ length: GPUS }, (_none, gpu) => ({
    uuid: `${n}-${gpu}`,
    model: 'A10G',
    free: false,
    healthy: true,
    numaNode: gpu >> 2,
    leasedAtMs: 0,
  })),
});
