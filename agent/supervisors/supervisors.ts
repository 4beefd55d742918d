/**
 * Supervisors of containers (docs/supervisor-protocol.md), and the scheduler's streams to them. A pod's or a sandbox's
 * is its first program. The supervisor of any other container is started by the image's own Python when the first
 * stream comes. Must stay true: a container has one supervisor at most; every stream that is opened is served or
 * answered; streams are bounded for each container and in all.
 */
import { join } from 'node:path';
import type { Socket } from 'node:net';
import { messageOf } from '#shared/errors.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { ServeContainer__Output } from '#shared/protocol/generated/messages.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import {
  ADDED_SUPERVISOR_COMMAND,
  SUPERVISOR_NAME,
  addedSettings,
  isSupervisorCommand,
} from '../containers/supervised.ts';
import type { OpenBytes } from '../slots/streams.ts';
import { MOST_STREAMS, SupervisorConnections } from './connections.ts';
import type { Refusal } from './refuse.ts';
import { refuse } from './refuse.ts';

/** Most streams of this machine at once. */
const MOST_STREAMS_OF_ALL = 4096;
/** Time for a supervisor that was started to dial. */
const START_MS = 10_000;
const LOOK_MS = 100;
const SOCKET = 'supervisor.sock';

const GONE: Refusal = { code: 'not_found', error: 'the container does not run on this machine' };

export interface SupervisorsParts {
  readonly runtime: Pick<ContainerRuntime, 'execDetached' | 'execState' | 'execsOf'>;
  /** Looks a container up that runs. */
  readonly running: (containerId: string) => { readonly dockerId: string; readonly shortId: string } | undefined;
  /** Directory with a directory of each container's sockets. */
  readonly socketsDir: string;
  readonly open: OpenBytes;
  readonly log: Log;
}

interface Supervisor {
  readonly connections: SupervisorConnections;
  /** The supervisor is the container's first program: nobody starts it. */
  readonly isFirst: boolean;
  starting: Promise<void> | undefined;
}

export class Supervisors {
  readonly #parts: SupervisorsParts;
  readonly #supervisors = new Map<string, Supervisor>();
  readonly #added = new Listeners<[string]>();
  #streams = 0;
  #isClosed = false;

  constructor(parts: SupervisorsParts) {
    this.#parts = parts;
  }

  /** Told of a container that gets a supervisor although it is neither pod nor sandbox. */
  onAdded(listener: (containerId: string) => void): void {
    this.#added.add(listener);
  }

  /** Listens for the supervisor of a container that is about to start, or runs since an agent before this one. */
  async add(containerId: string, shortId: string, isFirst: boolean): Promise<void> {
    this.end(containerId);
    await this.#make(containerId, shortId, isFirst).connections.listen();
  }

  /** The container has ended. */
  end(containerId: string): void {
    this.#supervisors.get(containerId)?.connections.close(GONE);
    this.#supervisors.delete(containerId);
  }

  /** Answers an order with a stream. */
  serve({ streamId, containerId }: ServeContainer__Output): void {
    const opening = this.#isClosed ? undefined : this.#parts.open({ streamId });
    opening?.then(
      (link) => this.#begin(containerId, link),
      // The scheduler waits for the stream in vain, and says so to its caller.
      (error: unknown) => this.#parts.log.warn({ err: error }, 'a stream for a container could not be opened'),
    );
  }

  close(): void {
    this.#isClosed = true;
    for (const containerId of [...this.#supervisors.keys()]) this.end(containerId);
  }

  #begin(containerId: string, link: Socket): void {
    if (this.#isClosed || link.destroyed) return void link.destroy();
    const supervisor = this.#of(containerId);
    if (supervisor === undefined) return refuse(link, GONE);
    const { connections, isFirst } = supervisor;
    if (connections.isFull)
      return refuse(link, { code: 'failed', error: `the container has ${MOST_STREAMS} connections at once` });
    if (this.#streams >= MOST_STREAMS_OF_ALL)
      return refuse(link, {
        code: 'failed',
        error: `the machine has ${MOST_STREAMS_OF_ALL} connections into containers at once`,
      });
    this.#streams += 1;
    link.once('close', () => (this.#streams -= 1));
    connections.take(link);
    if (!isFirst && !connections.isConnected) this.#startOnce(containerId, supervisor);
  }

  #of(containerId: string): Supervisor | undefined {
    const there = this.#supervisors.get(containerId);
    if (there !== undefined) return there;
    const container = this.#parts.running(containerId);
    return container === undefined ? undefined : this.#make(containerId, container.shortId, false);
  }

  #make(containerId: string, shortId: string, isFirst: boolean): Supervisor {
    const connections = new SupervisorConnections(join(this.#parts.socketsDir, shortId, SOCKET));
    const supervisor: Supervisor = { connections, isFirst, starting: undefined };
    this.#supervisors.set(containerId, supervisor);
    return supervisor;
  }

  #startOnce(containerId: string, supervisor: Supervisor): void {
    supervisor.starting ??= this.#start(containerId, supervisor)
      .catch((error: unknown) => {
        this.#parts.log.info({ err: error, containerId }, 'no supervisor could be started in a container');
        const reason = `the program that serves the container could not be started in it: ${messageOf(error)}`;
        supervisor.connections.fail({ code: 'failed', error: reason.slice(0, 1000) });
      })
      .finally(() => (supervisor.starting = undefined));
  }

  async #start(containerId: string, { connections }: Supervisor): Promise<void> {
    const { runtime, running } = this.#parts;
    const container = running(containerId);
    if (container === undefined) throw new Error('the container does not run');
    this.#added.tell(containerId);
    await connections.listen();
    // A supervisor that an agent before this one started dials by itself.
    if ((await runtime.execsOf(container.dockerId)).some(isSupervisorCommand)) {
      if (await connections.dialled(START_MS)) return;
      throw new Error('one that runs there does not answer');
    }
    const settings = `${SUPERVISOR_NAME}=${JSON.stringify(addedSettings(containerId))}`;
    const execId = await runtime.execDetached(container.dockerId, ADDED_SUPERVISOR_COMMAND, [settings]);
    const until = performance.now() + START_MS;
    while (!(await connections.dialled(LOOK_MS))) {
      const state = await runtime.execState(execId);
      if (state?.running !== true)
        throw new Error(`it ended with code ${state?.exitCode ?? 0} (127: the image has no python3)`);
      if (performance.now() > until) throw new Error(`it did not answer in ${START_MS / 1000} s`);
    }
  }
}
