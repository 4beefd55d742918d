// The scheduler's machines on a real database and a real Redis, with
// the real link: the agent is a few lines that speak agent.proto.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import { generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { credentials, Metadata } from '@grpc/grpc-js';
import type { ClientDuplexStream, ServiceError } from '@grpc/grpc-js';
import { expect } from 'vitest';
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import { Registry } from '#shared/metrics.ts';
import { HOST_HEADER, hostHeader } from '#shared/protocol/host-header.ts';
import type { ShownHost } from '#shared/protocol/host-header.ts';
import { loadLink, SERVER_NAME } from '#shared/protocol/link.ts';
import type {
  AgentLinkClient,
  ChallengeResponse__Output,
  ControlFromAgent,
  ControlToAgent__Output,
  Hello,
  JoinResponse__Output,
  LogAck__Output,
  LogBatch,
  ObservedContainer,
  PullImageRequest,
  PullImageResponse__Output,
  RegistryAuth,
  ProveResponse__Output,
  RenewCredentialResponse__Output,
  TaskFromAgent,
  TaskToAgent__Output,
} from '#shared/protocol/generated/messages.ts';
import type { ContainerEntry } from '#scheduler/fleet/containers/container-entry.ts';
import { ContainerRegistry } from '#scheduler/fleet/containers/container-registry.ts';
import type { Target } from '#scheduler/domain/stub-config.ts';
import { MachineHealth } from '#scheduler/fleet/health.ts';
import type { Links } from '#scheduler/fleet/links.ts';
import type { ImageOrders } from '#scheduler/fleet/images/orders.ts';
import { ALONE } from '#scheduler/cluster/bus.ts';
import { buildLinks } from '#scheduler/compose/links.ts';
import type { MachineParts } from '#scheduler/compose/machines.ts';
import { openMachines } from '#scheduler/compose/machines.ts';
import { wireContainers, wireLinks } from '#scheduler/compose/wiring-links.ts';
import { FleetMetrics } from '#scheduler/fleet/metrics.ts';
import type { SessionSettings } from '#scheduler/fleet/session-settings.ts';
import { SESSION_SETTINGS } from '#scheduler/fleet/session-settings.ts';
import { openInstallation } from '#scheduler/workspaces/identity/installation.ts';
import { createSealer } from '#scheduler/workspaces/secrets/seal.ts';
import { Secrets } from '#scheduler/workspaces/secrets/service.ts';
import type { Db } from '#scheduler/stores/store/db.ts';
import { tempDirectory, test as base, waitFor } from '../helpers/services.ts';
import { TestClock } from '../helpers/test-clock.ts';
import { aDb, aStub, aWorkspace } from './store-fixture.ts';
import type { Process } from './tasks-fixture.ts';
import { aProcess, aTarget, quiet } from './tasks-fixture.ts';

/** The part of the scheduler that concerns machines, built and wired by `compose/`. */
export interface Fleet extends MachineParts {
  readonly db: Db;
  readonly clock: TestClock;
  readonly process: Process;
  readonly containers: ContainerRegistry;
  readonly links: Links;
  readonly images: ImageOrders;
  /** The scheduler's credentials, given for every registry. */
  registryAuth: RegistryAuth | undefined;
  readonly health: MachineHealth;
  readonly guardMetric: FleetMetrics['guard'];
  readonly metrics: FleetMetrics;
  readonly caPem: string;
  /** Socket at which the agent of this machine may dial. */
  readonly socketPath: string;
  readonly objects: Map<string, Buffer>;
  readonly secrets: Secrets;
  target(changes?: Partial<Target>): Promise<Target>;
  /** A container of that target, assigned to that machine. */
  assigned(target: Target, machineId: MachineId): Promise<ContainerEntry>;
}

const AgentLink = loadLink().longshore.agent.v1.AgentLink;

