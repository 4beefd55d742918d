/**
 * An agent without a machine. The agent speaks the real protocol of the link over gRPC: joins with a token, verifies
 * the CA, redials, acknowledges. Results are kept until they are acknowledged. Containers are entries of a map that
 * "run" tasks by a function. Many agents fit in one process; tests use them where the machine is not the subject.
 * Benchmarks have one that does less and costs less: bench/simulated/agent.ts. The agent knows several schedulers and
 * dials another one when its link ends, as behind a load balancer.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type { ClientDuplexStream } from '@grpc/grpc-js';
import { echoStream } from './simulated-stream.ts';
import type { StreamLine } from '#shared/protocol/byte-connections.ts';
import { bearer, openChannel } from '#agent/upstream/channel.ts';
import { redialWaitMs } from '#agent/upstream/redial.ts';
import { readTrustedCa } from '#agent/upstream/trust.ts';
import { sleep } from '#shared/backoff.ts';
import { PART_BYTES, PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type {
  AgentLinkClient,
  Assignment__Output,
  ControlFromAgent,
  ControlToAgent__Output,
  Desired__Output,
  DeviceSample,
  GatewayResponse__Output,
  Gpu,
  Hello,
  JoinResponse__Output,
  ObservedContainer,
  RunTask__Output,
  TaskFromAgent,
  TaskToAgent__Output,
} from '#shared/protocol/generated/messages.ts';

/** Input of a simulated handler. */
export interface SimulatedTask {
  readonly taskId: string;
  readonly input: string;
  readonly containerId: string;
  readonly machineId: string;
  /** Aborted when the scheduler cancels the task. */
  readonly signal: AbortSignal;
  /** Sends an item of a generator; its result is empty. */
  readonly item: (value: unknown) => void;
}

/** The handler of every simulated container: the result's JSON text. A throw is a handler that raises. */
export type SimulatedHandler = (task: SimulatedTask) => string | Promise<string>;

export interface SimulatedAgentOptions {
  /** `host:port` of each scheduler's port for agents; read at every dial, so that it may change. */
  readonly addresses: () => readonly string[];
  readonly joinToken: string;
  readonly handle?: SimulatedHandler;
  readonly cpuMillicores?: number;
  readonly memoryBytes?: number;
  readonly gpus?: readonly (Gpu & { readonly uuid: string; readonly model: string; readonly memoryBytes: number })[];
  /** Drivers of volumes beside `local`. */
  readonly volumeDrivers?: readonly string[];
  /** Pythons of base images that the machine has or can make; absent: it pulls them. */
  readonly basePythons?: readonly string[];
  /** How long the agent takes from its join to its first link: preflight, recovery, GPUs. */
  readonly dialAfterMs?: number;
  /** How long a container takes from `proceed` to ready. */
  readonly startMs?: number;
  /** Called after that: an empty text makes the container ready, any other is the last line of a start that failed. */
  readonly start?: (containerId: string) => Promise<string>;
}

interface Container {
  readonly assignment: Assignment__Output;
  phase: 'accepted' | 'starting' | 'running' | 'stopping' | 'removed';
  startedAtMs: number;
  /** Last line of a start that failed. */
  failed?: string;
}

interface Attempt {
  readonly taskId: string;
  readonly token: string;
  readonly containerId: string;
  readonly stop: AbortController;
  /** Bytes of its order, returned in reports. */
  readonly facts: Buffer;
  parts: Buffer[];
  items: number;
  /** Result that is kept until it is acknowledged. */
  result: TaskFromAgent | undefined;
}

/** A container that was created: the same one twice is a duplicate. */
export interface Creation {
  readonly containerId: string;
  readonly epoch: number;
  readonly atMs: number;
}

const STARTED_AFTER_MS = 50;

/**
 * Yields as many items as the input's `items` says, sleeps as long as its `sleepMs` says. Unless it yielded, it returns
 * the input together with the place where it ran.
 */
