// An agent's end of the runner protocol, and nothing else of an agent. The agent
// listens on a unix socket, starts the real runner with the host's Python, and keeps
// every frame. Tests tell it what to send, and wait on conditions over the frames seen.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type Server, type Socket, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Kind numbers of the runner protocol, in the order of its table. */
export const KIND = {
  hello: 1,
  welcome: 2,
  starting: 3,
  ready: 4,
  failed: 5,
  run: 6,
  started: 7,
  chunk: 8,
  result: 9,
  acked: 10,
  cancel: 11,
  log: 12,
  kill: 13,
  drain: 14,
  exited: 15,
  stream: 16,
  request: 17,
  response: 18,
  data: 19,
  end: 20,
  reading: 21,
  message: 22,
  close: 23,
  retire: 26,
  returned: 27,
  interrupt: 29,
} as const;
export type Kind = keyof typeof KIND;
const NAMES = new Map<number, Kind>(Object.entries(KIND).map(([name, number]) => [number, name as Kind]));

export type Header = Readonly<Record<string, unknown>>;
export interface SeenFrame {
  readonly kind: Kind | 'unknown';
  readonly header: Header;
  readonly body: Buffer;
  readonly connection: RunnerConnection;
}

/** A plain request's head. */
const REQUEST: Header = {
  type: 'http',
  method: 'GET',
  path: '/',
  query: '',
  rootPath: '',
  scheme: 'http',
  httpVersion: '1.1',
  headers: [['host', 'test']],
  client: ['10.0.0.9', 5000],
  server: ['test', 80],
};

/** A frame as bytes. */
export function packFrame(kind: number, header: Header, body: Uint8Array = new Uint8Array()): Buffer {
  const head = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(7);
  prefix.writeUInt32BE(3 + head.length + body.length, 0);
  prefix.writeUInt8(kind, 4);
  prefix.writeUInt16BE(head.length, 5);
  return Buffer.concat([prefix, head, body]);
}

/** A connection of a runner process. */
export class RunnerConnection {
  hello: Header = {};
  open = true;
  private kept = Buffer.alloc(0);
  readonly socket: Socket;

  constructor(socket: Socket, onFrame: (frame: SeenFrame) => void, onEnd: () => void) {
    this.socket = socket;
    socket.on('data', (data: Buffer) => {
      this.kept = Buffer.concat([this.kept, data]);
      while (this.kept.length >= 7) {
        const length = this.kept.readUInt32BE(0);
        if (this.kept.length < 4 + length) return;
        const headEnd = 7 + this.kept.readUInt16BE(5);
        const head = this.kept.subarray(7, headEnd).toString();
        const header = (head === '' ? {} : JSON.parse(head)) as Header;
        const kind = NAMES.get(this.kept.readUInt8(4)) ?? 'unknown';
        const body = Buffer.from(this.kept.subarray(headEnd, 4 + length));
        this.kept = this.kept.subarray(4 + length);
        if (kind === 'hello') this.hello = header;
        onFrame({ kind, header, body, connection: this });
      }
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      this.open = false;
      onEnd();
    });
  }

  get process(): number {
    return Number(this.hello['process']);
  }
  get pid(): number {
    return Number(this.hello['pid']);
  }

  send(kind: Kind, header: Header, body?: Uint8Array): void {
    this.socket.write(packFrame(KIND[kind], header, body));
  }

  /** Sends a frame, each byte in a write of its own. */
  async sendByteByByte(kind: Kind, header: Header, body?: Uint8Array): Promise<void> {
    this.socket.setNoDelay(true);
    for (const byte of packFrame(KIND[kind], header, body)) {
      await new Promise<void>((resolve) => this.socket.write(Uint8Array.of(byte), () => resolve()));
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }
}

/** The scheduler's end of a streamed call, on the connection that a runner process dialled for it. */
export class StreamedCall {
  readonly frames: SeenFrame[] = [];
  readonly connection: RunnerConnection;
  readonly taskId: string;
  private readonly agent: FakeAgent;

  constructor(agent: FakeAgent, connection: RunnerConnection, taskId: string) {
    this.agent = agent;
    this.connection = connection;
    this.taskId = taskId;
  }

  send(kind: Kind, body: Uint8Array | string = '', header: Header = {}): void {
    this.connection.send(kind, header, Buffer.from(body));
  }