export const test = base
  .extend('settings', {} as Partial<SessionSettings>)
  .extend('db', { scope: 'file' }, async ({}, { onCleanup }): Promise<Db> => {
    const opened = await aDb('pglite');
    onCleanup(() => opened.stop());
    return opened.db;
  })
  .extend('fleet', async ({ redis, db, settings }, { onCleanup }): Promise<Fleet> => {
    const clock = new TestClock();
    const sealer = createSealer(Buffer.alloc(32, 7));
    const installation = await openInstallation(db, sealer);
    const secrets = new Secrets(db, sealer);
    const process = await aProcess(redis);
    const metrics = new FleetMetrics(new Registry());
    const containers = new ContainerRegistry({ db, log: quiet, clock });
    const { caFingerprint } = installation;
    const machineParts = openMachines({ db, log: quiet, clock, metrics, caFingerprint, containers });
    const { machines, agentReports } = machineParts;
    const objects = new Map<string, Buffer>();
    const directory = tempDirectory('link');
    const socketPath = join(directory.path, 'link', 'agent.sock');
    const linkParts = buildLinks({
      ...process,
      ...machineParts,
      db,
      redis: process.client,
      bus: ALONE,
      isAlone: true,
      containers,
      installation,
      secrets,
      registries: { of: () => Promise.resolve(made.registryAuth) },
      cpuWorkAllowed: () => true,
      tokenOf: (row) => Promise.resolve(`token of ${row.id}`),
      noticeMs: () => 20_000,
      openObject: (objectId) => {
        const bytes = objects.get(objectId);
        return Promise.resolve(bytes && Readable.from([bytes]));
      },
      address: '127.0.0.1:0',
      socketPath,
      clock,
      log: quiet,
      metrics,
      settings: { ...SESSION_SETTINGS, ...settings },
    });
    const { links } = linkParts;
    machines.onChange((machine) => agentReports.machineChanged(machine));
    const { slots } = process;
    const loads = { of: slots.get.bind(slots), tellLast: () => undefined, forget: () => undefined };
    const clusterState = { containers, machines, slots, loads };
    const podParts = { containerUses: { hold: () => () => undefined } };
    wireLinks({ clusterState, linkParts, podParts, taskParts: process });
    wireContainers({ clusterState, linkParts, podParts, taskParts: process });
    const health = new MachineHealth({
      ...process,
      ...machineParts,
      containers,
      clock,
      isLeader: () => true,
      fence: () => 1,
      log: quiet,
      guardMetric: metrics.guard,
      stall: { stalledAtMs: () => null, sinceStallMs: () => Infinity, calmMs: () => Infinity },
      lostAfterMs: 90_000,
      startGraceMs: 120_000,
    });
    await machines.start();
    agentReports.start();
    await links.start();
    health.start();
    onCleanup(async () => {
      health.stop();
      await links.stop();
      await agentReports.stop();
      await process.stop();
      directory.remove();
    });
    const workspace = await aWorkspace(db);
    const made: Fleet = {
      registryAuth: undefined,
      db,
      clock,
      process,
      ...machineParts,
      containers,
      ...linkParts,
      health,
      guardMetric: metrics.guard,
      metrics,
      caPem: installation.caCertPem,
      socketPath,
      objects,
      secrets,
      target: async (changes = {}) => {
        const stub = await aStub(db, workspace.id, randomUUID());
        return {
          ...aTarget(),
          workspaceId: workspace.id,
          stubId: stub.id,
          queue: queueNameOf(null, stub.id),
          ...changes,
        };
      },
      assigned: async (target, machineId) => {
        const entry = await containers.create(target);
        const change = {
          machineId,
          assignmentId: randomUUID(),
          epoch: entry.row.epoch + 1,
          scheduledAtMs: clock.nowMs(),
        };
        expect(await containers.transition(entry.row.id, 'assign', { change })).toBe('moved');
        return entry;
      },
    };
    return made;
  })
  .extend('agents', async ({ fleet }, { onCleanup }) => {
    const made: Agent[] = [];
    onCleanup(() => made.forEach((agent) => agent.close()));
    return {
      /** Joins a machine; its agent is not connected yet. @param channel - other channel options than the default */
      joined: async (
        owner: { readonly workspaceId: WorkspaceId | null } = { workspaceId: null },
        channel: Partial<AgentChannel> = {},
      ): Promise<Agent> => {
        const agent = new Agent(fleet, channel);
        made.push(agent);
        const created = await fleet.joining.create(owner, 'default');
        await agent.join(secretOf(created.joinToken));
        return agent;
      },
      stranger: (): Agent => {
        const agent = new Agent(fleet);
        made.push(agent);
        return agent;
      },
    };
  });

export const secretOf = (joinToken: string): string => joinToken.split('.')[2] ?? '';

