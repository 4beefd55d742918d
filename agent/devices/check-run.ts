/**
 * The containers of one run of the check, marked as that run's: its end removes them, however it comes, and the next run removes those of a run that was killed. A run holds a socket in Linux's abstract namespace as long as its
 * process lives (decision 0127). Must stay true: containers of a run that goes on are left alone.
 */
import { randomBytes } from 'node:crypto';
import { connect, createServer } from 'node:net';
import type { Server } from 'node:net';
import { hasCode } from '../durable.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';

const MADE_BY = { 'io.longshore.made-by': 'check-gpu' } as const;
const RUN = 'io.longshore.check-run';

export class CheckRun {
  /** Of every container that the run makes. */
  readonly labels: Readonly<Record<string, string>>;
  readonly #runtime: ContainerRuntime;
  readonly #socket: Server;

  private constructor(runtime: ContainerRuntime, id: string, socket: Server) {
    this.labels = { ...MADE_BY, [RUN]: id };
    this.#runtime = runtime;
    this.#socket = socket;
  }

  static async begin(runtime: ContainerRuntime): Promise<CheckRun> {
    const id = randomBytes(8).toString('hex');
    const socket = createServer((peer) => peer.destroy());
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject);
      socket.listen({ path: socketOf(id) }, resolve);
    });
    socket.unref();
    return new CheckRun(runtime, id, socket);
  }

  /**
   * Removes containers of runs that have ended and left them.
   * @returns how many
   * @throws EngineError
   */
  async removeEnded(): Promise<number> {
    const left = await this.#runtime.list(MADE_BY);
    const ids = [...new Set(left.map(({ labels }) => labels[RUN] ?? ''))];
    const going = new Set((await Promise.all(ids.map(async (id) => ((await goesOn(id)) ? [id] : [])))).flat());
    const ended = left.filter(({ labels }) => !going.has(labels[RUN] ?? ''));
    await Promise.all(ended.map(({ dockerId }) => this.#runtime.remove(dockerId)));
    return ended.length;
  }

  /**
   * Removes what this run has made, also where the engine made it after nobody waited any more.
   * @throws EngineError
   */
  async removeOwn(): Promise<void> {
    const own = await this.#runtime.list(this.labels);
    await Promise.all(own.map(({ dockerId }) => this.#runtime.remove(dockerId)));
  }

  end(): void {
    this.#socket.close();
  }
}

const socketOf = (id: string): string => `\0longshore-check-gpu-${id}`;

/** Whether the process of that run is there. A socket that answers with anything but a refusal counts as there. */
function goesOn(id: string): Promise<boolean> {
  return new Promise((resolve) => {
    const peer = connect({ path: socketOf(id) });
    peer.once('connect', () => {
      peer.destroy();
      resolve(true);
    });
    peer.once('error', (error) => resolve(!hasCode(error, 'ECONNREFUSED', 'ENOENT')));
  });
}
