// A supervisor as a process of its own, with the agent's sockets in this process: requests go to it as they do over an
// agent's stream.
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PYTHON = join(import.meta.dirname, '../../python');
const START = `import sys; sys.path.insert(0, ${JSON.stringify(PYTHON)}); from longshore.supervisor.main import main; main()`;

export interface Supervised {
  /** Directory that paths are relative to. */
  readonly directory: string;
  /** The connection that waits for a request. */
  open(): Promise<Socket>;
  /** Cuts all connections of requests, as the loss of a machine's link does. */
  cut(): void;
  stop(): Promise<void>;
}

export async function aSupervisor(settings: Readonly<Record<string, unknown>> = {}): Promise<Supervised> {
  const home = mkdtempSync(join(tmpdir(), 'sup-'));
  const directory = join(home, 'work');
  mkdirSync(directory);
  const waiting: Socket[] = [];
  const open = new Set<Socket>();
  const wanted: ((socket: Socket) => void)[] = [];
  const onRequest = (socket: Socket): void => {
    socket.on('error', () => undefined);
    socket.once('close', () => open.delete(socket));
    open.add(socket);
    const want = wanted.shift();
    if (want === undefined) waiting.push(socket);
    else want(socket);
  };
  // Nothing is said to the connections that runner processes have.
  const silent = (socket: Socket): void => void socket.on('error', () => undefined).resume();
  const servers = await Promise.all([
    listening(join(home, 'supervisor.sock'), onRequest),
    listening(join(home, 'agent.sock'), silent),
    listening(join(home, 'streams.sock'), silent),
  ]);
  const child = spawn('python3', ['-I', '-S', '-c', START], {
    cwd: directory,
    stdio: ['ignore', 'ignore', 'inherit'],
    env: {
      PATH: process.env['PATH'],
      LONGSHORE_AGENT_SOCKET: join(home, 'agent.sock'),
      LONGSHORE_SUPERVISOR: JSON.stringify({ slots: 0, ...settings }),
    },
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return {
    directory,
    open: async () => waiting.shift() ?? new Promise((resolve) => wanted.push(resolve)),
    cut: () => {
      for (const socket of open) if (!waiting.includes(socket)) socket.destroy();
    },
    stop: async () => {
      // A container would take its programs along.
      const left = [child.pid ?? 0, ...descendantsOf(child.pid ?? 0)];
      for (const pid of left) killed(pid);
      await ended;
      for (const socket of open) socket.destroy();
      for (const server of servers) server.close();
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Processes that a process started, and those that these started. */
function descendantsOf(pid: number): readonly number[] {
  let text = '';
  try {
    text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  } catch {
    // The process has ended meanwhile.
  }
  const children = text
    .split(' ')
    .filter((one) => one !== '')
    .map(Number);
  return children.flatMap((child) => [child, ...descendantsOf(child)]);
}

function killed(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended meanwhile.
  }
}

function listening(path: string, onConnection: (socket: Socket) => void): Promise<Server> {
  const server = createServer(onConnection);
  return new Promise((resolve) => server.listen(path, () => resolve(server)));
}