/** A stream with all messages that it has received. */
export class Heard<Up, Down> {
  readonly stream: ClientDuplexStream<Up, Down>;
  readonly messages: Down[] = [];
  error: ServiceError | undefined;
  ended = false;

  constructor(stream: ClientDuplexStream<Up, Down>) {
    this.stream = stream;
    // Messages of a batch are recorded one by one.
    stream.on('data', (message: Down & { batch?: { messages: Down[] } | null }) =>
      this.messages.push(...(message.batch?.messages ?? [message])),
    );
    stream.on('error', (error: ServiceError) => {
      this.error = error;
      this.ended = true;
    });
    stream.on('end', () => (this.ended = true));
  }

  /** Waits for the first message from `from` on for which `look` returns a value. */
  until<T>(what: string, look: (message: Down) => T | undefined | null | false, from = 0): Promise<T> {
    return waitFor(() => {
      for (const message of this.messages.slice(from)) {
        const found = look(message);
        if (found !== undefined && found !== null && found !== false) return found;
      }
      if (this.ended) throw new Error(`the stream ended before ${what}: ${this.error?.message ?? 'no error'}`);
      return undefined;
    }, what);
  }

  over(): Promise<true> {
    return waitFor(() => this.ended as true, 'the stream ends');
  }
}

/** How an agent dials. */
export interface AgentChannel {
  readonly address: string;
  readonly options: Readonly<Record<string, number>>;
}

export class Agent {
  machineId = '' as MachineId;
  credential = '';
  installationKey = '';
  sessionId = '';
  client: AgentLinkClient;
  answersPings = true;
  bootId = 'b';
  /** Host that its calls show; absent: none, as an agent that finds out nothing. */
  host: ShownHost | undefined;
  /** Key pair of the machine, registered at its join, with which it proves its identity. */
  readonly keys = generateKeyPairSync('ed25519');
  readonly #fleet: Fleet;

  constructor(fleet: Fleet, { address = fleet.links.address, options = {} }: Partial<AgentChannel> = {}) {
    this.#fleet = fleet;
    const trust = credentials.createSsl(Buffer.from(fleet.caPem));
    this.client = new AgentLink(address, trust, { ...options, 'grpc.ssl_target_name_override': SERVER_NAME });
  }

  close(): void {
    this.client.close();
  }

  /** Dials by the socket, without TLS, from now on. */
  goLocal(): void {
    this.client.close();
    this.client = new AgentLink(`unix:${this.#fleet.socketPath}`, credentials.createInsecure());
  }

  async join(joinToken: string, nonce: string = randomUUID(), machineFingerprint = 'f'): Promise<JoinResponse__Output> {
    const request = {
      joinToken,
      nonce,
      machineFingerprint,
      hostname: 'h',
      publicKey: this.keys.publicKey.export({ type: 'spki', format: 'der' }).toString('base64'),
      agentVersion: '0',
      protocol: 1,
    };
    const secret = secretOf(joinToken) || joinToken;
    const full = { ...request, joinToken: secret, enrolment: joinToken.startsWith('lse1.') };
    const answer = await called<JoinResponse__Output>((done) => this.client.join(full, this.#shown(), done));
    this.machineId = answer.machineId as MachineId;
    this.credential = answer.credential;
    this.installationKey = answer.installationKey;
    return answer;
  }

  #shown(): Metadata {
    const metadata = new Metadata();
    if (this.host !== undefined) metadata.set(HOST_HEADER, hostHeader(this.host));
    return metadata;
  }

  #metadata(sessionId?: string): Metadata {
    const metadata = this.#shown();
    metadata.set('authorization', `Bearer ${this.credential}`);
    if (sessionId !== undefined) metadata.set('session-id', sessionId);
    return metadata;
  }

