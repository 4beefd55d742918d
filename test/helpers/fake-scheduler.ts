/**
 * The scheduler's end of the agent link for tests: a real gRPC server with a throw-away
 * CA that speaks agent.proto. The server remembers messages, lets assignments proceed,
 * acknowledges results, and does what a test tells it to. The server decides nothing.
 */
import { separateLines } from '#shared/domain/log-lines.ts';
import { createHash, createPublicKey, generateKeyPairSync, randomBytes, verify } from 'node:crypto';
import { Server, ServerCredentials, status } from '@grpc/grpc-js';
import type { Metadata, ServerDuplexStream, ServerUnaryCall, sendUnaryData } from '@grpc/grpc-js';
import type {
  AckResult,
  Assignment,
  ChallengeRequest__Output,
  ControlFromAgent__Output,
  ControlToAgent,
  GatewayRequest__Output,
  GatewayRequestHead__Output,
  GatewayResponse,
  Hello__Output,
  JoinRequest__Output,
  LogAck,
  LogBatch__Output,
  LogRecord__Output,
  ObservedContainer__Output,
  ProveRequest__Output,
  TaskFromAgent__Output,
  TaskReport__Output,
  TaskResult__Output,
  TaskToAgent,
} from '#shared/protocol/generated/messages.ts';
import { PART_BYTES, loadLink } from '#shared/protocol/link.ts';
import {
  fingerprintOf,
  issueServerCertificate,
  makeCertificateAuthority,
} from '../../scheduler/workspaces/identity/certificates.ts';
import { signClaims } from '../../scheduler/workspaces/identity/jwt.ts';
import { bindLocally } from '../../scheduler/fleet/agent-port.ts';
import { listenPrivately } from '../../scheduler/fleet/local-socket.ts';

type ControlStream = ServerDuplexStream<ControlFromAgent__Output, ControlToAgent>;
type TaskStream = ServerDuplexStream<TaskFromAgent__Output, TaskToAgent>;

/** A result with its parts joined. */
export interface WholeResult extends TaskResult__Output {
  readonly whole: Buffer;
}

/** A call of a container as it came over the link. */
export interface ContainerCall {
  readonly head: GatewayRequestHead__Output;
  body: Buffer;
  cancelled: boolean;
}