  /** Sends bytes in `data` frames until the socket took them all, or was closed. */
  async sendBody(body: Uint8Array, pieceBytes = 256 * 1024): Promise<void> {
    for (let at = 0; at < body.length; at += pieceBytes) {
      const frame = packFrame(KIND.data, {}, body.subarray(at, at + pieceBytes));
      const { socket } = this.connection;
      if (!socket.writable) return;
      if (socket.write(frame)) continue;
      const ended = new AbortController();
      const waits = ['drain', 'close'].map((event) => once(socket, event, { signal: ended.signal }));
      // The listeners of the other event go, too.
      await Promise.race(waits).finally(() => ended.abort());
    }
  }

  of(kind: Kind): SeenFrame[] {
    return this.frames.filter((frame) => frame.kind === kind);
  }

  /** The head of the answer. */
  async head(): Promise<Record<string, unknown>> {
    const frame = await this.agent.until(`a head for ${this.taskId}`, () => this.of('response')[0]);
    return JSON.parse(frame.body.toString()) as Record<string, unknown>;
  }

  /** Bytes of the body so far. */
  body(): Buffer {
    return Buffer.concat(this.of('data').map((frame) => frame.body));
  }

  /** Waits for the end of the body; gives the trailers, if there are any. */
  async ended(): Promise<unknown> {
    const frame = await this.agent.until(`the end for ${this.taskId}`, () => this.of('end')[0]);
    return frame.body.length > 0 ? (JSON.parse(frame.body.toString()) as unknown) : undefined;
  }

  /** The message with this number, put together, as `text …` or `bytes …`. */
  async message(number: number): Promise<string> {
    return await this.agent.until(`message ${number} for ${this.taskId}`, () => this.messages()[number]);
  }

  messages(): string[] {
    const messages: string[] = [];
    let parts: Buffer[] = [];
    for (const frame of this.of('message')) {
      parts.push(frame.body);
      if (frame.header['more'] === true) continue;
      const data = Buffer.concat(parts).toString();
      messages.push(`${frame.header['text'] === true ? 'text' : 'bytes'} ${data}`);
      parts = [];
    }
    return messages;
  }

  /** The close frame. */
  async closed(): Promise<Header> {
    return await this.agent.until(`close for ${this.taskId}`, () => this.of('close')[0]?.header);
  }

  /** Waits until the runner has closed the connection. */
  async over(): Promise<void> {
    await this.agent.until(`the end of the connection of ${this.taskId}`, () => !this.connection.open);
  }
}

export interface RunnerOptions {
  /** Files of `/mnt/code`, by path. */
  readonly files: Readonly<Record<string, string>>;
  readonly handler?: string;
  readonly onStart?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** The interpreter; default LONGSHORE_TEST_PYTHON, else `python3`. */
  readonly python?: string;
  /** True: the agent does not listen until the test calls `listen`. */
  readonly listenLater?: boolean;
  /** False: results stay unacknowledged until the test says otherwise. */
  readonly acknowledge?: boolean;
}

export interface Invocation {
  readonly input?: unknown;
  readonly query?: Readonly<Record<string, string | readonly string[]>>;
  readonly taskId?: string;
  readonly on?: RunnerConnection;
  /** True: the task's bytes travel on `streams.sock`. */
  readonly stream?: boolean;
}
export interface Answer {
  readonly outcome: string;
  readonly body: string;
  readonly header: Header;
}

/** The fake agent and the runner it started. */
export class FakeAgent {
  readonly frames: SeenFrame[] = [];
  readonly connections: RunnerConnection[] = [];
  directory = '';
  runner: ChildProcess | undefined;
  exitCode: number | null | undefined;
  stdout = '';
  stderr = '';
  acknowledge = true;
  /** Time for the calls of processes that a reload retires; undefined: as they are told. */
  graceMs: number | undefined;
  private readonly retired = new Set<RunnerConnection>();
  readonly streams: StreamedCall[] = [];
  private streamServer: Server | undefined;
  private server: Server | undefined;
  private waiters = new Set<() => void>();
  private tasks = 0;

  /** A listening agent with a started runner. */
  static async start(options: RunnerOptions): Promise<FakeAgent> {
    const agent = new FakeAgent();
    agent.acknowledge = options.acknowledge ?? true;
    agent.directory = await mkdtemp(join(tmpdir(), 'ls-runner-'));
    for (const [path, text] of Object.entries(options.files)) {
      const file = join(agent.directory, 'code', path);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, text);
    }
    if (options.listenLater !== true) await agent.listen();
    agent.spawn(options);
    return agent;
  }