  /** Asks for the successor of its credential, without using it. */
  async renew(): Promise<string> {
    const answer = await called<RenewCredentialResponse__Output>((done) =>
      this.client.renewCredential({}, this.#metadata(), done),
    );
    return answer.credential;
  }

  /** Answers a challenge for that machine with its key. */
  async prove(machineId: string = this.machineId): Promise<ProveResponse__Output> {
    const { challenge } = await called<ChallengeResponse__Output>((done) => this.client.challenge({ machineId }, done));
    const signature = sign(null, Buffer.from(challenge), this.keys.privateKey);
    return await called<ProveResponse__Output>((done) =>
      this.client.prove({ machineId, challenge, signature }, this.#shown(), done),
    );
  }

  control(): Heard<ControlFromAgent, ControlToAgent__Output> {
    const heard = new Heard(this.client.control(this.#metadata()));
    heard.stream.on('data', ({ ping }: ControlToAgent__Output) => {
      if (ping && this.answersPings) heard.stream.write({ pong: { seq: ping.seq } });
    });
    return heard;
  }

  hello(observed: readonly ObservedContainer[] = [], instanceId = 'agent-1'): Hello {
    const inventory = { hostname: 'h', cpuMillicores: 4000, memoryBytes: 8e9, gpus: [], images: [] };
    return {
      machineId: this.machineId,
      bootId: this.bootId,
      instanceId,
      version: '0.1.0',
      protocol: 1,
      inventory,
      observed: [...observed],
    };
  }

  /** Opens a control stream: the agent has said hello, and has its desired state. */
  async connect(observed: readonly ObservedContainer[] = [], instanceId?: string) {
    const control = this.control();
    control.stream.write({ hello: this.hello(observed, instanceId) });
    const welcome = await control.until('the welcome', (message) => message.welcome);
    this.sessionId = welcome.sessionId;
    await control.until('the first snapshot', (message) => message.desired);
    return control;
  }

  tasks(sessionId = this.sessionId): Heard<TaskFromAgent, TaskToAgent__Output> {
    return new Heard(this.client.tasks(this.#metadata(sessionId)));
  }

  logs(): Heard<LogBatch, LogAck__Output> {
    return new Heard(this.client.logs(this.#metadata()));
  }

  pullImage(image: string, question: Omit<PullImageRequest, 'image'> = {}): Promise<PullImageResponse__Output> {
    return called((answer) => this.client.pullImage({ image, ...question }, this.#metadata(), answer));
  }

  async fetchCode(objectId: string): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const part of this.client.fetchCode({ objectId }, this.#metadata()))
      parts.push((part as { data: Buffer }).data);
    return Buffer.concat(parts);
  }
}

/** The answer of a unary call. */
function called<T>(call: (done: (error: ServiceError | null, answer?: T) => void) => unknown): Promise<T> {
  return new Promise((resolve, reject) => {
    call((error, answer) => (answer === undefined ? reject(error ?? new Error('nothing')) : resolve(answer)));
  });
}

export const codeOf = (promise: Promise<unknown>): Promise<number> =>
  promise.then(
    () => -1,
    (error: unknown) => (error as ServiceError).code,
  );
export const seen = (
  entry: ContainerEntry,
  phase: string,
  changes: Partial<ObservedContainer> = {},
): ObservedContainer => ({
  containerId: entry.row.id,
  assignmentId: entry.row.assignmentId ?? '',
  epoch: entry.row.epoch,
  phase,
  slots: 1,
  startedAtMs: Date.now(),
  ...changes,
});
export const health = (fleet: Fleet, agent: Agent) => fleet.machines.get(agent.machineId)?.health;
export const becomes = (fleet: Fleet, agent: Agent, wanted: string) =>
  waitFor(() => health(fleet, agent) === wanted, `the machine is ${wanted}`);

/** A container of a new target that runs on that machine, with the task stream open. */
export async function serving(fleet: Fleet, agent: Agent, changes: Partial<Target> = {}) {
  const control = await agent.connect();
  const target = await fleet.target(changes);
  const entry = await fleet.assigned(target, agent.machineId);
  control.stream.write({
    ack: { assignmentId: entry.row.assignmentId ?? '', containerId: entry.row.id, epoch: entry.row.epoch },
  });
  await control.until('proceed', (message) => message.proceed);
  control.stream.write({ status: { seq: 1, full: false, containers: [seen(entry, 'running')] } });
  await waitFor(() => entry.row.state === 'RUNNING', 'the container runs');
  const tasks = agent.tasks();
  tasks.stream.write({ report: { running: [] } });
  await tasks.until('the answer to the report', (message) => message.known);
  await waitFor(() => fleet.process.slots.get(entry.row.id)?.accepting, 'it takes tasks');
  return { control, target, entry, tasks };
}
