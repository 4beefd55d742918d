// A scaling loop whose queues, containers and database are played by the test. Time is the fake timers'.
import { onTestFinished, vi } from 'vitest';
import type { ContainerId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { newId, queueNameOf } from '#shared/domain/ids.ts';
import { createLog } from '#shared/log.ts';
import { Registry } from '#shared/metrics.ts';
import { LoopMetrics } from '#scheduler/cluster/loop-metrics.ts';
import { Breakers } from '#scheduler/control/autoscaler/breakers.ts';
import { Autoscaler } from '#scheduler/control/autoscaler/loop.ts';
import type { AutoscalerParts } from '#scheduler/control/autoscaler/loop.ts';
import { AutoscalerMetrics } from '#scheduler/control/autoscaler/metrics.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import type { QueueDepth } from '#scheduler/stores/queues/task-queues.ts';
import { aTarget } from '../../integration/tasks-fixture.ts';

/** Time that a creation takes. */
export const CREATION_MS = 5;

export class Played {
  readonly targets = new Map<QueueName, Target>();
  /** Tasks that wait, by queue. */
  readonly waiting = new Map<QueueName, number>();
  readonly entries = new Map<QueueName, ContainerEntry[]>();
  /** Creations in the order in which they began. */
  readonly begun: { readonly queue: QueueName; readonly count: number; readonly waiting: number }[] = [];
  readonly stopped: ContainerId[] = [];
  /** Tasks that containers work on. */
  readonly inFlight = new Map<ContainerId, number>();
  /** Reads of depths, with the number of queues of each. */
  readonly samples: number[] = [];
  /** So many of the next creations fail. */
  failures = 0;
  underWay = 0;
  mostUnderWay = 0;
  creationMs = CREATION_MS;
  /** Containers that machines have room for. */
  room = Infinity;
  sampleMs = 0;
  limit: number | undefined = 1_000;
  limitRead: () => void = () => undefined;
  leads = true;
  readonly autoscaler: Autoscaler;

  constructor() {
    vi.useFakeTimers();
    const clock = { nowMs: () => Date.now(), monotonicMs: () => performance.now() };
    const log = createLog({ name: 'test', level: 'silent' });
    const registry = new Registry();
    const db = { query: () => Promise.resolve({ rows: [], rowCount: 0 }) };
    const parts: { [K in keyof AutoscalerParts]?: unknown } = {
      targets: { byQueue: (queue: QueueName) => this.targets.get(queue), activeTargets: () => [] },
      queues: { depths: (queues: readonly QueueName[]) => this.#depths(queues) },
      containers: {
        ofQueue: (queue: QueueName) => this.entries.get(queue) ?? [],
        queues: () => this.entries.keys(),
        get: (id: ContainerId) => this.#all().find(({ row }) => row.id === id),
        transition: (id: ContainerId) => this.#stop(id),
      },
      create: (target: Target, count: number, unplaced: number) => this.#create(target, count, unplaced),
      slots: { get: () => undefined, leave: () => undefined, stay: () => undefined, hasReady: () => false },
      loads: { of: (id: ContainerId) => ({ inFlight: this.inFlight.get(id) ?? 0, served: true }), isHere: () => true },
      breakers: new Breakers({ db, clock, log, fence: () => 1 }),
      clock,
      log,
      metrics: new AutoscalerMetrics(registry),
      loops: new LoopMetrics(registry, clock),
      isLeader: () => this.leads,
      serves: { isServed: () => false, queues: () => [] },
      maxContainers: (_id: WorkspaceId, whenRead: () => void) => {
        this.limitRead = whenRead;
        return this.limit;
      },
      silentSinceMs: () => null,
      graceMs: 0,
    };
    this.autoscaler = new Autoscaler(parts as unknown as AutoscalerParts);
    this.autoscaler.start();
    onTestFinished(() => {
      this.autoscaler.stop();
      vi.useRealTimers();
    });
  }

  /** A queue of the workspace with a task that waits. */
  asks(workspaceId: WorkspaceId, waiting = 1, maxContainers = 1_000, changes: Partial<Target> = {}): QueueName {
    const plain = { ...aTarget(), ...changes };
    const autoscaler = { ...plain.config.autoscaler, maxContainers };
    const queue = queueNameOf(null, plain.stubId);
    this.targets.set(queue, { ...plain, workspaceId, queue, config: { ...plain.config, autoscaler } });
    this.waiting.set(queue, waiting);
    this.autoscaler.wake(queue);
    return queue;
  }

  /** Containers of the queue that are there. */
  has(queue: QueueName, count: number, state = 'RUNNING'): void {
    const row = () => ({ id: newId<ContainerId>(), state, createdAtMs: 0, startedAtMs: 0, machineId: null });
    const added = Array.from({ length: count }, () => ({ row: row(), spec: { queue, wire: {} } }));
    this.entries.set(queue, [...(this.entries.get(queue) ?? []), ...(added as unknown as ContainerEntry[])]);
  }

  /** Containers of the queue in that state. */
  count(queue: QueueName, state: string): number {
    return (this.entries.get(queue) ?? []).filter(({ row }) => row.state === state).length;
  }

  /** Gives a container that waits its place. */
  places(queue: QueueName): void {
    const entry = this.entries.get(queue)?.find(({ row }) => row.state === 'PENDING');
    if (entry !== undefined) entry.row = { ...entry.row, state: 'ASSIGNED' };
    this.autoscaler.wake(queue);
  }

  /** Lets so many milliseconds pass. */
  async pass(ms: number): Promise<void> {
    await vi.advanceTimersByTimeAsync(ms);
  }

  #all(): ContainerEntry[] {
    return [...this.entries.values()].flat();
  }

  async #depths(queues: readonly QueueName[]): Promise<readonly QueueDepth[]> {
    this.samples.push(queues.length);
    const depths = queues.map((queue) => ({
      waiting: this.waiting.get(queue) ?? 0,
      active: 0,
      delayed: 0,
      prioritized: 0,
      held: 0,
      soon: 0,
    }));
    if (this.sampleMs > 0) await after(this.sampleMs);
    return depths;
  }

  async #create({ queue }: Target, count: number, unplaced: number): Promise<readonly ContainerEntry[]> {
    if (this.failures > 0) {
      this.failures -= 1;
      throw new Error('the database is away');
    }
    this.begun.push({ queue, count, waiting: this.waiting.get(queue) ?? 0 });
    this.underWay += 1;
    this.mostUnderWay = Math.max(this.mostUnderWay, this.underWay);
    await after(this.creationMs);
    this.underWay -= 1;
    const placed = Math.min(count, this.room);
    this.room -= placed;
    this.has(queue, placed, 'ASSIGNED');
    const rest = Math.min(count - placed, unplaced);
    this.has(queue, rest, 'PENDING');
    this.autoscaler.wake(queue);
    return (this.entries.get(queue) ?? []).slice(-placed - rest);
  }

  #stop(id: ContainerId): Promise<'moved'> {
    this.stopped.push(id);
    for (const [queue, entries] of this.entries)
      this.entries.set(
        queue,
        entries.filter(({ row }) => row.id !== id),
      );
    return Promise.resolve('moved');
  }
}

const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
