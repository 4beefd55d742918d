/**
 * Base images of Python that this machine makes from packages of Debian, for machines that reach no registry. A missing
 * image is made when it is first wanted, from the release whose Python it is. Called by images/.
 * Must stay true: a version is offered only while its mirror answers, or the image is there; what is half made has
 * another name.
 */
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { repeat } from '#shared/backoff.ts';
import { madeBaseImage, madeBaseVersion } from '#shared/domain/built-images.ts';
import { AppError } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { helper } from '../containers/helpers.ts';
import { Limiter } from '../containers/limiter.ts';
import type { ContainerRuntime } from '../containers/runtime.ts';
import { Apt } from './apt.ts';
import { PARTS } from './finish.ts';
import { archiveOf, authoritiesFile, layOut } from './rootfs.ts';
import { BASE_REVISION } from './suites.ts';
import type { Release } from './suites.ts';

export const FINISH_MS = 300_000;
const MIB = 1024 * 1024;
/** For dpkg and the scripts of packages. */
const CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'SETFCAP', 'SETGID', 'SETUID', 'SYS_CHROOT'];

/** Time between two looks at the images here; somebody may load one. */
const LOOK_EVERY_MS = 60_000;
/** Time between two questions to the mirrors, after all of them answered, and else. */
const ASK_EVERY_MS = 3_600_000;
const ASK_AGAIN_MS = 300_000;

export interface BaseImagesParts {
  readonly runtime: Pick<
    ContainerRuntime,
    'importImage' | 'runOnce' | 'flatten' | 'remove' | 'removeImage' | 'image' | 'listImages'
  >;
  /** Folder for what is half made, some 300 MB; nothing else is in it. */
  readonly workDir: string;
  readonly labels: () => Readonly<Record<string, string>>;
  /** Called with what `pythons` gives, when that changed. */
  readonly tell: (pythons: BasePythons) => void;
  /** The releases to which the machine's sources lead. */
  readonly releases: () => Promise<ReadonlyMap<string, Release>>;
  /** Whether this machine's base images are made here; else they are pulled, and no mirror is asked. */
  readonly isUsed: boolean;
  readonly log: Log;
}

/** Versions of Python whose base image is here or can be made. */
export interface BasePythons {
  readonly versions: string[];
  /** Versions whose image is here. */
  readonly here: string[];
  /** Whether these are all. Not where base images are pulled, and not before the engine has listed its images once. */
  readonly known: boolean;
}

export class BaseImages {
  readonly #parts: BaseImagesParts;
  readonly #abort = new AbortController();
  readonly #making = new Limiter(1);
  #releases: Promise<ReadonlyMap<string, Release>> | undefined;
  /** Versions whose mirror answered; undefined: none was asked yet. */
  #answered: readonly string[] | undefined;
  /** Versions whose image was here when the engine last said so; undefined: it has not yet. */
  #here: readonly string[] | undefined;
  #told: BasePythons = NOT_KNOWN;
  #askAtMs = 0;
  /** Name of the container in which an image is being completed. */
  #helper: string | undefined;

  constructor(parts: BaseImagesParts) {
    this.#parts = parts;
  }

