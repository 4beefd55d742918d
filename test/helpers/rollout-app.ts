/** An app of one endpoint whose versions tell their number, deployed by the command line; and callers of its name. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MAIN, jsonOf } from './platform.ts';
import type { Platform } from './platform.ts';
import { endOf } from './programs.ts';
import type { Ended } from './programs.ts';

/** A call of the name. */
export interface Called {
  readonly atMs: number;
  readonly tookMs: number;
  readonly status: number;
  /** The version that answered; 0: none did. */
  readonly version: number;
}

export class RolloutApp {
  readonly name: string;
  readonly #platform: Platform;
  readonly #file: string;

  constructor(platform: Platform, name: string) {
    this.name = name;
    this.#platform = platform;
    const directory = join(platform.directory, name);
    mkdirSync(directory, { recursive: true });
    this.#file = join(directory, 'app.py');
  }

  /** Runs a command of `longshore`. */
  async run(...args: readonly string[]): Promise<Ended> {
    const { url, token } = this.#platform;
    const env = { ...this.#platform.env(), LONGSHORE_URL: url, LONGSHORE_TOKEN: token };
    return endOf(process.execPath, [MAIN, ...args], { env });
  }

  /** Deploys the app as a version that answers with its number. @param onStart - body of its `on_start` */
  deploy(version: number, onStart: string, ...flags: readonly string[]): Promise<Ended> {
    const text = `import time
from longshore import endpoint

def load():
    ${onStart}

@endpoint(name="${this.name}", on_start=load, keep_warm_seconds=600, concurrent_requests=10, cpu=0.2, memory=128)
def handler(**inputs):
    return {"version": ${version}}
`;
    writeFileSync(this.#file, text);
    return this.run('deploy', `${this.#file}:handler`, ...flags);
  }

  async call(): Promise<Called> {
    const atMs = performance.now();
    const answer = await this.#platform.call(`/endpoint/${this.name}`, { body: {} });
    const { version = 0 } = answer.status === 200 ? jsonOf<{ version?: number }>(answer) : {};
    return { atMs, tookMs: performance.now() - atMs, status: answer.status, version };
  }

  /** Calls the name side by side, one call after another each, until `isOver`. */
  async callers(count: number, isOver: () => boolean): Promise<readonly Called[]> {
    const calls: Called[] = [];
    const caller = async (): Promise<void> => {
      while (!isOver()) calls.push(await this.call());
    };
    await Promise.all(Array.from({ length: count }, caller));
    return calls;
  }
}

export const slowestMs = (calls: readonly Called[]): number => Math.max(0, ...calls.map(({ tookMs }) => tookMs));
