/**
 * Byte code of the runner and of supervisors, beside their sources: containers see that folder read-only, and would
 * compile at each start. Python keeps the files of each version apart. Called by compose/. Must stay true: only images
 * that the operator names compile, since a tenant's image could write anything there, for everybody.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { hasCode, readIfThere } from '../durable.ts';
import { helper } from './helpers.ts';
import type { ContainerRuntime, Mount } from './runtime.ts';
import { RUNNER_TARGET } from './spec.ts';

const DEADLINE_MS = 60_000;
const MOST_IMAGES = 1000;
/** Exit code of `compileall` where a source is for newer Pythons. The other files are compiled. */
const SOME_FAILED = 1;

export interface RunnerCompilerParts {
  readonly runtime: Pick<ContainerRuntime, 'image' | 'runOnce'>;
  readonly runnerDir: string;
  readonly labels: () => Readonly<Record<string, string>>;
  readonly log: Log;
}

export class RunnerCompiler {
  readonly #parts: RunnerCompilerParts;
  /** Images whose turn has come or will come. */
  readonly #known = new Set<string>();
  #queue: Promise<void> = Promise.resolve();

  constructor(parts: RunnerCompilerParts) {
    this.#parts = parts;
  }

  /**
   * Compiles by the Python of a base image, in the background, one image at a time. An image that is not there yet is
   * left for the next call.
   */
  want(image: string): void {
    if (this.#known.has(image) || this.#known.size >= MOST_IMAGES) return;
    this.#known.add(image);
    this.#queue = this.#queue.then(async () => {
      if (!(await this.#compile(image))) this.#known.delete(image);
    });
  }

  idle(): Promise<void> {
    return this.#queue;
  }

  /** @returns false: another call may do better */
  async #compile(image: string): Promise<boolean> {
    const { runtime, runnerDir, labels, log } = this.#parts;
    const marks = `${runnerDir}.compiled`;
    try {
      const facts = await runtime.image(image);
      if (facts === undefined) return false;
      // The same name may mean another Python later.
      const mark = join(marks, sha256Hex(facts.id).slice(0, 16));
      if ((await readIfThere(mark)) !== undefined) return true;
      const from = performance.now();
      const mount: Mount = { kind: 'bind', target: RUNNER_TARGET, readOnly: false, source: runnerDir };
      const spec = helper(facts.id, ['python3', '-m', 'compileall', '-q', RUNNER_TARGET], [mount], labels());
      const user = `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`;
      const exitCode = await runtime.runOnce({ ...spec, user }, DEADLINE_MS);
      if (exitCode === 0 || exitCode === SOME_FAILED) {
        await mkdir(marks, { recursive: true });
        await writeFile(mark, image);
      }
      log.info({ image, exitCode, durationMs: Math.round(performance.now() - from) }, 'runner compiled');
      return true;
    } catch (error) {
      // A failure costs only speed. A folder that is gone belongs to an agent that has stopped.
      if (!hasCode(error, 'ENOENT')) log.info({ err: error, image }, 'runner could not be compiled');
      return false;
    }
  }
}