export const echo: SimulatedHandler = async ({ input, containerId, machineId, signal, item }) => {
  const {
    sleepMs = 0,
    items = 0,
    ...rest
  } = JSON.parse(input === '' ? '{}' : input) as {
    sleepMs?: number;
    items?: number;
  };
  for (let n = 0; n < items; n += 1) item({ n });
  if (sleepMs > 0) await sleep(sleepMs, signal);
  if (items > 0) return '';
  return JSON.stringify({ ...rest, containerId, machineId });
};

/** A link ends after so many ping intervals of silence, as an agent's does. */
const SILENT_PINGS = 3;
/** Steps of each start, as agents measure them. One is of a later version. */
const START_PHASES = [
  { name: 'prepare', durationMs: 2 },
  { name: 'mounts', durationMs: 0 },
  { name: 'later', durationMs: 1 },
  { name: 'on_start', durationMs: 1 },
];

export class SimulatedAgent {
  machineId = '';
  /** Every run of every task, in order. */
  readonly runs: { readonly taskId: string; readonly containerId: string }[] = [];
  readonly creations: Creation[] = [];
  /** The credential that each container was given, by its id. */
  readonly tokens = new Map<string, string>();
  /** Time of the scheduler's last answer to a report, from which on it sends tasks. */
  takesTasksSinceMs = 0;
  readonly #options: SimulatedAgentOptions;
  readonly #instanceId = randomBytes(8).toString('hex');
  readonly #bootId = randomUUID();
  readonly #containers = new Map<string, Container>();
  readonly #attempts = new Map<string, Attempt>();
  readonly #abort = new AbortController();
  #credential = '';
  #caPem = '';
  #client: AgentLinkClient | undefined;
  #sessionId = '';
  #control: ClientDuplexStream<ControlFromAgent, ControlToAgent__Output> | undefined;
  #tasks: ClientDuplexStream<TaskFromAgent, TaskToAgent__Output> | undefined;
  #batch: TaskFromAgent[] = [];
  #seq = 0;
  #revision = 0;
  #address = '';
  #wasLinked = false;
  #windowMs = 0;
  #loop: Promise<void> | undefined;

  constructor(options: SimulatedAgentOptions) {
    this.#options = options;
  }

  /** Address that the link goes to now; empty: no link. */
  get linkedTo(): string {
    return this.#tasks === undefined ? '' : this.#address;
  }