/** Waits until `look` returns a value. */
export async function until<T>(what: string, look: () => T | undefined | false, ms = 20_000): Promise<T> {
  const deadline = performance.now() + ms;
  for (;;) {
    const found = look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > deadline) throw new Error(`waited ${ms} ms for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export class FakeScheduler {
  readonly joins: JoinRequest__Output[] = [];
  readonly hellos: Hello__Output[] = [];
  readonly heard: ControlFromAgent__Output[] = [];
  readonly reports: TaskReport__Output[] = [];
  readonly started: string[] = [];
  readonly refused: { taskId: string; reason: string }[] = [];
  readonly results: WholeResult[] = [];
  readonly records: LogRecord__Output[] = [];
  readonly observed = new Map<string, ObservedContainer__Output>();
  /** Every phase a container was reported in, in order. */
  readonly phases = new Map<string, string[]>();
  readonly archives = new Map<string, Buffer>();
  readonly archiveFetches: string[] = [];
  /** Calls of containers, with the bodies received so far. */
  readonly calls: ContainerCall[] = [];
  /** The answer to a container's call, once its body is there; undefined: no answer. */
  answerCall: (call: ContainerCall) => { readonly status: number; readonly body: Buffer | string } | undefined = (
    call,
  ) => ({ status: 200, body: call.body });
  /** While true, calls of that name are refused. */
  refuseJoin = false;
  refuseCredentials = false;
  /** So many joins are told that their token is full. */
  fullJoins = 0;
  autoProceed = true;
  /** Values that go with every permission. */
  secrets: Record<string, string> = {};
  /** The credential that goes with every permission. */
  containerToken = 'container-token';
  /** True: every new session gets the last desired state again. */
  remembers = false;
  autoAck = true;
  pings = true;
  answersHeartbeats = false;
  /** Verdict on a machine that proves its identity by its key. */
  proofs: 'accept' | 'refuse' | 'revoke' = 'accept';
  /** Milliseconds by which the scheduler's clock is ahead of this machine's. */
  clockAheadMs = 0;
  #challenge = '';
  /** Calls of these kinds, in order. */
  readonly asked: ('renew' | 'challenge' | 'proof')[] = [];
  readonly keys = generateKeyPairSync('ed25519');
  credential = randomBytes(8).toString('hex');
  machineId = randomBytes(4).toString('hex');
  readonly secret = randomBytes(24).toString('base64url');
  address = '';
  /** Host without a port; an IPv6 address in brackets. */
  host = '127.0.0.1';
  /** Unix socket for the agent of this machine, used from the next `listen` on. */
  socketPath: string | undefined;
  /** Peer address of each session, in order. */
  readonly peers: string[] = [];
  joinToken = '';
  caPem = '';
  control: ControlStream | undefined;
  tasks: TaskStream | undefined;
  #server: Server | undefined;
  #revision = 0;
  #desired: { assignments: readonly Assignment[]; options: { full?: boolean; confirmEmpty?: boolean } } | undefined;
  #sessions = 0;
  #chunks = new Map<string, Buffer[]>();
  #certificate: { chainPem: string; keyPem: string } | undefined;

  async start(): Promise<void> {
    const ca = await makeCertificateAuthority(Date.now());
    this.caPem = ca.certPem;
    this.#certificate = await issueServerCertificate(ca, Date.now());
    this.joinToken = `lsj1.${fingerprintOf(ca.certPem)}.${this.secret}`;
    await this.listen(0);
  }

  /** Listens (again, on the same port, after `down`). */
  async listen(port = Number(this.address.slice(this.address.lastIndexOf(':') + 1))): Promise<void> {
    const server = new Server({
      'grpc.max_receive_message_length': 2 * 1024 * 1024,
      'grpc.max_send_message_length': 2 * 1024 * 1024,
    });
    const { AgentLink } = loadLink().longshore.agent.v1;
    server.addService(AgentLink.service, {
      join: (call: ServerUnaryCall<JoinRequest__Output, object>, done: sendUnaryData<object>) => {
        this.joins.push(call.request);
        if (this.fullJoins > 0) {
          this.fullJoins -= 1;
          done({ code: status.RESOURCE_EXHAUSTED, details: 'enrolment token t admits 1 machines, and 1 have joined' });
          return;
        }
        if (this.refuseJoin || call.request.joinToken !== this.secret) {
          done({ code: status.PERMISSION_DENIED, details: 'join token is not valid' });
          return;
        }
        done(null, {
          machineId: this.machineId,
          poolName: 'default',
          credential: this.credential,
          credentialExpiresAtMs: Date.now() + 3_600_000,
          installationKey: this.installationKey,
        });
      },
      renewCredential: (call: ServerUnaryCall<object, object>, done: sendUnaryData<object>) => {
        this.asked.push('renew');
        if (!this.#authorised(call.metadata)) {
          done({ code: status.UNAUTHENTICATED, details: 'credential is not valid' });
          return;
        }
        this.credential = randomBytes(8).toString('hex');
        done(null, { credential: this.credential, credentialExpiresAtMs: Date.now() + 3_600_000 });
      },
      challenge: (call: ServerUnaryCall<ChallengeRequest__Output, object>, done: sendUnaryData<object>) => {
        this.asked.push('challenge');
        void this.#answerChallenge(call.request, done);
      },
      prove: (call: ServerUnaryCall<ProveRequest__Output, object>, done: sendUnaryData<object>) => {
        this.asked.push('proof');
        void this.#answerProof(call.request, done);
      },
      control: (call: ControlStream) => this.#onControlStream(call),
      tasks: (call: TaskStream) => this.#onTaskStream(call),
      logs: (call: ServerDuplexStream<LogBatch__Output, LogAck>) => {
        call.on('error', () => undefined);
        call.on('data', (batch: LogBatch__Output) => {
          this.records.push(...batch.records.flatMap(separated));
          call.write({ seq: batch.seq });
        });
        call.on('end', () => call.end());
      },
      callGateway: (call: ServerDuplexStream<GatewayRequest__Output, GatewayResponse>) => this.#onCall(call),
      fetchCode: (call: { request: { objectId: string }; write(m: object): boolean; end(): void }) => {
        this.archiveFetches.push(call.request.objectId);
        const bytes = this.archives.get(call.request.objectId) ?? Buffer.alloc(0);
        for (let at = 0; at < bytes.length; at += PART_BYTES) call.write({ data: bytes.subarray(at, at + PART_BYTES) });
        call.end();
      },
    });
    const certificate = this.#certificate;
    if (certificate === undefined) throw new Error('not started');
    // The socket comes first, because an agent that dials in between looks for the socket first.
    if (this.socketPath !== undefined) await listenPrivately(this.socketPath, (path) => bindLocally(server, path));
    const bound = await new Promise<number>((resolve, reject) => {
      server.bindAsync(
        `${this.host}:${port}`,
        ServerCredentials.createSsl(null, [
          { cert_chain: Buffer.from(certificate.chainPem), private_key: Buffer.from(certificate.keyPem) },
        ]),
        (error, found) => (error === null ? resolve(found) : reject(error)),
      );
    });
    this.address = `${this.host}:${bound}`;
    this.#server = server;
  }

  #onCall(call: ServerDuplexStream<GatewayRequest__Output, GatewayResponse>): void {
    const parts: Buffer[] = [];
    let made: ContainerCall | undefined;
    call.on('error', () => undefined);
    call.on('data', ({ head, data }: GatewayRequest__Output) => {
      parts.push(data);
      if (head === null) return;
      made = { head, body: Buffer.alloc(0), cancelled: false };
      this.calls.push(made);
    });
    call.on('cancelled', () => {
      if (made !== undefined) made.cancelled = true;
    });
    call.on('end', () => {
      if (made === undefined) return;
      made.body = Buffer.concat(parts);
      const answer = this.answerCall(made);
      if (answer === undefined) return;
      call.write({ head: { status: answer.status, headers: [{ name: 'content-type', value: 'application/json' }] } });
      const bytes = Buffer.from(answer.body);
      for (let at = 0; at < bytes.length; at += PART_BYTES) call.write({ data: bytes.subarray(at, at + PART_BYTES) });
      call.end();
    });
  }

  /** Ends the server as a kill does. */
  down(): void {
    this.#server?.forceShutdown();
    this.#server = undefined;
    this.control = undefined;
    this.tasks = undefined;
  }

  /** Puts an archive where `fetchCode` finds it. */
  addArchive(bytes: Buffer): { objectId: string; sha256: string; size: number } {
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    const objectId = `object-${sha256.slice(0, 8)}`;
    this.archives.set(objectId, bytes);
    return { objectId, sha256, size: bytes.length };
  }

  get installationKey(): string {
    return this.keys.publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
  }

  /** The signed statement that a machine was deleted. @param by - signer; this scheduler by default */
  statement(machineId: string, by: FakeScheduler = this): Promise<string> {
    const keys = { signingKey: by.keys.privateKey, publicKey: by.keys.publicKey };
    return signClaims(keys, { typ: 'revoked' }, { id: 'r', subject: machineId, nowMs: Date.now() });
  }

  /** Sends the statement of a deletion on the open session. */
  revoke(machineId: string, statement: string): void {
    this.control?.write({ revoked: { machineId, statement } });
  }

  async #answerChallenge({ machineId }: ChallengeRequest__Output, done: sendUnaryData<object>): Promise<void> {
    const keys = { signingKey: this.keys.privateKey, publicKey: this.keys.publicKey };
    const nowMs = Date.now() + this.clockAheadMs;
    this.#challenge = await signClaims(keys, { typ: 'challenge' }, { id: 'c', subject: machineId, nowMs });
    done(null, { challenge: this.#challenge });
  }

  async #answerProof(request: ProveRequest__Output, done: sendUnaryData<object>): Promise<void> {
    try {
      done(null, await this.#prove(request));
    } catch {
      done({ code: status.UNAUTHENTICATED, details: 'not proven' });
    }
  }

  async #prove({ machineId, challenge, signature }: ProveRequest__Output): Promise<object> {
    const spki = Buffer.from(this.joins.at(-1)?.publicKey ?? '', 'base64');
    const key = createPublicKey({ key: spki, format: 'der', type: 'spki' });
    const isProven = machineId === this.machineId && challenge === this.#challenge;
    if (this.proofs === 'refuse' || !isProven || !verify(null, Buffer.from(challenge), key, signature))
      throw new Error('not proven');
    if (this.proofs === 'revoke') return { revoked: { machineId, statement: await this.statement(machineId) } };
    this.credential = randomBytes(8).toString('hex');
    return { credential: this.credential, credentialExpiresAtMs: Date.now() + 3_600_000 };
  }

  desire(assignments: readonly Assignment[], options: { full?: boolean; confirmEmpty?: boolean } = {}): void {
    this.#desired = { assignments, options };
    this.#revision += 1;
    this.control?.write({
      desired: {
        revision: this.#revision,
        full: options.full ?? true,
        confirmEmpty: options.confirmEmpty ?? false,
        assignments: [...assignments],
      },
    });
  }

  /** Sends a task, in parts when it is large. */
  run(taskId: string, containerId: string, input: string, extra: { timeoutMs?: number; query?: string } = {}): string {
    const token = createHash('sha256')
      .update(`${taskId}${randomBytes(8).toString('hex')}`)
      .digest('hex');
    const bytes = Buffer.from(input);
    const parts = Math.max(1, Math.ceil(bytes.length / PART_BYTES));
    for (let part = 0; part < parts; part += 1)
      this.tasks?.write({
        run: {
          taskId,
          token,
          containerId,
          timeoutMs: extra.timeoutMs ?? 0,
          query: extra.query ?? '',
          input: bytes.subarray(part * PART_BYTES, (part + 1) * PART_BYTES),
          part,
          last: part === parts - 1,
        },
      });
    return token;
  }

  cancel(taskId: string, token: string, reason: string): void {
    this.tasks?.write({ cancel: { taskId, token, reason } });
  }

  acked(message: AckResult): void {
    this.tasks?.write({ acked: message });
  }

  resultOf(taskId: string): Promise<WholeResult> {
    return until(`the result of ${taskId}`, () => this.results.find((result) => result.taskId === taskId));
  }

  phase(containerId: string, phase: string, ms = 20_000): Promise<ObservedContainer__Output> {
    return until(
      `${containerId} to be ${phase} (${JSON.stringify(this.phases.get(containerId))})`,
      () => {
        const now = this.observed.get(containerId);
        return now?.phase === phase ? now : undefined;
      },
      ms,
    );
  }

  #authorised(metadata: Metadata): boolean {
    return !this.refuseCredentials && metadata.get('authorization')[0] === `Bearer ${this.credential}`;
  }

  #onControlStream(call: ControlStream): void {
    call.on('error', () => undefined);
    if (!this.#authorised(call.metadata)) {
      call.emit('error', { code: status.UNAUTHENTICATED, details: 'credential is not valid' });
      return;
    }
    let timer: NodeJS.Timeout | undefined;
    call.on('data', (message: ControlFromAgent__Output) => {
      this.heard.push(message);
      if (message.hello) {
        this.hellos.push(message.hello);
        this.peers.push(call.getPeer());
        this.control = call;
        this.#revision = 0;
        this.#sessions += 1;
        for (const one of message.hello.observed) this.#observe(one);
        call.write({
          welcome: {
            sessionId: `s${this.#sessions}`,
            sessionEpoch: this.#sessions,
            serverTimeMs: Date.now(),
            pingIntervalMs: 300,
            heartbeatIntervalMs: 500,
            reconnectWindowMs: 50,
          },
        });
        if (this.remembers && this.#desired !== undefined)
          this.desire(this.#desired.assignments, this.#desired.options);
        let seq = 0;
        timer = setInterval(() => {
          if (this.pings) call.write({ ping: { seq: (seq += 1) } });
        }, 300);
      }
      if (message.heartbeat && this.answersHeartbeats)
        call.write({ heartbeatAck: { sentAtMs: message.heartbeat.sentAtMs, serverTimeMs: Date.now() } });
      if (message.status) for (const one of message.status.containers) this.#observe(one);
      const { secrets, containerToken } = this;
      if (message.ack && this.autoProceed) call.write({ proceed: { ...message.ack, secrets, containerToken } });
    });
    call.on('close', () => clearInterval(timer));
    call.on('end', () => {
      clearInterval(timer);
      if (this.control === call) this.control = undefined;
      call.end();
    });
  }

  #onTaskStream(call: TaskStream): void {
    call.on('error', () => undefined);
    if (!this.#authorised(call.metadata) || call.metadata.get('session-id')[0] !== `s${this.#sessions}`) {
      call.emit('error', { code: status.UNAUTHENTICATED, details: 'session is not valid' });
      return;
    }
    call.on('end', () => call.end());
    const receive = (message: TaskFromAgent__Output): void => {
      for (const one of message.batch?.messages ?? []) receive(one);
      if (message.report) {
        this.reports.push(message.report);
        this.tasks = call;
        call.write({ known: { adopted: message.report.running, refused: [] } });
      }
      if (message.started) this.started.push(message.started.taskId);
      if (message.refused) this.refused.push({ taskId: message.refused.taskId, reason: message.refused.reason });
      if (message.chunk) {
        const chunks = this.#chunks.get(message.chunk.token) ?? [];
        chunks[message.chunk.seq] = message.chunk.data;
        this.#chunks.set(message.chunk.token, chunks);
      }
      if (message.result) {
        const { result } = message;
        const parts = (this.#chunks.get(result.token) ?? []).slice(0, result.chunks);
        this.results.push({ ...result, whole: Buffer.concat([...parts, result.body]) });
        if (this.autoAck) call.write({ acked: { taskId: result.taskId, token: result.token } });
      }
    };
    call.on('data', receive);
  }

  #observe(one: ObservedContainer__Output): void {
    const phases = this.phases.get(one.containerId) ?? [];
    if (phases.at(-1) !== one.phase) phases.push(one.phase);
    this.phases.set(one.containerId, phases);
    this.observed.set(one.containerId, one);
  }
}

/** The lines of a record, each as a record of its own. */
const separated = (record: LogRecord__Output): readonly LogRecord__Output[] =>
  separateLines({
    line: record.line,
    atMs: record.timestampMs,
    afterMs: record.afterMs.length === 0 ? undefined : record.afterMs,
  }).map(({ line, atMs }) => ({ ...record, line, timestampMs: atMs, afterMs: [] }));
