// `longshore container …` as a person runs it: a process with pipes, or on a terminal of its own. A cable between it
// and the scheduler can be cut.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { MAIN } from './platform.ts';
import type { Platform } from './platform.ts';
import { waitFor } from './services.ts';

const SEEN_MS = 60_000;
const PIPES: readonly (number | 'pipe')[] = ['pipe', 'pipe'];
/**
 * Runs a program on a terminal of its own with 30 rows and 90 columns, between these pipes. Over file descriptor 3 it
 * tells the program's pid, and takes new sizes. At the end it tells whether the terminal's modes are as before.
 */
const PTY = `import fcntl, os, pty, select, struct, sys, termios
def size(rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
master, slave = os.openpty()
fd = master
size(30, 90)
before = termios.tcgetattr(slave)
pid = os.fork()
if pid == 0:
    os.close(3)
    os.close(master)
    os.login_tty(slave)
    os.execv(sys.argv[1], sys.argv[1:])
os.write(3, b'pid %d\\n' % pid)
inputs = [master, 0, 3]
status = None
while True:
    ready, _, _ = select.select(inputs, [], [], 0.05)
    if master in ready:
        os.write(1, os.read(master, 65536))
        continue
    if 0 in ready:
        data = os.read(0, 65536)
        if data: os.write(master, data)
        else: inputs.remove(0)
    if 3 in ready:
        data = os.read(3, 100)
        if data: size(*map(int, data.split()))
        else: inputs.remove(3)
    if status is not None: break
    done, code = os.waitpid(pid, os.WNOHANG)
    if done: status = os.waitstatus_to_exitcode(code)
os.write(3, b'modes same\\n' if termios.tcgetattr(slave) == before else b'modes changed\\n')
sys.exit(status if status >= 0 else 128 - status)
`;

export interface CommandOptions {
  readonly terminal?: boolean;
  /** The scheduler's address; absent: its own. */
  readonly url?: string;
  /** Files for input and output. */
  readonly files?: readonly [number, number];
}

export class ContainerCommand {
  readonly child: ChildProcess;
  readonly code: Promise<number | null>;
  #out: Buffer[] = [];
  err = '';
  #facts = '';

  constructor(platform: Platform, args: readonly string[], options: CommandOptions = {}) {
    const line = [process.execPath, MAIN, 'container', ...args];
    const { terminal = false, url = platform.url, files = PIPES } = options;
    const env = { ...platform.env(), TERM: 'xterm', LONGSHORE_URL: url, LONGSHORE_TOKEN: platform.token };
    const [file = '', ...rest] = terminal ? ['python3', '-c', PTY, ...line] : line;
    const stdio = [...files, 'pipe' as const, ...(terminal ? ['pipe' as const] : [])];
    this.child = spawn(file, rest, { env, stdio });
    this.child.stdout?.on('data', (data: Buffer) => this.#out.push(data));
    this.child.stderr?.on('data', (data: Buffer) => (this.err += data.toString()));
    this.child.stdin?.on('error', () => undefined);
    this.#control?.on('data', (data: Buffer) => (this.#facts += data.toString())).on('error', () => undefined);
    this.code = new Promise((resolve) => this.child.once('close', resolve));
  }

  get #control(): Socket | undefined {
    return (this.child.stdio[3] as Socket | null) ?? undefined;
  }

  /** Output so far; on a terminal, with the notices of the command. */
  get bytes(): Buffer {
    this.#out = [Buffer.concat(this.#out)];
    return this.#out[0] as Buffer;
  }

  get out(): string {
    return this.bytes.toString();
  }

  say(text: string | Buffer): void {
    this.child.stdin?.write(text);
  }

  async seen(text: string | RegExp): Promise<string> {
    return waitFor(
      () => {
        const all = this.out + this.err;
        return typeof text === 'string' ? all.includes(text) && text : text.exec(all)?.[0];
      },
      `the command shows ${String(text)}`,
      SEEN_MS,
    ).catch((error: unknown) => {
      throw new Error(`it shows ${JSON.stringify((this.out + this.err).slice(-2000))}`, { cause: error });
    });
  }

  resize(rows: number, columns: number): void {
    this.#control?.write(`${rows} ${columns}`);
  }

  /** Whether the terminal was left as it had been found. */
  get leftTerminalAsItWas(): boolean {
    return this.#facts.includes('modes same');
  }

  /** Process of the command itself. */
  async pid(): Promise<number> {
    if (this.#control === undefined) return this.child.pid ?? 0;
    return Number(await waitFor(() => /pid (\d+)/.exec(this.#facts)?.[1], 'the command runs', SEEN_MS));
  }
}

/** A cable to the scheduler. */
export class Cable {
  readonly url: string;
  readonly #server: Server;
  readonly #sockets: Set<Socket>;
  #isCut = false;

  private constructor(server: Server, sockets: Set<Socket>) {
    this.#server = server;
    this.#sockets = sockets;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  static async to(platform: Platform): Promise<Cable> {
    const sockets = new Set<Socket>();
    let cable: Cable | undefined = undefined as Cable | undefined;
    const server = createServer((client) => {
      if (cable !== undefined && cable.#isCut) return void client.resetAndDestroy();
      const [host = '', port = ''] = platform.httpAddress.split(':');
      const upstream = connect(Number(port), host);
      for (const [from, to] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        sockets.add(from);
        from.on('error', () => undefined).on('close', () => (sockets.delete(from), to.destroy()));
        from.pipe(to);
      }
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    cable = new Cable(server, sockets);
    return cable;
  }

  /** Resets what is open; nothing new gets through. */
  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  mend(): void {
    this.#isCut = false;
  }

  close(): void {
    this.cut();
    this.#server.close();
  }
}
