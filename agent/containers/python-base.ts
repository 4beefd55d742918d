/**
 * The Python by which supervisors run in containers of any image (docs/supervisor-protocol.md): copied from the base
 * image into a volume of the engine, by a helper container, when the first container needs it. Called by reconcile/.
 * Must stay true: nothing uses a copy that has not run once in a container without Python; a failed copy is removed,
 * and made again by the next who needs it.
 */
import { sha256Hex } from '#shared/domain/ids.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { helper } from './helpers.ts';
import { PAUSE_IMAGE, ensurePauseImage } from './pause-image.ts';
import type { ContainerRuntime, Mount } from './runtime.ts';
import { EngineError, LABELS } from './runtime.ts';
import { RUNNER_TARGET } from './spec.ts';
import { BASE_TARGET, pythonOfBase } from './supervised.ts';

/** Raised when the copy's content changes. */
const LAYOUT = 1;
const MAKE_MS = 180_000;
const CHECK_MS = 60_000;
const PREFIX = 'ls-base-';
const SCRIPT = `${RUNNER_TARGET}/longshore/python_base.py`;
/** Any user of an image must be able to run the copy. */
const NOBODY = '65534:65534';

/** Whether a volume of the engine is such a copy. */
export const isPythonBase = (volume: string): boolean => volume.startsWith(PREFIX);

export interface BaseImage {
  readonly reference: string;
  /** The engine's id of it. */
  readonly id: string;
}

export interface PythonBaseParts {
  readonly runtime: ContainerRuntime;
  /** The base image, pulled where it is absent. */
  readonly image: () => Promise<BaseImage>;
  readonly runnerDir: string;
  readonly labels: () => Readonly<Record<string, string>>;
  /** Told of the base image once its copy can be used; absent: nobody asks. */
  readonly onReady?: (reference: string) => void;
  readonly log: Log;
}

export class PythonBase {
  readonly #parts: PythonBaseParts;
  /** Copies that are there, or are just being made, by the image's id. */
  readonly #made = new Map<string, Promise<Mount>>();

  constructor(parts: PythonBaseParts) {
    this.#parts = parts;
  }

  /**
   * The mount of the copy.
   * @throws AppError `python_base` when there is no Python that runs elsewhere; EngineError
   */
  async mount(): Promise<Mount> {
    const image = await this.#parts.image();
    const there = this.#made.get(image.id);
    if (there !== undefined) return there;
    const making = this.#make(image);
    this.#made.set(image.id, making);
    // Without the copy the next container tries again.
    making.catch(() => this.#made.delete(image.id));
    return making;
  }

  /** A container did not find the copy in its volume: the next one looks, and makes it where it is gone. */
  distrust(): void {
    this.#made.clear();
  }

  async #make(image: BaseImage): Promise<Mount> {
    const { runtime, labels, log } = this.#parts;
    const from = performance.now();
    await ensurePauseImage(runtime);
    const owner = labels();
    const name = `${PREFIX}${sha256Hex(`${owner[LABELS.machine] ?? ''} ${image.id} ${LAYOUT}`).slice(0, 24)}`;
    const volume = { name, options: undefined, labels: { ...owner, [LABELS.pythonBase]: image.id } };
    const mount: Mount = { kind: 'volume', target: BASE_TARGET, readOnly: true, source: '', volume };
    const copies = await this.#copies();
    if (!copies.includes(name) || (await this.#check(mount)) !== undefined) {
      await runtime.removeVolume(name);
      const problem = await this.#copied(image, mount).catch(async (error: unknown) => {
        await runtime.removeVolume(name).catch(() => undefined);
        throw error;
      });
      if (problem !== undefined) {
        await runtime.removeVolume(name);
        throw new AppError(
          'python_base',
          `the Python of base image ${image.reference} does not run in containers of other images, so that no pod or sandbox starts here: ${problem}`,
        );
      }
      log.info({ image: image.reference, durationMs: Math.round(performance.now() - from) }, 'Python base made');
    }
    await this.#removeOthers(copies.filter((one) => one !== name));
    this.#parts.onReady?.(image.reference);
    return mount;
  }

  async #copies(): Promise<string[]> {
    const { runtime, labels } = this.#parts;
    return (await runtime.listVolumes(labels())).filter(isPythonBase);
  }

  /** @returns why there is no copy that runs; undefined: there is */
  async #copied(image: BaseImage, mount: Mount): Promise<string | undefined> {
    return (await this.#copy(image, mount)) ?? (await this.#check(mount));
  }

  /** @returns why there is no copy; undefined: it is made */
  async #copy(image: BaseImage, mount: Mount): Promise<string | undefined> {
    const command = ['python3', '-I', '-S', SCRIPT, 'make', BASE_TARGET];
    // A base image may name another user.
    return this.#run(image.id, command, { ...mount, readOnly: false }, '0:0', MAKE_MS);
  }

  /** Runs the copy once where there is no other Python. @returns why it did not run */
  async #check(mount: Mount): Promise<string | undefined> {
    return this.#run(PAUSE_IMAGE, [...pythonOfBase, SCRIPT, 'check', BASE_TARGET], mount, NOBODY, CHECK_MS);
  }

  async #run(
    image: string,
    command: readonly string[],
    mount: Mount,
    user: string,
    deadlineMs: number,
  ): Promise<string | undefined> {
    const { runtime, runnerDir, labels } = this.#parts;
    const runner: Mount = { kind: 'bind', target: RUNNER_TARGET, readOnly: true, source: runnerDir };
    const lines: string[] = [];
    const spec = { ...helper(image, command, [mount, runner], labels()), user, readOnlyRoot: true };
    const code = await runtime.runOnce(spec, deadlineMs, (line) => {
      if (lines.push(line) > 5) lines.shift();
    });
    return code === 0 ? undefined : lines.join(' ').slice(0, 500) || `it ended with code ${code}`;
  }

  /** Removes copies of earlier base images; one that a container still uses stays until the next time. */
  async #removeOthers(names: readonly string[]): Promise<void> {
    const { runtime, log } = this.#parts;
    for (const name of names) {
      try {
        await runtime.removeVolume(name);
      } catch (error) {
        if (!(error instanceof EngineError) || error.failure !== 'conflict')
          log.info({ err: error, name }, `an old Python base was left: ${messageOf(error)}`);
      }
    }
  }
}