  /** Containers that run, by id. */
  get running(): readonly string[] {
    return [...this.#containers].filter(([, { phase }]) => phase === 'running').map(([id]) => id);
  }

  /** Ids of the containers that are there, in any phase. */
  get present(): readonly string[] {
    return [...this.#containers].filter(([, { phase }]) => phase !== 'removed').map(([id]) => id);
  }

  /** Joins and dials; the first link is up when this resolves. */
  async start(): Promise<void> {
    const [, fingerprint = '', secret = ''] = this.#options.joinToken.split('.');
    const [first] = this.#options.addresses();
    if (first === undefined) throw new Error('a simulated agent needs a scheduler');
    this.#caPem = await readTrustedCa(first, fingerprint);
    await this.#join(first, secret);
    await sleep(this.#options.dialAfterMs ?? 0, this.#abort.signal);
    const linked = Promise.withResolvers<void>();
    this.#loop = this.#run(linked.resolve);
    await linked.promise;
  }

  /** Ends the agent without a report, and its containers with it. */
  /** Tells that the machine has or can make other base images now. */
  tellPythons(versions: readonly string[], here: readonly string[] = []): void {
    this.#control?.write({ basePythons: { versions: [...versions], here: [...here], known: true } });
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    this.hangUp();
    for (const { stop } of this.#attempts.values()) stop.abort();
    await this.#loop;
  }

  /** Ends the link; the next one goes elsewhere. */
  hangUp(): void {
    this.#control?.cancel();
    this.#client?.close();
  }

  async #join(address: string, secret: string): Promise<void> {
    const client = openChannel(address, this.#caPem);
    try {
      const answer = await new Promise<JoinResponse__Output>((resolve, reject) => {
        const request = {
          joinToken: secret,
          nonce: randomUUID(),
          machineFingerprint: this.#instanceId,
          hostname: `simulated-${this.#instanceId}`,
          publicKey: 'simulated',
          agentVersion: '0.1.0',
          protocol: PROTOCOL_VERSION,
        };
        client.join(request, { deadline: Date.now() + 30_000 }, (error, response) =>
          response === undefined ? reject(error ?? new Error('no answer')) : resolve(response),
        );
      });
      this.machineId = answer.machineId;
      this.#credential = answer.credential;
    } finally {
      client.close();
    }
  }

  async #run(onFirst: () => void): Promise<void> {
    const { signal } = this.#abort;
    let tried = Math.floor(Math.random() * 1000);
    while (!signal.aborted) {
      const addresses = this.#options.addresses();
      this.#address = addresses[tried % addresses.length] ?? '';
      tried += 1;
      this.#wasLinked = false;
      await this.#session(this.#address, onFirst);
      await sleep(redialWaitMs(this.#wasLinked, this.#windowMs, Math.random()), signal);
    }
  }

  /** A link, from dialling to its end. */
  #session(address: string, onLinked: () => void): Promise<void> {
    const client = openChannel(address, this.#caPem);
    this.#client = client;
    const control = client.control(bearer(this.#credential));
    this.#control = control;
    this.#revision = 0;
    let heartbeat: NodeJS.Timeout | undefined;
    let silence: NodeJS.Timeout | undefined;
    let silentMs = 0;
    return new Promise((resolve) => {
      let isOver = false;
      const end = (): void => {
        // Streams of a silent scheduler tell of their end later, when the next link may be up.
        if (isOver) return;
        isOver = true;
        clearInterval(heartbeat);
        clearTimeout(silence);
        control.cancel();
        this.#tasks?.cancel();
        this.#tasks = undefined;
        client.close();
        resolve();
      };
      control.on('error', end);
      control.on('end', end);
      control.on('close', end);
      control.on('data', (message: ControlToAgent__Output) => {
        if (isOver) return;
        clearTimeout(silence);
        if (silentMs > 0) silence = setTimeout(end, silentMs);
        if (message.ping) control.write({ pong: { seq: message.ping.seq } });
        else if (message.desired) this.#obey(message.desired);
        else if (message.proceed) {
          this.tokens.set(message.proceed.containerId, message.proceed.containerToken);
          this.#create(message.proceed.containerId, message.proceed.epoch);
        } else if (message.serveVolume) void this.#echo({ streamId: message.serveVolume.streamId });
        else if (message.superseded) end();
        else if (message.later) this.#wasLinked = false;
        else if (message.welcome) {
          this.#wasLinked = true;
          this.#windowMs = message.welcome.reconnectWindowMs;
          silentMs = SILENT_PINGS * message.welcome.pingIntervalMs;
          this.#openTasks(client, message.welcome.sessionId, end, onLinked);
          heartbeat = setInterval(() => this.#heartbeat(), message.welcome.heartbeatIntervalMs);
        }
      });
      control.write({ hello: this.#hello() });
    });
  }

  /** Answers a stream with its own body. @returns the result's body, or undefined when its caller left */
  #echo(line: StreamLine): Promise<string | undefined> {
    return echoStream({
      address: this.#address,
      caPem: this.#caPem,
      credential: this.#credential,
      sessionId: this.#sessionId,
      line,
    }).catch(() => undefined);
  }

  #hello(): Hello {
    const { cpuMillicores = 4000, memoryBytes = 8 * 1024 ** 3, gpus = [] } = this.#options;
    return {
      machineId: this.machineId,
      bootId: this.#bootId,
      instanceId: this.#instanceId,
      version: '0.1.0',
      protocol: PROTOCOL_VERSION,
      inventory: {
        hostname: `simulated-${this.#instanceId}`,
        os: 'linux',
        arch: 'x64',
        cpuMillicores,
        memoryBytes,
        diskTotalBytes: 500e9,
        diskFreeBytes: 400e9,
        gpus: [...gpus],
        images: [],
        volumeDrivers: [...(this.#options.volumeDrivers ?? [])],
        basePythons: [...(this.#options.basePythons ?? [])],
        basePythonsKnown: this.#options.basePythons !== undefined,
      },
      observed: [...this.#containers.keys()].map((id) => this.#observed(id)).filter((one) => one !== undefined),
    };
  }

  #heartbeat(): void {
    const liveAttempts = [...this.#attempts.values()].map(({ taskId, token, containerId }) => ({
      taskId,
      token,
      containerId,
    }));
    this.#control?.write({ heartbeat: { sentAtMs: Date.now(), liveAttempts, conditions: [], diskFreeBytes: 400e9 } });
  }

  /** Sends a sample of a container's use, as an agent does every few seconds. */
  sample(of: {
    readonly containerId: string;
    readonly cpuMicroseconds: number;
    readonly intervalMs: number;
    readonly memoryRssBytes: number;
  }): void {
    const { containerId, memoryRssBytes, ...since } = of;
    this.#control?.write({
      samples: { sampledAtMs: Date.now(), containers: [{ containerId, memoryRssBytes, since }] },
    });
  }

  /** Sends the use of its GPUs, as an agent does after each look of the driver's tool. */
  sampleDevices(devices: readonly DeviceSample[]): void {
    this.#control?.write({ samples: { sampledAtMs: Date.now(), containers: [], devices: [...devices] } });
  }

  /** Sends a line that a container printed, for a task where it names one, and waits until it is taken. */
  async log({
    containerId,
    line,
    taskId = '',
  }: {
    readonly containerId: string;
    readonly line: string;
    readonly taskId?: string;
  }): Promise<void> {
    const logs = this.#client?.logs(bearer(this.#credential));
    if (logs === undefined) throw new Error('the agent has no link');
    const taken = new Promise((resolve, reject) => logs.once('data', resolve).once('error', reject));
    const record = { containerId, taskId, stream: 'stdout', line, timestampMs: Date.now() };
    logs.write({ seq: 1, records: [record] });
    await taken;
    logs.end();
  }

  /** Makes any call of a container, as the agent does for a request on the container's socket. */
  async call(
    containerId: string,
    line: string,
    body?: unknown,
    sent: { readonly headers?: Readonly<Record<string, string>>; readonly epoch?: number } = {},
  ): Promise<{ readonly status: number; readonly text: string }> {
    const client = this.#client;
    if (client === undefined) throw new Error('not linked');
    const [method = 'GET', path = '/'] = line.split(' ');
    const epoch = sent.epoch ?? this.#containers.get(containerId)?.assignment.epoch ?? 0;
    const headers = Object.entries(sent.headers ?? {}).map(([name, value]) => ({ name, value }));
    const call = client.callGateway(bearer(this.#credential), { deadline: Date.now() + 30_000 });
    call.write({ head: { containerId, epoch, method, path, headers } });
    const bytes = Buffer.from(body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body));
    for (let at = 0; at < bytes.length; at += PART_BYTES) call.write({ data: bytes.subarray(at, at + PART_BYTES) });
    call.end();
    let status = 0;
    const parts: Buffer[] = [];
    for await (const message of call) {
      const { head, data } = message as GatewayResponse__Output;
      if (head !== null) status = head.status;
      parts.push(data);
    }
    return { status, text: Buffer.concat(parts).toString() };
  }

  // ---- containers ---------------------------------------------------------------------------------------------------

  #observed(id: string): ObservedContainer | undefined {
    const container = this.#containers.get(id);
    if (container === undefined) return undefined;
    const { assignment, phase, startedAtMs, failed } = container;
    const { workers = 1, concurrentRequests = 1 } = assignment.spec ?? {};
    return {
      containerId: id,
      assignmentId: assignment.assignmentId,
      epoch: assignment.epoch,
      phase,
      slots: Math.max(1, workers) * Math.max(1, concurrentRequests),
      mode: 'single',
      startedAtMs,
      ...(phase === 'running' ? { startPhases: START_PHASES } : {}),
      ...(phase === 'removed' ? { exitCode: 143, reason: assignment.stopReason, finishedAtMs: Date.now() } : {}),
      ...(failed === undefined ? {} : { phase: 'exited', exitCode: 1, reason: 'user_error', message: failed }),
    };
  }

  #report(id: string): void {
    const observed = this.#observed(id);
    if (observed === undefined) return;
    this.#seq += 1;
    this.#control?.write({ status: { seq: this.#seq, full: false, containers: [observed] } });
  }

  #obey({ revision, assignments }: Desired__Output): void {
    if (revision <= this.#revision) return;
    this.#revision = revision;
    const wanted = new Map(assignments.map((one) => [one.containerId, one]));
    for (const id of [...this.#containers.keys()]) {
      if (wanted.has(id)) continue;
      this.#end(id);
      this.#containers.delete(id);
    }
    for (const assignment of wanted.values()) this.#take(assignment);
  }

  #take(assignment: Assignment__Output): void {
    const { containerId: id, assignmentId, epoch } = assignment;
    const held = this.#containers.get(id);
    if (held !== undefined && held.assignment.epoch === epoch) {
      if (assignment.stop) this.#end(id);
      else if (held.phase === 'accepted') this.#control?.write({ ack: { assignmentId, containerId: id, epoch } });
      return;
    }
    this.#containers.set(id, { assignment, phase: assignment.stop ? 'removed' : 'accepted', startedAtMs: 0 });
    if (assignment.stop) this.#report(id);
    else this.#control?.write({ ack: { assignmentId, containerId: id, epoch } });
  }

  #create(id: string, epoch: number): void {
    const container = this.#containers.get(id);
    if (container?.assignment.epoch !== epoch || container.phase !== 'accepted') return;
    this.creations.push({ containerId: id, epoch, atMs: Date.now() });
    container.phase = 'starting';
    this.#report(id);
    void sleep(this.#options.startMs ?? 20, this.#abort.signal).then(async () => {
      const failed = (await this.#options.start?.(id)) ?? '';
      if (this.#containers.get(id) !== container || container.phase !== 'starting') return;
      if (failed === '') container.phase = 'running';
      else container.failed = failed;
      container.startedAtMs = Date.now();
      this.#report(id);
    });
  }

  /** The container's process ends by itself. */
  exit(id: string): void {
    this.#end(id);
  }

  /** Ends the container as TERM does: its attempts are cut off. */
  #end(id: string): void {
    const container = this.#containers.get(id);
    if (container === undefined) return;
    container.phase = 'removed';
    for (const attempt of this.#attempts.values()) {
      if (attempt.containerId === id && attempt.result === undefined) this.#finish(attempt, 'lost', '');
    }
    this.#report(id);
  }

  // ---- tasks --------------------------------------------------------------------------------------------------------

  #openTasks(client: AgentLinkClient, sessionId: string, end: () => void, onLinked: () => void): void {
    const tasks = client.tasks(bearer(this.#credential, sessionId));
    this.#client = client;
    this.#sessionId = sessionId;
    tasks.on('error', end);
    tasks.on('end', end);
    tasks.on('data', (message: TaskToAgent__Output) => {
      if (this.#tasks !== tasks) return;
      for (const one of message.batch?.messages ?? [message]) this.#onTask(one);
    });
    const live = [...this.#attempts.values()];
    const named = (some: Attempt[]) =>
      some.map(({ taskId, token, containerId, facts }) => ({ taskId, token, containerId, facts }));
    tasks.write({
      report: {
        running: named(live.filter(({ result }) => result === undefined)),
        finished: named(live.filter(({ result }) => result !== undefined)),
      },
    });
    for (const { result } of live) if (result !== undefined) tasks.write(result);
    this.#tasks = tasks;
    onLinked();
  }

  #onTask(message: TaskToAgent__Output): void {
    if (message.run) this.#onRun(message.run);
    else if (message.acked) this.#attempts.delete(message.acked.token);
    else if (message.cancel) this.#attempts.get(message.cancel.token)?.stop.abort();
    else if (message.known) {
      this.takesTasksSinceMs = performance.now();
      for (const { token } of message.known.refused) this.#attempts.delete(token);
    }
  }

  #onRun({ taskId, token, containerId, input, last, part, stream, facts }: RunTask__Output): void {
    if (part === 0 && this.#containers.get(containerId)?.phase !== 'running') {
      this.#send({ refused: { taskId, token, reason: 'container_not_running' } });
      return;
    }
    let attempt = this.#attempts.get(token);
    if (attempt === undefined) {
      if (part !== 0) return;
      const stop = new AbortController();
      attempt = { taskId, token, containerId, stop, facts: Buffer.from(facts), parts: [], items: 0, result: undefined };
      this.#attempts.set(token, attempt);
    }
    if (stream) return void this.#stream(attempt);
    attempt.parts.push(Buffer.from(input));
    if (last) void this.#handle(attempt);
  }

  async #stream(attempt: Attempt): Promise<void> {
    const { taskId, token, containerId } = attempt;
    this.runs.push({ taskId, containerId });
    const body = await this.#echo({ taskId, token });
    this.#finish(attempt, body === undefined ? 'cancelled' : 'ok', body ?? '');
  }

  async #handle(attempt: Attempt): Promise<void> {
    const { taskId, token, containerId, stop } = attempt;
    this.runs.push({ taskId, containerId });
    const started = setTimeout(() => this.#send({ started: { taskId, token } }), STARTED_AFTER_MS);
    try {
      const handle = this.#options.handle ?? echo;
      const input = Buffer.concat(attempt.parts).toString();
      const item = (value: unknown): void => {
        const data = Buffer.from(`data: ${JSON.stringify(value)}\n\n`);
        this.#send({ chunk: { taskId, token, seq: attempt.items++, data } });
      };
      const { machineId } = this;
      const body = await handle({ taskId, input, containerId, machineId, signal: stop.signal, item });
      this.#finish(attempt, stop.signal.aborted ? 'cancelled' : 'ok', body);
    } catch (error) {
      const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
      // An error of this name asks for another try, as a handler's does where its stub has retries.
      const outcome = error instanceof Error && error.name === 'Retry' ? 'retry' : 'error';
      this.#finish(attempt, outcome, JSON.stringify({ error: text }));
    } finally {
      clearTimeout(started);
    }
  }

  #finish(attempt: Attempt, outcome: string, body: string): void {
    if (attempt.result !== undefined) return;
    const { taskId, token, containerId } = attempt;
    attempt.parts = [];
    attempt.result = {
      result: {
        taskId,
        token,
        containerId,
        outcome,
        durationMs: 1,
        chunks: attempt.items,
        body: Buffer.from(body),
        started: true,
      },
    };
    this.#send(attempt.result);
  }

  /** Batches all messages of one turn of the event loop. */
  #send(message: TaskFromAgent): void {
    this.#batch.push(message);
    if (this.#batch.length > 1) return;
    setImmediate(() => {
      const messages = this.#batch;
      this.#batch = [];
      const [only] = messages;
      if (only !== undefined) this.#tasks?.write(messages.length === 1 ? only : { batch: { messages } });
    });
  }
}