  get socketPath(): string {
    return join(this.directory, 'agent.sock');
  }

  /** Listens (again, after `hangUp`). */
  async listen(): Promise<void> {
    await rm(this.socketPath, { force: true });
    const server = createServer((socket) => {
      const connection = new RunnerConnection(socket, (frame) => this.see(frame), this.wake);
      this.connections.push(connection);
    });
    this.server = server;
    server.listen(this.socketPath);
    await once(server, 'listening');
    await this.listenForStreams();
  }

  private async listenForStreams(): Promise<void> {
    const path = join(this.directory, 'streams.sock');
    await rm(path, { force: true });
    const server = createServer({ allowHalfOpen: false }, (socket) => {
      let call: StreamedCall | undefined;
      const connection = new RunnerConnection(
        socket,
        (frame) => {
          if (frame.kind === 'stream') {
            call = new StreamedCall(this, connection, String(frame.header['taskId']));
            this.streams.push(call);
          }
          call?.frames.push(frame);
          this.wake();
        },
        this.wake,
      );
    });
    this.streamServer = server;
    server.listen(path);
    await once(server, 'listening');
  }

  /** Imitates a restart of the agent: no listener, every connection cut. */
  async hangUp(): Promise<void> {
    const servers = [this.server, this.streamServer];
    this.server = undefined;
    this.streamServer = undefined;
    for (const connection of this.connections) connection.socket.destroy();
    for (const call of this.streams) call.connection.socket.destroy();
    for (const server of servers) {
      if (server !== undefined) await new Promise<void>((resolve) => server.close(() => resolve()));
    }
  }

