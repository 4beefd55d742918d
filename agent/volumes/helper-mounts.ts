/**
 * Mounts that the mount helper makes for this machine's containers: `s3` volumes and buckets of workspaces. The helper
 * hears every few seconds who still uses a mount, and tells whose mount broke. Must stay true: keys of a bucket pass
 * through here to the helper, and stay nowhere; a helper that is away ends no container.
 */
import { sleep } from '#shared/backoff.ts';
import type { MountDriverName } from '#shared/domain/volume-drivers.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { WantedBucket } from '../containers/volumes-problem.ts';
import type { VolumeDriver, VolumeId, VolumeSource } from './driver.ts';
import type { MountHelper } from './mount-helper.ts';
import { NoMountHelper } from './mount-helper.ts';
import type { MountState } from './mount-messages.ts';

const SYNC_EVERY_MS = 5_000;
const MOUNT_MS = 90_000;

/** Credentials of a bucket; empty: it is public. */
export interface BucketKeys {
  readonly accessKey: string;
  readonly secretKey: string;
}

export interface HelperMountsParts {
  readonly helper: MountHelper;
  /** Containers that have not ended. */
  readonly containers: () => readonly string[];
  readonly onDown: (driver: MountDriverName, down: boolean) => void;
  readonly onCount: (mounts: number) => void;
  readonly log: Log;
}

export class HelperMounts {
  readonly #parts: HelperMountsParts;
  readonly #abort = new AbortController();
  readonly #lost = new Listeners<[string, string]>();
  readonly #offeredChanged = new Listeners<[]>();
  /** Other holders than containers, with their number of uses. */
  readonly #others = new Map<string, number>();
  #state: MountState | undefined;
  #isAway = false;
  #syncing: Promise<void> | undefined;

  constructor(parts: HelperMountsParts) {
    this.#parts = parts;
  }

  /** Told of a container whose mount broke, with the reason; told again until the container is gone. */
  onLost(listener: (containerId: string, why: string) => void): void {
    this.#lost.add(listener);
  }

  /** Told when the helper serves other drivers than before, also where it was not there before. */
  onOffered(listener: () => void): void {
    this.#offeredChanged.add(listener);
  }

  /** Asks for the helper's state once, and goes on asking. */
  async start(): Promise<void> {
    await this.#sync();
    this.#syncing = this.#keepSyncing();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#syncing;
  }

  /** Drivers that the helper serves. */
  get offered(): readonly MountDriverName[] {
    if (this.#state === undefined) return [];
    return this.#state.volumes ? ['s3', 'bucket'] : ['bucket'];
  }

  /** Mounts a bucket for a holder. @returns its path on this machine @throws NoAnswer, or Error with the fault */
  bucket(holder: string, workspaceId: string, wanted: WantedBucket, keys: BucketKeys): Promise<string> {
    return this.#parts.helper.bucket({ holder, workspaceId, ...wanted, ...keys });
  }

  /** Keeps a holder that is no container, until the returned function is called. */
  hold(holder: string): () => void {
    this.#others.set(holder, (this.#others.get(holder) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const left = (this.#others.get(holder) ?? 1) - 1;
      if (left > 0) this.#others.set(holder, left);
      else this.#others.delete(holder);
    };
  }

  async #keepSyncing(): Promise<void> {
    while (await sleep(SYNC_EVERY_MS, this.#abort.signal)) await this.#sync();
  }

  async #sync(): Promise<void> {
    const { helper, containers, onDown, onCount, log } = this.#parts;
    let state: MountState;
    try {
      state = await helper.sync([...containers(), ...this.#others.keys()]);
    } catch (error) {
      // A machine without a helper is a usual one.
      if (this.#state === undefined && error instanceof NoMountHelper) return;
      if (!this.#isAway) log.error({ err: error }, 'the mount helper does not answer');
      this.#isAway = true;
      if (this.#state !== undefined) onDown('bucket', true);
      return;
    }
    if (this.#isAway) {
      this.#isAway = false;
      log.info('the mount helper answers again');
      onDown('bucket', false);
    }
    const before = this.offered.join(' ');
    this.#state = state;
    if (before !== this.offered.join(' ')) {
      log.info({ offered: this.offered }, 'the mount helper offers other drivers than before');
      this.#offeredChanged.tell();
    }
    onCount(state.mounts);
    for (const { holder, why } of state.lost) if (!this.#others.has(holder)) this.#lost.tell(holder, why);
  }
}

/** The driver `s3`: volumes in the operator's bucket. */
export class S3Volumes implements VolumeDriver {
  readonly name = 's3';
  readonly deadlineMs = MOUNT_MS;
  readonly #helper: MountHelper;

  constructor(helper: MountHelper) {
    this.#helper = helper;
  }

  async mount(volume: VolumeId, holder: string): Promise<VolumeSource> {
    return { kind: 'bind', path: await this.#helper.volume({ holder, ...idsOf(volume) }) };
  }

  async remove(volume: VolumeId): Promise<void> {
    await this.#helper.remove(idsOf(volume));
  }

  async probe(): Promise<void> {
    await this.#helper.probe();
  }
}

const idsOf = ({ workspaceId, volumeId }: VolumeId): VolumeId => ({ workspaceId, volumeId });
