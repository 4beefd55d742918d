/**
 * Files of volumes for signed addresses. The scheduler orders a stream; its bytes go unread to a helper container that
 * has only that volume, and plays a file server there (python/longshore/volume_files). Users of containers own the
 * files, so this process itself touches none. Must stay true: a helper serves one volume, has no network, and ends when
 * nobody has used it for seconds; transfers are bounded.
 */
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { AppError, messageOf } from '#shared/errors.ts';
import { sleep } from '#shared/backoff.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import { encodeFrame } from '#shared/protocol/frames.ts';
import type { ServeVolume__Output } from '#shared/protocol/generated/messages.ts';
import { serveFiles } from '../containers/helpers.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { DialledConnections } from '../slots/dialled.ts';
import { leave } from '../slots/streams.ts';
import type { OpenBytes } from '../slots/streams.ts';
import type { Volumes } from '../volumes/volumes.ts';

/** Most transfers of this machine at once. */
export const MOST_TRANSFERS = 32;
/** Time without a transfer after which a helper ends. */
const IDLE_MS = 10_000;
/** Deadline for a helper to dial, its image's pull included. */
const DIAL_MS = 120_000;
/** A helper ends after this time, and its transfers with it: they go on with another. */
const LIFE_MS = 24 * 3_600_000;
/** Time for helpers to end when the agent stops. */
const STOP_MS = 10_000;
/** Connections beside those of transfers: the one that waits, and those that end. */
const SPARE_CONNECTIONS = 16;

export interface VolumeFilesParts {
  readonly runtime: ContainerRuntime;
  readonly volumes: Pick<Volumes, 'mountAt'>;
  /** The engine's id of the base image. */
  readonly image: () => Promise<string>;
  readonly runnerDir: string;
  /** Directory for a directory of each helper, with its socket. */
  readonly socketsDir: string;
  readonly open: OpenBytes;
  readonly labels: () => Readonly<Record<string, string>>;
  readonly log: Log;
}

type Order = Pick<ServeVolume__Output, 'workspaceId' | 'volumeId' | 'driver'>;

export class VolumeFiles {
  readonly #parts: VolumeFilesParts;
  readonly #helpers = new Map<string, Helper>();
  readonly #ending = new Set<Promise<void>>();
  readonly #ended = new Listeners<[Order]>();
  #transfers = 0;
  #isClosed = false;

  constructor(parts: VolumeFilesParts) {
    this.#parts = parts;
  }

  /** Told when a transfer has ended, which may have changed files. */
  onEnded(listener: (order: Order) => void): void {
    this.#ended.add(listener);
  }

  /** Answers an order with a stream. */
  serve(order: ServeVolume__Output): void {
    const opening = this.#isClosed ? undefined : this.#parts.open({ streamId: order.streamId });
    opening?.then(
      (link) => this.#begin(order, link),
      // The scheduler waits for the stream in vain, and says so to its caller.
      (error: unknown) => this.#parts.log.warn({ err: error }, 'a stream for files of a volume could not be opened'),
    );
  }

  #begin(order: Order, link: Socket): void {
    if (this.#isClosed || link.destroyed) return void link.destroy();
    if (this.#transfers >= MOST_TRANSFERS)
      return refuse(link, 429, 'too_many_transfers', `the machine has ${MOST_TRANSFERS} transfers of files at once`);
    this.#transfers += 1;
    link.once('close', () => {
      this.#transfers -= 1;
      this.#ended.tell(order);
    });
    this.#helperOf(order).take(link);
  }

  /** Ends all transfers and their helpers. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const helper of this.#helpers.values()) helper.close();
    await Promise.race([Promise.all(this.#ending), sleep(STOP_MS)]);
  }

  #helperOf(order: Order): Helper {
    const key = `${order.driver} ${order.workspaceId} ${order.volumeId}`;
    const there = this.#helpers.get(key);
    if (there?.isOpen === true) return there;
    const helper = new Helper(this.#parts, order);
    this.#helpers.set(key, helper);
    const ended = helper.run().finally(() => {
      this.#ending.delete(ended);
      if (this.#helpers.get(key) === helper) this.#helpers.delete(key);
    });
    this.#ending.add(ended);
    return helper;
  }
}

/** A helper container, with the streams that it serves or will serve. */
class Helper {
  readonly #parts: VolumeFilesParts;
  readonly #order: Order;
  readonly #directory: string;
  readonly #connections: DialledConnections;
  #idle: NodeJS.Timeout | undefined;
  #isOpen = true;

  constructor(parts: VolumeFilesParts, order: Order) {
    this.#parts = parts;
    this.#order = order;
    this.#directory = join(parts.socketsDir, randomBytes(6).toString('hex'));
    this.#connections = new DialledConnections(
      join(this.#directory, 'files.sock'),
      MOST_TRANSFERS + SPARE_CONNECTIONS,
      () => this.#watchIdle(),
    );
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Runs the container. Resolves when it is gone. */
  async run(): Promise<void> {
    const { runtime, volumes, image, runnerDir, labels, log } = this.#parts;
    const late = setTimeout(() => this.#fail(504, 'machine_silent', 'the volume was not opened in time'), DIAL_MS);
    late.unref();
    let giveBack = (): void => undefined;
    try {
      const { driver, ...volume } = this.#order;
      await this.#connections.listen();
      const mounting = volumes.mountAt(volume, driver, '/volume').then(({ mount, release }) => {
        giveBack = release;
        return mount;
      });
      const [mount, imageId] = await Promise.all([mounting, image()]);
      if (this.#isOpen)
        await serveFiles(runtime, {
          image: imageId,
          runnerDir,
          socketDir: this.#directory,
          volume: mount,
          labels: labels(),
          deadlineMs: LIFE_MS,
        });
      this.#fail(502, 'volume_failed', 'the file server of the volume ended');
    } catch (error) {
      log.warn({ err: error, volumeId: this.#order.volumeId }, 'files of a volume could not be served');
      const isOurs = error instanceof AppError;
      this.#fail(502, 'volume_failed', isOurs ? messageOf(error) : 'the file server of the volume failed');
    } finally {
      clearTimeout(late);
      giveBack();
      this.close();
      await rm(this.#directory, { recursive: true, force: true });
    }
  }

  /** Serves a stream as soon as a connection is there. */
  take(link: Socket): void {
    clearTimeout(this.#idle);
    this.#connections.take(link);
  }

  #watchIdle(): void {
    clearTimeout(this.#idle);
    if (!this.#isOpen || this.#connections.streams > 0) return;
    this.#idle = setTimeout(() => this.close(), IDLE_MS);
    this.#idle.unref();
  }

  #fail(status: number, code: string, message: string): void {
    this.#connections.giveUp((link) => refuse(link, status, code, message));
  }

  /** Ends the container: it has no connection left that could bring a request. */
  close(): void {
    clearTimeout(this.#idle);
    this.#isOpen = false;
    this.#connections.close((link) => refuse(link, 502, 'volume_failed', 'the file server of the volume ended'));
  }
}

/** Answers a stream's request in the helper's place. */
function refuse(link: Socket, status: number, code: string, message: string): void {
  const body = Buffer.from(JSON.stringify({ message, code }), 'utf8');
  const headers = [
    ['content-type', 'application/json'],
    ['content-length', String(body.length)],
    ['retry-after', '5'],
  ];
  leave(
    link,
    Buffer.concat([
      encodeFrame('response', {}, Buffer.from(JSON.stringify({ status, headers }), 'utf8')),
      encodeFrame('data', {}, body),
      encodeFrame('end', {}),
    ]),
  );
}
