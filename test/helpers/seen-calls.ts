/**
 * The calls of the published client that an installation answers well while a test file runs. The file keeps them for
 * docs/clients.md in test/tools/python-client/results.json; LS_CLIENT_RESULTS=write writes them there.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { expect } from 'vitest';
import { sleep } from '#shared/backoff.ts';
import { test as base } from './platform.ts';
import type { Platform } from './platform.ts';
import { waitFor } from './programs.ts';
import { TOOLS } from './python-client.ts';
import { SseClient } from './sse.ts';

const RESULTS = join(TOOLS, 'results.json');
/** Status of a stream that its caller ended, as clients end those that have no end. */
const LEFT = 499;
const AGAIN_MS = 200;
const TOLD_WITHIN_MS = 5_000;

/** Calls of a version of the client, and those that were answered well, by test files. */
export interface ClientResults {
  readonly calls: readonly string[];
  readonly answered: Readonly<Record<string, readonly string[]>>;
}

export const readResults = (): Readonly<Record<string, ClientResults>> =>
  JSON.parse(readFileSync(RESULTS, 'utf8')) as Readonly<Record<string, ClientResults>>;

/** Version of the client that the lock file names. */
export const clientVersion = (): string =>
  /^beta9==(\S+)/m.exec(readFileSync(join(TOOLS, 'requirements.txt'), 'utf8'))?.[1] ?? '';

export class SeenCalls {
  readonly #platform: Platform;
  readonly #seen = new Set<string>();
  #stream: SseClient | undefined;
  #isOver = false;

  private constructor(platform: Platform) {
    this.#platform = platform;
  }

  /** Begins to watch: before the first call that counts. */
  static async watch(platform: Platform): Promise<SeenCalls> {
    const calls = new SeenCalls(platform);
    await calls.#open();
    return calls;
  }

  /** Compares the calls with those that are kept for the file, or keeps them. */
  async keep(file: string): Promise<void> {
    const name = basename(file, '.test.ts');
    const version = clientVersion();
    const results = readResults();
    const kept = results[version] ?? { calls: [], answered: {} };
    if (process.env['LS_CLIENT_RESULTS'] === 'write') {
      // The last calls are told a moment after their answers.
      await sleep(TOLD_WITHIN_MS);
      const answered = { ...kept.answered, [name]: this.#all() };
      writeResults({ ...results, [version]: { ...kept, answered } });
    } else {
      const missing = (): readonly string[] =>
        (kept.answered[name] ?? []).filter((path) => !this.#all().includes(path));
      await waitFor(() => missing().length === 0, 'the last calls are told', TOLD_WITHIN_MS).catch(() => undefined);
      expect(missing(), 'calls that docs/clients.md has as answered').toEqual([]);
    }
  }

  stop(): void {
    this.#isOver = true;
    this.#stream?.close();
  }

  #all(): readonly string[] {
    this.#read();
    return [...this.#seen].toSorted();
  }

  /** Opens the stream again whenever it ends: tests stop and kill the scheduler. */
  async #open(): Promise<void> {
    const { url, workspaceId, token } = this.#platform;
    try {
      const path = `/api/v1/events/${workspaceId}/stream?event_types=gateway.endpoint.called`;
      this.#stream = await SseClient.open(`${url}${path}`, token);
    } catch {
      this.#stream = undefined;
    }
    const look = setInterval(() => {
      this.#read();
      if (!this.#isOver && this.#stream?.isOver === false) return;
      clearInterval(look);
      if (!this.#isOver) void this.#open();
    }, AGAIN_MS);
  }

  #read(): void {
    for (const { data } of this.#stream?.frames.splice(0) ?? []) {
      const { path, status_code: status, error_message: error } = callIn(data);
      if ((status === 200 || status === LEFT) && error === '' && /^\/[a-z]+\.\w+\/\w+$/.test(path))
        this.#seen.add(path);
    }
  }
}

/** Tests with the published client: each file ends with `seen.keep(import.meta.filename)`. */
export const test = base.extend(
  'seen',
  { scope: 'file', auto: true },
  async ({ platform }, { onCleanup }): Promise<SeenCalls> => {
    const seen = await SeenCalls.watch(platform);
    onCleanup(() => seen.stop());
    return seen;
  },
);

/** Keeps the calls that a version of the client has in it. */
export function keepCalls(calls: readonly string[]): void {
  const results = readResults();
  const version = clientVersion();
  const answered = results[version]?.answered ?? {};
  writeResults({ ...results, [version]: { calls: calls.toSorted(), answered } });
}

const writeResults = (results: Readonly<Record<string, ClientResults>>): void =>
  writeFileSync(RESULTS, `${JSON.stringify(results, null, 2)}\n`);

interface ToldCall {
  readonly path: string;
  readonly status_code: number;
  readonly error_message: string;
}

function callIn(frame: string): ToldCall {
  const event = JSON.parse(frame) as { readonly data?: ToldCall };
  return event.data ?? { path: '', status_code: 0, error_message: '' };
}