  private spawn(options: RunnerOptions): void {
    const child = spawn(
      options.python ?? process.env['LONGSHORE_TEST_PYTHON'] ?? 'python3',
      ['-m', 'longshore.runner'],
      {
        cwd: join(this.directory, 'code'),
        env: {
          PATH: process.env['PATH'] ?? '',
          HOME: process.env['HOME'] ?? '',
          PYTHONPATH: fileURLToPath(new URL('../../python', import.meta.url)),
          PYTHONDONTWRITEBYTECODE: '1',
          LONGSHORE_AGENT_SOCKET: this.socketPath,
          CONTAINER_ID: 'endpoint-test-00000001',
          STUB_ID: 'stub-1',
          STUB_TYPE: 'endpoint/deployment',
          HANDLER: options.handler ?? 'app:handler',
          ON_START: options.onStart ?? '',
          WORKERS: '1',
          TIMEOUT: '180',
          ...options.env,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    this.runner = child;
    child.stdout.on('data', (data: Buffer) => (this.stdout += data.toString()));
    child.stderr.on('data', (data: Buffer) => (this.stderr += data.toString()));
    child.on('close', (code, signal) => {
      this.exitCode = signal === null ? code : 128;
      this.wake();
    });
  }

  private see(frame: SeenFrame): void {
    this.frames.push(frame);
    if (frame.kind === 'hello') frame.connection.send('welcome', { version: 1 });
    if (frame.kind === 'result' && this.acknowledge) this.acked(frame);
    if (frame.kind === 'failed') frame.connection.send('acked', {});
    if (frame.kind === 'retire') {
      const retired = this.connectionOf(frame.header['process']);
      if (retired !== undefined) {
        this.retired.add(retired);
        retired.send('drain', { graceMs: this.graceMs ?? frame.header['graceMs'] });
      }
    }
    this.wake();
  }

  acked(result: SeenFrame): void {
    result.connection.send('acked', { taskId: result.header['taskId'], token: result.header['token'] });
  }

  private readonly wake = (): void => {
    for (const waiter of this.waiters) waiter();
  };

  /** The first truthy value of `look`, tried again at every frame, connection or exit. */
  async until<T>(what: string, look: () => T | undefined | false | null, limitMs = 15_000): Promise<T> {
    const now = look();
    if (now) return now;
    return await new Promise<T>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiters.delete(check);
        const seen = this.frames.slice(-15).map((frame) => `${frame.kind} ${JSON.stringify(frame.header)}`);
        const story = `${seen.join('\n')}\nexit: ${this.exitCode}\nstdout: ${this.stdout}\nstderr: ${this.stderr}`;
        reject(new Error(`never saw ${what}; last frames:\n${story}`));
      }, limitMs);
      const check = (): void => {
        const value = look();
        if (!value) return;
        clearTimeout(timer);
        this.waiters.delete(check);
        resolve(value);
      };
      this.waiters.add(check);
    });
  }

  of(kind: Kind): SeenFrame[] {
    return this.frames.filter((frame) => frame.kind === kind);
  }

  async ready(): Promise<SeenFrame> {
    return await this.until('ready', () => this.of('ready')[0]);
  }

  /** The open connection of a runner process; of the one that serves, where reloads replace them. */
  async slot(process = 0): Promise<RunnerConnection> {
    const ready = await this.ready();
    if (ready.header['mode'] === 'reload')
      return await this.until('a process that serves', () =>
        this.connections.findLast((one) => one.open && Number(one.hello['slots']) > 0 && !this.retired.has(one)),
      );
    const single = ready.header['mode'] === 'single';
    return await this.until(`runner process ${process}`, () =>
      single ? this.connections.findLast((one) => one.open && one.process === process) : this.connectionOf(process),
    );
  }

  private connectionOf(process: unknown): RunnerConnection | undefined {
    return this.connections.findLast((one) => one.open && one.process === process && Number(one.hello['slots']) > 0);
  }

  /** Sends a task and gives its ids. */
  async run(invocation: Invocation = {}): Promise<{ taskId: string; token: string; connection: RunnerConnection }> {
    const connection = invocation.on ?? (await this.slot());
    this.tasks += 1;
    const taskId = invocation.taskId ?? `task-${this.tasks}`;
    const token = `token-${this.tasks}`;
    const body = invocation.input === undefined ? '' : JSON.stringify(invocation.input);
    const stream = invocation.stream === true ? { stream: true } : {};
    const header = { taskId, token, timeoutMs: 180_000, query: invocation.query ?? {}, part: 0, last: true, ...stream };
    connection.send('run', header, Buffer.from(body));
    return { taskId, token, connection };
  }

  /** Sends a streamed task, waits for its connection and sends the head of a request there. */
  async request(head: Header = {}, on?: RunnerConnection): Promise<StreamedCall> {
    const { taskId } = await this.run({ stream: true, ...(on === undefined ? {} : { on }) });
    const call = await this.stream(taskId);
    call.send('request', JSON.stringify({ ...REQUEST, ...head }));
    return call;
  }

  /** The connection of a streamed task. */
  async stream(taskId: string): Promise<StreamedCall> {
    return await this.until(`the connection of ${taskId}`, () => this.streams.find((call) => call.taskId === taskId));
  }

  /** The answer to a task; parts of a large result are put together. */
  async answer(taskId: string, limitMs?: number): Promise<Answer> {
    const result = await this.until(
      `result of ${taskId}`,
      () => this.of('result').find((frame) => frame.header['taskId'] === taskId),
      limitMs,
    );
    const chunks = this.of('chunk').filter((frame) => frame.header['taskId'] === taskId);
    const parts = chunks.map((frame) => frame.body).slice(0, Number(result.header['chunks']));
    return {
      outcome: String(result.header['outcome']),
      body: Buffer.concat([...parts, result.body]).toString(),
      header: result.header,
    };
  }

  /** Sends a task and waits for its answer. */
  async call(input?: unknown, rest: Omit<Invocation, 'input'> = {}): Promise<Answer> {
    const { taskId } = await this.run({ ...rest, input });
    return await this.answer(taskId);
  }

  /** Lines of the log frames, as `stream taskId line`. */
  lines(): string[] {
    return this.of('log').map(
      (frame) => `${String(frame.header['stream'])} ${String(frame.header['taskId'])} ${frame.body.toString()}`,
    );
  }

  async exited(): Promise<number> {
    return await this.until('the runner to exit', () => (this.exitCode === undefined ? false : [this.exitCode])).then(
      ([code]) => code ?? -1,
    );
  }

  async stop(): Promise<void> {
    if (this.exitCode === undefined) {
      this.runner?.kill('SIGKILL');
      // Forked processes that outlive the first one hold its output open until they see their connection end.
      await this.hangUp();
      await this.exited();
    }
    await this.hangUp();
    await rm(this.directory, { recursive: true, force: true });
  }
}
