/**
 * Scheduler processes on one real Redis whose synchronous tasks cross. Machines dial them, processes die, and messages
 * are lost, as the test says.
 */
import { vi } from 'vitest';
import type { ContainerId, InstanceId, MachineId, QueueName, TaskId } from '#shared/domain/ids.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import type { LiveReport, MachineReport } from '#scheduler/tasks/completion/reports.ts';
import type { ReadyContainer, RunOrder } from '#scheduler/tasks/dispatch/slots.ts';
import type { PrivateRedis } from '../helpers/services.ts';
import { test as base } from '../helpers/services.ts';
import type { Process } from './tasks-fixture.ts';
import type { PlayedLink } from './tasks-fixture.ts';
import { aProcess, rowsAmong } from './tasks-fixture.ts';
import type { Options } from './tasks-started.ts';

export const OTHER_MACHINE = 'm-2' as MachineId;

type ContainerFacts = Pick<Target, 'workspaceId' | 'deploymentId' | 'stubId'>;

/** Scheduler processes that know of each other, and the machines that dial them. */
export class Cluster {
  readonly #redis: PrivateRedis;
  readonly #processes: Process[] = [];
  readonly #dead = new Set<InstanceId>();
  readonly #unnoticed = new Set<InstanceId>();
  readonly #machines = new Map<MachineId, { readonly replica: InstanceId; readonly sessionEpoch: number }>();
  /** Rows of containers. */
  readonly #containers = new Map<ContainerId, ContainerFacts & { readonly machineId: MachineId }>();
  /** Machines that are LOST. */
  readonly lost = new Set<MachineId>();
  /** Free slots of a process that the others believe in; absent: the true ones. */
  readonly believed = new Map<InstanceId, number>();

  /** Whether each process tells its loads when they change. */
  tellsLoads = true;
  readonly #told = new Map<InstanceId, string>();
  readonly #timer = setInterval(() => this.#tellLoads(), 20);
  #made = 0;

  constructor(redis: PrivateRedis) {
    this.#redis = redis;
  }

  readonly isPresent = (replica: InstanceId): boolean =>
    this.#processes.some(({ instance }) => instance === replica) && !this.#dead.has(replica);

