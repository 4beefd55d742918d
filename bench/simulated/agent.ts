// A simulated machine: an agent that speaks the real protocol and has no engine. The agent takes every assignment, its
// containers run at once, and every task gets the same bytes as its answer. Many agents share one connection, as the
// protocol allows: the benchmark measures the scheduler, not the generator's TLS handshakes.
import { randomUUID } from 'node:crypto';
import type { ClientDuplexStream } from '@grpc/grpc-js';
import { bearer } from '#agent/upstream/channel.ts';
import { PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type {
  AgentLinkClient,
  Assignment__Output,
  ControlFromAgent,
  ControlToAgent__Output,
  ObservedContainer,
  TaskFromAgent,
  TaskToAgent__Output,
} from '#shared/protocol/generated/messages.ts';

/** Answer to every task. */
export const ANSWER = '{"ok":true}';
const BOOT_ID = randomUUID();

export interface SimulatedEvents {
  /** A start order arrived; told once for each assignment. */
  readonly onAssigned: (containerId: string, deploymentId: string, atMs: number) => void;
  /** Whether a container of this deployment may start now. */
  readonly mayRun: (deploymentId: string) => boolean;
  /** Milliseconds that a call of this deployment takes; 0: it is answered in the same turn. */
  readonly workMs: (deploymentId: string) => number;
}

export interface SimulatedMachine {
  readonly machineId: string;
  readonly credential: string;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  /** Slots of each container. */
  readonly slots: number;
  readonly gpus: { readonly count: number; readonly model: string } | undefined;
}

interface Container {
  readonly containerId: string;
  readonly assignmentId: string;
  readonly epoch: number;
  readonly deploymentId: string;
  phase: 'accepted' | 'running';
}

export class SimulatedAgent {
  readonly #events: SimulatedEvents;
  readonly #credential: string;
  readonly #slots: number;
  readonly #client: AgentLinkClient;
  readonly #containers = new Map<string, Container>();
  readonly #control: ClientDuplexStream<ControlFromAgent, ControlToAgent__Output>;
  readonly #welcomed: Promise<void>;
  #heartbeat: NodeJS.Timeout | undefined;
  #tasks: ClientDuplexStream<TaskFromAgent, TaskToAgent__Output> | undefined;
  #seq = 0;
  #ended = false;

  /** Says hello; `ready` waits until the scheduler has taken the machine up. */
  constructor(client: AgentLinkClient, machine: SimulatedMachine, events: SimulatedEvents) {
    this.#client = client;
    this.#events = events;
    this.#credential = machine.credential;
    this.#slots = machine.slots;
    this.#control = client.control(bearer(machine.credential));
    this.#welcomed = new Promise((resolve, reject) => {
      this.#control.on('error', (error: Error) => {
        this.end();
        reject(error);
      });
      this.#control.on('end', () => {
        this.end();
        reject(new Error('the scheduler ended the control stream'));
      });
      this.#control.on('data', (message: ControlToAgent__Output) => {
        if (message.desired && !this.#ended) resolve();
        this.#receive(message);
      });
    });
    this.#welcomed.catch(() => undefined);
    this.#control.write({ hello: helloOf(machine) });
  }

  /** The first snapshot came: the machine is reconciled, and takes containers. @throws when the stream ended before */
  ready(): Promise<void> {
    return this.#welcomed;
  }

  get containers(): number {
    return this.#containers.size;
  }

  /** Runs the containers that were held back in their start. */
  release(): void {
    for (const container of this.#containers.values()) this.#run(container);
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    clearInterval(this.#heartbeat);
    this.#control.cancel();
    this.#tasks?.cancel();
  }

  #receive(message: ControlToAgent__Output): void {
    if (message.ping) this.#control.write({ pong: { seq: message.ping.seq } });
    else if (message.welcome) this.#welcome(message.welcome.sessionId, message.welcome.heartbeatIntervalMs);
    else if (message.desired) this.#follow(message.desired.assignments);
    else if (message.proceed) {
      const container = this.#containers.get(message.proceed.containerId);
      if (container?.epoch === message.proceed.epoch) this.#run(container);
    }
  }

  #welcome(sessionId: string, heartbeatMs: number): void {
    this.#heartbeat = setInterval(() => this.#control.write({ heartbeat: { sentAtMs: Date.now() } }), heartbeatMs);
    this.#tasks = this.#client.tasks(bearer(this.#credential, sessionId));
    this.#tasks.on('error', () => undefined);
    this.#tasks.on('data', (message: TaskToAgent__Output) => this.#task(message));
    this.#tasks.write({ report: { running: [] } });
  }

  /** Follows a desired state: absences first, then stops, then new containers. */
  #follow(assignments: readonly Assignment__Output[]): void {
    const wanted = new Set(assignments.map((assignment) => assignment.containerId));
    for (const id of this.#containers.keys()) if (!wanted.has(id)) this.#containers.delete(id);
    for (const assignment of assignments) {
      const { containerId, assignmentId, epoch, stop, spec } = assignment;
      const known = this.#containers.get(containerId);
      if (stop) this.#remove(known ?? { ...assignment, deploymentId: '', phase: 'accepted' });
      else if (known?.epoch !== epoch) {
        const deploymentId = spec?.deploymentId ?? '';
        this.#events.onAssigned(containerId, deploymentId, performance.now());
        this.#containers.set(containerId, { containerId, assignmentId, epoch, deploymentId, phase: 'accepted' });
        this.#control.write({ ack: { containerId, assignmentId, epoch } });
      }
    }
  }

  #run(container: Container): void {
    if (container.phase === 'running' || !this.#events.mayRun(container.deploymentId)) return;
    container.phase = 'running';
    this.#report({
      ...this.#named(container),
      phase: 'running',
      slots: this.#slots,
      mode: 'single',
      startedAtMs: Date.now(),
    });
  }

  #remove(container: Container): void {
    this.#containers.delete(container.containerId);
    this.#report({ ...this.#named(container), phase: 'removed', reason: 'completed', finishedAtMs: Date.now() });
  }

  #named({ containerId, assignmentId, epoch }: Container): ObservedContainer {
    return { containerId, assignmentId, epoch };
  }

  #report(container: ObservedContainer): void {
    this.#seq += 1;
    this.#control.write({ status: { seq: this.#seq, full: false, containers: [container] } });
  }

  #task(message: TaskToAgent__Output): void {
    const ended = (message.batch?.messages ?? [message]).flatMap(({ run }) => (run?.last === true ? [run] : []));
    const byWork = Map.groupBy(ended, ({ containerId }) => this.#workMs(containerId));
    for (const [workMs, runs] of byWork) {
      if (workMs === 0) this.#answer(runs);
      else setTimeout(() => this.#answer(runs), workMs);
    }
  }

  #workMs(containerId: string): number {
    const deploymentId = this.#containers.get(containerId)?.deploymentId;
    return deploymentId === undefined ? 0 : this.#events.workMs(deploymentId);
  }

  #answer(runs: readonly Run[]): void {
    const messages = runs.map(resultOf);
    const [only] = messages;
    if (only !== undefined) this.#tasks?.write(messages.length === 1 ? only : { batch: { messages } });
  }
}

