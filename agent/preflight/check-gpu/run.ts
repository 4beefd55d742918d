/**
 * The containers of one run of the check, labelled with that run. Every ending of the run removes them, and the next
 * run removes those of a killed run. A run holds a socket in Linux's abstract namespace while its process lives
 * (decision 0127). Must stay true: containers of a run in progress are left alone.
 */
import { randomBytes } from 'node:crypto';
import { connect, createServer } from 'node:net';
import type { Server } from 'node:net';
import { hasCode } from '../../durable.ts';
import type { ContainerRuntime } from '../../containers/runtime.ts';

const MADE_BY = { 'io.longshore.made-by': 'check-gpu' } as const;
const RUN = 'io.longshore.check-run';

export class CheckRun {
  /** Labels of every container of the run. */
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
   * Removes containers that ended runs have left.
   * @returns the number of removed containers
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
   * Removes this run's containers, even those that the engine created after the caller stopped waiting.
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

/** Whether that run's process is alive. A socket that answers with anything but a refusal counts as alive. */
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