  #others(self: InstanceId | undefined): Process[] {
    return this.#processes.filter(({ instance }) => instance !== self && this.isPresent(instance));
  }

  #capacity(queue: QueueName, self: InstanceId | undefined): Map<InstanceId, { free: number; slots: number }> {
    const all = new Map<InstanceId, { free: number; slots: number }>();
    for (const { instance, slots } of this.#others(self)) {
      const ready = [...slots.of(queue)].filter(({ accepting }) => accepting);
      const [most, taken] = [sum(ready.map((one) => one.slots)), sum(ready.map((one) => one.inFlight))];
      const free = this.believed.get(instance) ?? most - taken;
      if (most > 0 || free > 0) all.set(instance, { free, slots: Math.max(most, free) });
    }
    return all;
  }

  async start(options: Options = {}): Promise<Process> {
    const own: { instance?: InstanceId } = {};
    const made = await aProcess(this.#redis, {
      alive: this.isPresent,
      ...options,
      peers: {
        capacity: (queue) => this.#capacity(queue, own.instance),
        present: () => this.#others(own.instance).map(({ instance }) => instance),
        isSettled: (replica) =>
          [...this.#machines].every(([id, machine]) => machine.replica !== replica || this.lost.has(id)),
        runsAt: async (taskId) => {
          const row = await made.records.read(taskId);
          const machineId =
            row?.status === 'RUNNING' ? this.#containers.get(row.containerId as ContainerId)?.machineId : undefined;
          return (machineId && this.#machines.get(machineId)?.replica) ?? null;
        },
        linkOf: (machineId) => {
          const machine = this.#machines.get(machineId);
          return machine && { ...machine, isHere: machine.replica === own.instance };
        },
        isSync: () => true,
        ...options.peers,
      },
      more: { containersOf: (ids) => rowsAmong(ids, (id) => this.#containers.get(id)), ...options.more },
    });
    own.instance = made.instance;
    this.#processes.push(made);
    return made;
  }

  #tellLoads(): void {
    if (!this.tellsLoads) return;
    for (const one of this.#others(undefined)) {
      const loads = [...one.slots.all()].map(({ containerId, inFlight }) => `${containerId} ${inFlight}`).join();
      if (this.#told.get(one.instance) !== loads) this.tellLoads(one);
      this.#told.set(one.instance, loads);
    }
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    for (const one of this.#processes) await one.stop();
  }

  /** A container of the target becomes ready at the process to which its machine is linked. */
  serve(one: Process, target: Target, link: PlayedLink, slots = 1, id?: ContainerId): ReadyContainer {
    if (!this.#machines.has(link.machineId))
      this.#machines.set(link.machineId, { replica: one.instance, sessionEpoch: link.sessionEpoch });
    this.#made += 1;
    const containerId = id ?? (`endpoint-${link.machineId}-${this.#made}` as ContainerId);
    const { queue } = target;
    this.#containers.set(containerId, { ...target, machineId: link.machineId });
    const container = one.slots.ready({ containerId, queue, machineId: link.machineId, slots, isSync: true }, link, 0);
    one.reports.containerReady(container);
    one.dispatcher.wake(queue);
    for (const other of this.#others(one.instance)) other.peers.crossing.offerWaiting(queue);
    return container;
  }

  /** The process tells the others how many slots it has free. */
  tellLoads({ instance }: Process): void {
    for (const other of this.#others(instance)) other.peers.crossing.loadsTold(instance);
  }

  /**
   * The machine dials a process, and its agent reports.
   * @param link - the new link, whose session the report begins
   */
  async dial(
    one: Process,
    link: PlayedLink,
    report: Partial<Pick<MachineReport, 'running' | 'finished'>> = {},
  ): Promise<{ adopted: LiveReport[]; refused: LiveReport[] }> {
    const { machineId, agentInstance } = link;
    const before = this.#machines.get(machineId);
    const sessionEpoch = (link.sessionEpoch = (before?.sessionEpoch ?? 0) + 1);
    this.#machines.set(machineId, { replica: one.instance, sessionEpoch });
    const done = one.reports.machineReported(machineId, { agentInstance, sessionEpoch, running: [], ...report });
    if (before !== undefined && before.replica !== one.instance && !this.#unnoticed.has(before.replica))
      for (const other of this.#others(one.instance))
        if (other.instance === before.replica) {
          other.slots.setLink(machineId, undefined);
          other.reports.machineMoved(machineId);
        }
    return await done;
  }

  kill(one: Process): void {
    this.#dead.add(one.instance);
    one.kill();
  }

  /** The process does not notice that machines leave it. @returns the end of that */
  isUnnoticed({ instance }: Process): () => void {
    this.#unnoticed.add(instance);
    return () => void this.#unnoticed.delete(instance);
  }

  /** The others take the process for dead, though it lives. @returns the way back */
  seemsDead({ instance }: Process): () => void {
    this.#dead.add(instance);
    return () => void this.#dead.delete(instance);
  }
}

const realNow = performance.now.bind(performance);
let passedMs = 0;

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0);

export const test = base.extend('cluster', async ({ redis }, { onCleanup }): Promise<Cluster> => {
  const cluster = new Cluster(redis);
  onCleanup(async () => {
    await cluster.stop();
    passedMs = 0;
    vi.restoreAllMocks();
  });
  return cluster;
});

/** Words of an agent about an attempt. */
export const live = ({ taskId, token, containerId, facts }: RunOrder): LiveReport => ({
  taskId,
  token,
  containerId,
  facts,
});
/** The same of an agent that was started again: it has no facts. */
export const bare = (order: RunOrder): LiveReport => ({ ...live(order), facts: undefined });

/** Time goes on by that much at once, for all processes; timers do not notice. */
export function passTime(ms: number): void {
  passedMs += ms;
  vi.spyOn(performance, 'now').mockImplementation(() => realNow() + passedMs);
}

/** A message between processes about a task: an offer, a word, …, or the answer to its caller. */
export type Said = readonly unknown[];

/**
 * Watches what a process says to others about tasks.
 * @param isLost - whether the message gets lost
 */
export function eavesdrop(one: Process, isLost: (said: Said) => boolean = () => false): Said[] {
  const heard: Said[] = [];
  const { client } = one;
  const publish = client.publish.bind(client);
  const isOfTask = (said: unknown): said is Said => Array.isArray(said) && typeof said[0] === 'string';
  client.publish = (channel: string, text: string) => {
    const all = JSON.parse(text) as unknown[];
    const left = all.filter((said) => !isOfTask(said) || !isLost(said));
    heard.push(...all.filter(isOfTask));
    return left.length === 0 ? Promise.resolve(0) : publish(channel, JSON.stringify(left));
  };
  return heard;
}

export const isKind =
  (kind: 'offer' | 'word' | 'recall' | 'room' | 'handover' | 'handed' | 'stop') =>
  ([first]: Said): boolean =>
    first === kind;

export const isAnswerTo =
  ({ taskId }: { readonly taskId: TaskId }) =>
  ([first, second]: Said): boolean =>
    first === taskId && second !== 'item';