interface Run {
  readonly taskId: string;
  readonly token: string;
  readonly containerId: string;
}

function resultOf({ taskId, token, containerId }: Run): TaskFromAgent {
  const body = Buffer.from(ANSWER);
  return { result: { taskId, token, containerId, outcome: 'ok', durationMs: 0, chunks: 0, started: true, body } };
}

function helloOf(machine: SimulatedMachine): NonNullable<ControlFromAgent['hello']> {
  const { machineId, cpuMillicores, memoryBytes, gpus } = machine;
  return {
    machineId,
    bootId: BOOT_ID,
    instanceId: randomUUID(),
    version: 'simulated',
    protocol: PROTOCOL_VERSION,
    inventory: {
      hostname: `simulated-${machineId}`,
      os: 'simulated',
      arch: 'x86_64',
      cpuMillicores,
      memoryBytes,
      diskTotalBytes: 2 ** 40,
      diskFreeBytes: 2 ** 40,
      dockerVersion: '0',
      kernel: '0',
      gpus: Array.from({ length: gpus?.count ?? 0 }, (_, index) => ({
        uuid: `GPU-${randomUUID()}`,
        model: gpus?.model ?? '',
        memoryBytes: 80 * 1024 ** 3,
        index,
        state: 'healthy',
      })),
      images: [],
    },
    observed: [],
  };
}