  start(): void {
    const onError = (error: unknown): void =>
      this.#parts.log.info({ err: error }, 'base images could not be looked at');
    void this.#clear()
      .catch(onError)
      .then(async () => {
        if (!this.#parts.isUsed) return;
        await this.look().catch(onError);
        await repeat(LOOK_EVERY_MS, this.#abort.signal, () => this.look(), onError);
      });
  }

  /** Removes what an agent left half made that was killed, or had another setting. */
  async #clear(): Promise<void> {
    const { runtime, workDir } = this.#parts;
    await rm(workDir, { recursive: true, force: true });
    for (const image of await runtime.listImages()) if (isUnfinished(image)) await runtime.removeImage(image);
  }

  /** Ends the container of an image that is being made; the next agent makes it anew. */
  async stop(): Promise<void> {
    this.#abort.abort();
    if (this.#helper !== undefined) await this.#parts.runtime.remove(this.#helper);
  }

  /**
   * Until the mirrors have answered, every version counts for which there is a source, so that no deploy is refused for
   * want of an answer.
   */
  async pythons(): Promise<BasePythons> {
    if (!this.#parts.isUsed) return NOT_KNOWN;
    // An engine that does not answer now still has the images that it had.
    const images = await this.#parts.runtime.listImages().catch(() => undefined);
    this.#here = images?.flatMap((image) => madeBaseVersion(image) ?? []) ?? this.#here;
    const makeable = this.#answered ?? [...(await this.#known()).keys()];
    const here = [...(this.#here ?? [])];
    const versions = [...new Set([...here, ...makeable])].toSorted();
    this.#told = { versions, here: here.toSorted(), known: this.#here !== undefined };
    return this.#told;
  }

  /** Looks at the images here, asks the mirrors where it is time, and tells what changed. */
  async look(nowMs = performance.now()): Promise<void> {
    if (nowMs >= this.#askAtMs) await this.#ask(nowMs);
    await this.#tellChanges();
  }

  async #tellChanges(): Promise<void> {
    const before = this.#told;
    const pythons = await this.pythons();
    if (!this.#abort.signal.aborted && !isDeepStrictEqual(before, pythons)) this.#parts.tell(pythons);
  }

  /** Asks the mirrors which releases they have. */
  async #ask(nowMs: number): Promise<void> {
    const releases = [...(await this.#known()).values()];
    const answers = await Promise.all(
      releases.map(async (release) => {
        try {
          await this.#withApt(release, (apt) => apt.ask());
          return [release.python];
        } catch (error) {
          this.#parts.log.info({ err: error, python: release.python }, 'no base image of this Python can be made now');
          return [];
        }
      }),
    );
    this.#answered = answers.flat();
    this.#askAtMs = nowMs + (this.#answered.length === releases.length ? ASK_EVERY_MS : ASK_AGAIN_MS);
  }

  /**
   * Makes an image.
   * @param version - such as `3.13`
   * @param tell - called with a sentence on each part of the work
   * @returns the engine's id of it
   * @throws AppError `image_error` for a version that no release here has, and where base images are pulled;
   * `registry_unreachable` when its mirror does not answer
   */
  async make(version: string, tell: (text: string) => void): Promise<string> {
    if (!this.#parts.isUsed) throw new AppError('image_error', notMadeHere(version));
    tell(`the base image of Python ${version} waits for another one that is being made`);
    return await this.#making.run(() => this.#make(version, tell));
  }

  async #make(version: string, tell: (text: string) => void): Promise<string> {
    const { runtime, log } = this.#parts;
    const releases = await this.#known();
    const release = releases.get(version);
    if (release === undefined) throw new AppError('image_error', noRelease(version, [...releases.keys()]));
    const from = performance.now();
    const title = `making the base image of Python ${version}`;
    const reference = madeBaseImage(version);
    await this.#withApt(release, async (apt, directory) => {
      tell(`${title}: downloading packages of ${release.distribution} ${release.codename}`);
      await apt.download();
      tell(`${title}: unpacking packages`);
      const root = join(directory, 'root');
      await layOut(root, apt, release);
      await this.#import(reference, root, version, () => tell(`${title}: installing packages`));
    });
    const made = await runtime.image(reference);
    if (made === undefined) throw new AppError('image_error', `image ${reference} was made, and has left the engine`);
    const durationMs = Math.round(performance.now() - from);
    log.info({ image: reference, durationMs, bytes: made.bytes }, 'base image made');
    await this.#tellChanges();
    return made.id;
  }

  async #import(reference: string, root: string, version: string, onInstall: () => void): Promise<void> {
    const { runtime, labels, log } = this.#parts;
    const unfinished = `${reference}${UNFINISHED}`;
    // An import would leave the image of an agent that was killed without a name.
    await runtime.removeImage(unfinished);
    const { tar, ended } = archiveOf(root);
    await Promise.all([runtime.importImage(unfinished, tar), ended]);
    const lines: string[] = [];
    const changes = [
      'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      'ENV LANG=C.UTF-8',
      'CMD ["python3"]',
      `LABEL io.longshore.base=${BASE_REVISION}`,
      `LABEL io.longshore.base.ca=${await authoritiesDigest()}`,
    ];
    const spec = helper(unfinished, ['/bin/bash', `/${PARTS}/finish.sh`], [], labels());
    try {
      this.#abort.signal.throwIfAborted();
      this.#helper = spec.name;
      onInstall();
      const exitCode = await runtime.runOnce(
        {
          ...spec,
          env: [`PYTHON=python${version}`, 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
          memoryBytes: 1024 * MIB,
          cpuMillicores: 2000,
          capabilities: CAPABILITIES,
        },
        FINISH_MS,
        (line) => lines.push(line),
        (dockerId) => runtime.flatten(dockerId, reference, changes),
      );
      if (exitCode !== 0)
        throw new AppError(
          'image_error',
          `the packages of ${reference} cannot be installed: ${lines.slice(-5).join(' ').slice(0, 500)}`,
        );
    } finally {
      this.#helper = undefined;
      await runtime.removeImage(unfinished).catch((error: unknown) => {
        log.info({ err: error, image: unfinished }, 'an unfinished image stays');
      });
    }
  }

  #known(): Promise<ReadonlyMap<string, Release>> {
    this.#releases ??= this.#parts.releases();
    return this.#releases;
  }

  async #withApt<T>(release: Release, work: (apt: Apt, directory: string) => Promise<T>): Promise<T> {
    const { workDir } = this.#parts;
    await mkdir(workDir, { recursive: true });
    const directory = await mkdtemp(join(workDir, 'base-'));
    try {
      return await work(await Apt.open(directory, release), directory);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  }
}

const NOT_KNOWN: BasePythons = { versions: [], here: [], known: false };

/** Equal to that of scripts/setup/base-image.mjs, which makes the image anew where the authorities have changed. */
const authoritiesDigest = async (): Promise<string> => {
  const text = await readFile(authoritiesFile()).catch(() => undefined);
  return text === undefined ? 'none' : createHash('sha256').update(text).digest('hex').slice(0, 16);
};

const UNFINISHED = '-unfinished';
const isUnfinished = (image: string): boolean =>
  image.endsWith(UNFINISHED) && madeBaseVersion(image.slice(0, -UNFINISHED.length)) !== undefined;

/** Error text: a base image on a machine that pulls its own. */
const notMadeHere = (version: string): string =>
  `image ${madeBaseImage(version)} is not here, and this machine makes no base images, because it pulls them: ` +
  `name no image and python_version='python${version}', or a base_image of a registry`;

/** Error text: a base image that this machine cannot make. */
const noRelease = (version: string, there: readonly string[]): string =>
  `this machine has no image of Python ${version}, and makes ${there.length === 0 ? 'none' : `those of ${there.join(', ')} alone`} from packages: ` +
  'name a version that it has, or a base_image, or set LONGSHORE_BASE_IMAGE=python:{version}-slim for images of a registry';
