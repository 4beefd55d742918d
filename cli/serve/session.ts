// A session of a development server: its lease, its container, and the files there. Truth is what the scheduler and the
// disk say each time; after a loss of either the session goes on with the next look.
import { createReadStream } from 'node:fs';
import { sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { waitSentence } from '../explained.ts';
import { textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { changesBetween, readSettledTree } from './tree.ts';
import type { Changes, KnownFile, Tree } from './tree.ts';
import type { OwnOutput } from './own-output.ts';
import { ReloadsInARow, SentFiles } from './said-once.ts';

export const LEASE_SECONDS = 60;
export const RENEW_MS = 15_000;
const TIMES = { startingMs: 300, askEveryMs: 2_000 };
const END_WITHIN_MS = 5_000;
/** The scheduler waits for the app for 20 s, and answers then. */
const RELOAD_WITHIN_MS = 40_000;
/** Files that travel at once. */
const SIDE_BY_SIDE = 6;
const AGAIN_MS = 1_000;
/** Wait before further changes, while reloads follow each other without an edit of code. */
const IN_A_ROW_MS = 2_000;
/** Bounds on the names that a reload is told; with more, any file may have changed. */
const MOST_PATHS = 1_000;
const MOST_PATHS_BYTES = 48 * 1024;

export interface Reloaded {
  readonly files: number;
  readonly removed: number;
  /** Time from the hint of a change to the answer of the container. */
  readonly tookMs: number;
  /** loaded, failed or loading. */
  readonly state: string;
  /** Why it failed. */
  readonly error: string;
}

/** Changes for which nothing was loaded anew. */
export interface Sent {
  readonly files: number;
  readonly removed: number;
  /** Files that were not told of since the last reload. */
  readonly paths: readonly string[];
}

export interface SessionParts {
  readonly client: Client;
  readonly stubId: string;
  readonly root: string;
  /** The files that every new container begins with. */
  readonly uploaded: Tree;
  readonly onNote: (text: string) => void;
  /** A container serves: the first one, or another in its place. */
  readonly onServing: (containerId: string) => void;
  readonly onReloaded: (reloaded: Reloaded) => void;
  readonly onSent: (sent: Sent) => void;
  /** Files that this command writes. */
  readonly own: OwnOutput;
  readonly signal: AbortSignal;
}

interface Times {
  /** Interval of looks while the container starts. */
  readonly startingMs: number;
  /** Interval of questions why it has not started. */
  readonly askEveryMs: number;
}

export class ServeSession {
  readonly #parts: SessionParts;
  readonly #times: Times;
  /** The container that serves; empty: none does. */
  #containerId = '';
  /** The files as they were read last. */
  #here: Tree;
  /** The files as the container has them. */
  #there: Tree;
  #syncing: Promise<void> | undefined;
  #isWanted = false;
  /** Changed files that the container has, and was not asked to load. */
  #untold = new Set<string>();
  readonly #row = new ReloadsInARow();
  readonly #sent = new SentFiles();
  #waitsFor = '';
  #askedAtMs = -Infinity;

  constructor(parts: SessionParts, times: Times = TIMES) {
    this.#parts = parts;
    this.#times = times;
    this.#here = parts.uploaded;
    this.#there = parts.uploaded;
  }

  get files(): Tree {
    return this.#here;
  }

  /** Keeps the lease until the signal. @throws CliError when the scheduler refuses */
  async keep(): Promise<void> {
    const { signal, onNote } = this.#parts;
    let failures = 0;
    while (!signal.aborted) {
      try {
        const state = await this.#renew();
        if (failures > 0) onNote('connected again');
        failures = 0;
        await sleep(state === 'RUNNING' ? RENEW_MS : this.#times.startingMs, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (isFinal(error)) throw error;
        failures += 1;
        if (failures === 1) onNote(`${messageOf(error)}; the session goes on once it answers`);
        await sleep(AGAIN_MS, signal);
      }
    }
  }

  /** Ends the server, and does not wait for long. @returns whether the scheduler was told */
  async end(): Promise<boolean> {
    const { client, stubId } = this.#parts;
    try {
      const path = `/api/v1/gateway/stubs/${stubId}/serve`;
      return (await client.call(path, { method: 'DELETE', timeoutMs: END_WITHIN_MS })).status === 200;
    } catch {
      return false;
    }
  }

  /** Brings the container's files up to date. Changes that come meanwhile follow in another round. */
  sync(): Promise<void> {
    this.#isWanted = true;
    this.#syncing ??= this.#syncAll().finally(() => {
      this.#syncing = undefined;
    });
    return this.#syncing;
  }

  /** @returns state of the container; empty: there is none yet */
  async #renew(): Promise<string> {
    const { client, stubId, onServing, uploaded } = this.#parts;
    const answer = await client.gateway('POST', `/stubs/${stubId}/serve`, { timeout: LEASE_SECONDS });
    const state = textField(answer, 'state');
    const containerId = textField(answer, 'containerId');
    if (state !== 'RUNNING') {
      this.#containerId = '';
      await this.#sayWhatItWaitsFor(containerId);
      return state;
    }
    if (containerId !== this.#containerId) {
      this.#containerId = containerId;
      this.#there = uploaded;
      this.#untold.clear();
      this.#waitsFor = '';
      onServing(containerId);
      void this.sync();
    }
    return state;
  }

  async #sayWhatItWaitsFor(containerId: string): Promise<void> {
    const { client, onNote } = this.#parts;
    const nowMs = performance.now();
    if (containerId === '' || nowMs - this.#askedAtMs < this.#times.askEveryMs) return;
    this.#askedAtMs = nowMs;
    const path = `/explain/${await client.workspaceId()}/${containerId}`;
    const found = await client.rest(path, END_WITHIN_MS).catch((): JsonObject => ({}));
    const text = waitSentence(found);
    if (text === '' || text === this.#waitsFor) return;
    this.#waitsFor = text;
    onNote(text);
  }

  async #syncAll(): Promise<void> {
    while (this.#isWanted && !this.#parts.signal.aborted) {
      this.#isWanted = false;
      const { root, own, signal } = this.#parts;
      if (this.#row.isLong && !(await sleep(IN_A_ROW_MS, signal))) return;
      const fromMs = performance.now();
      this.#here = await readSettledTree(root, own, { here: this.#here, there: this.#there }, signal);
      const containerId = this.#containerId;
      if (containerId === '') return;
      const changes = changesBetween(this.#there, this.#here);
      if (changes.written.length + changes.removed.length + this.#untold.size === 0) continue;
      try {
        await this.#send(containerId, changes);
        if (containerId !== this.#containerId) continue;
        this.#there = this.#here;
        for (const path of [...changes.written.map((file) => file.path), ...changes.removed]) this.#untold.add(path);
        await this.#reload(containerId, changes, fromMs);
      } catch (error) {
        if (this.#parts.signal.aborted) return;
        // A container that is gone gets the files when its successor serves.
        this.#isWanted = await this.#isToBeTriedAgain(error, containerId);
      }
    }
  }

  async #isToBeTriedAgain(error: unknown, containerId: string): Promise<boolean> {
    const { signal, onNote } = this.#parts;
    onNote(`the change did not reach the container (${messageOf(error)})`);
    await sleep(AGAIN_MS, signal);
    return containerId === this.#containerId;
  }

  async #send(containerId: string, { written, removed }: Changes): Promise<void> {
    const { client, signal } = this.#parts;
    const base = `/gateway/containers/${encodeURIComponent(containerId)}/files`;
    for (const path of removed) {
      const query = new URLSearchParams({ path, recursive: 'true' });
      await client.restCall('DELETE', `${base}?${query.toString()}`).catch(ignoreMissing);
    }
    const waiting = [...written];
    const lane = async (): Promise<void> => {
      for (let file = waiting.shift(); file !== undefined && !signal.aborted; file = waiting.shift())
        await this.#sendFile(`/api/v1${base}`, file);
    };
    await Promise.all(Array.from({ length: SIDE_BY_SIDE }, lane));
  }

  async #sendFile(base: string, { path, fullPath, executable }: KnownFile): Promise<void> {
    const { client, signal } = this.#parts;
    const query = new URLSearchParams({ path, mode: executable ? '777' : '666' });
    const body = createReadStream(fullPath);
    // A file that has gone meanwhile is told by the next look.
    const gone = new Promise<void>((resolve) => body.once('error', () => resolve()));
    await Promise.race([
      client.open('PUT', `${base}?${query.toString()}`, body, { signal }).then(() => undefined),
      gone,
    ]);
  }

  /** Asks the container to load what changed, and says what came of it. */
  async #reload(containerId: string, { written, removed }: Changes, fromMs: number): Promise<void> {
    const { client, onReloaded, onSent, onNote } = this.#parts;
    const paths = [...this.#untold];
    const path = `/gateway/containers/${encodeURIComponent(containerId)}/reload`;
    const answer = await client.restCall('POST', path, namesOf(paths), RELOAD_WITHIN_MS);
    if (containerId !== this.#containerId) return;
    this.#untold.clear();
    const counts = { files: written.length, removed: removed.length };
    const state = textField(answer, 'state');
    if (state === 'unchanged') {
      const news = this.#sent.news(paths);
      if (news.length > 0) onSent({ ...counts, paths: news });
      return;
    }
    this.#sent.reloaded();
    const tookMs = Math.round(performance.now() - fromMs);
    onReloaded({ ...counts, state, error: textField(answer, 'error'), tookMs });
    const warning = this.#row.note(paths, textField(answer, 'path'));
    if (warning !== undefined) onNote(warning);
  }
}

/** The body of a reload. */
function namesOf(paths: readonly string[]): JsonObject {
  if (paths.length > MOST_PATHS || Buffer.byteLength(JSON.stringify(paths)) > MOST_PATHS_BYTES) return {};
  return { paths };
}

/** Whether the scheduler answered, and would answer alike again. */
const isFinal = (error: unknown): boolean =>
  error instanceof CliError &&
  (error.status === undefined ? !isUnreachable(error) : error.status < 500 && error.status !== 429);

/** A connection that failed has a cause; a refusal of the gateway has none. */
const isUnreachable = (error: CliError): boolean => error.cause !== undefined;

function ignoreMissing(error: unknown): void {
  if (!(error instanceof CliError) || error.answerCode !== 'not_found') throw error;
}
