// Images and the disks they fill: pulls, the record of pulled and used images, eviction, and images that the scheduler
// orders ahead.
import { join } from 'node:path';
import type { ImagePrepared } from '#shared/protocol/generated/messages.ts';
import type { BaseImages } from '../bases/base-images.ts';
import { imageOf } from '../config.ts';
import { imagesRoot } from '../images/images-root.ts';
import { volumeHomes } from '../volumes/open.ts';
import { BuiltImages } from '../images/built.ts';
import { ImageCache } from '../images/cache.ts';
import type { PullSettings } from '../images/images.ts';
import { Images, PULL_SETTINGS } from '../images/images.ts';
import { ImageLedger } from '../images/ledger.ts';
import type { AskToPull } from '../images/permits.ts';
import { askPermit, HELD_MS } from '../images/permits.ts';
import { ImagePreparer } from '../images/prepare.ts';
import { ImageRights } from '../images/rights.ts';
import type { Journal } from '../reconcile/journal.ts';
import type { DiskReading } from '../telemetry/disks.ts';
import { DiskWatch } from '../telemetry/disk-watch.ts';
import type { Host } from './host.ts';

const minFreeRatioOf = ({ config }: Host): number => config.LONGSHORE_MIN_FREE_DISK_PERCENT / 100;

/** Watches the disks; `makeImages` makes room on the one that images fill. */
export function makeDisks(host: Host): DiskWatch {
  return new DiskWatch({
    imagesPath: host.imagesRoot,
    askImagesPath: async () => imagesRoot(await host.runtime.info()),
    statePath: host.stateDir,
    volumePaths: volumeHomes(host.config),
    minFreeRatio: minFreeRatioOf(host),
    conditions: host.conditions,
    onFree: (filesystem, bytes) => host.metrics.diskFree.set({ filesystem }, bytes),
    log: host.log,
  });
}

/** @param mib - the operator's bound; 0: all that the disk of images may take */
const maxImageBytes = (mib: number, { usableBytes }: DiskReading, minFreeRatio: number): number =>
  mib > 0 ? mib * 1024 ** 2 : usableBytes * (1 - minFreeRatio);

export interface ImagesSetup {
  readonly host: Host;
  readonly journal: Pick<Journal, 'all'>;
  /** Retry settings of pulls that differ from the defaults. */
  readonly pulls: Partial<PullSettings> | undefined;
  readonly disks: DiskWatch;
  readonly askToPull: AskToPull;
  /** `host:port` of the registry port; undefined: it is not open. */
  readonly registryHost: () => string | undefined;
  readonly bases: Pick<BaseImages, 'make'>;
  readonly answer: (answer: ImagePrepared) => void;
}

export interface ImageParts {
  readonly ledger: ImageLedger;
  readonly cache: ImageCache;
  readonly images: Images;
  readonly built: BuiltImages;
  readonly preparer: ImagePreparer;
}

export function makeImages({
  host,
  journal,
  pulls,
  disks,
  askToPull,
  registryHost,
  bases,
  answer,
}: ImagesSetup): ImageParts {
  const { config, log, stateDir, runtime, metrics } = host;
  const ledger = new ImageLedger(join(stateDir, 'images.json'));
  const cache = new ImageCache({
    runtime,
    ledger,
    readDisk: () => disks.readImagesDisk(),
    minFreeRatio: minFreeRatioOf(host),
    pulling: () => images.pulling,
    wanted: () => new Set([...journal.all()].filter(({ stage }) => stage !== 'gone').map(({ image }) => image)),
    onBytes: (bytes) => metrics.imageCacheBytes.set(bytes),
    onFreed: (bytes) => metrics.imageGcFreed.inc(bytes),
    log,
  });
  const built = new BuiltImages({ runtime, host: registryHost });
  const images = new Images({
    runtime,
    built,
    makeBase: (version, tell) => bases.make(version, tell),
    permit: (image, workspaceId, asking) =>
      askPermit(askToPull, { image, workspaceId, ...asking, maxWaitMs: asking.pulling === true ? 0 : HELD_MS }, log),
    release: (image, end) =>
      void askToPull({ image, done: true, pulled: end === 'pulled', again: end === 'again' }).catch(() => undefined),
    rights: new ImageRights({
      runtime,
      ledger,
      credentials: (image, workspaceId) => askPermit(askToPull, { image, workspaceId, check: true }, log),
      nowMs: () => Date.now(),
      log,
    }),
    isDiskLow: () => disks.isLow(),
    isDiskFull: () => disks.isFull(),
    maxBytes: async () =>
      maxImageBytes(config.LONGSHORE_AGENT_IMAGE_MIB, await disks.readImagesDisk(), minFreeRatioOf(host)),
    makeRoom: async () => (await cache.collect(true)) > 0,
    onFull: () => disks.full(),
    onUsed: (reference) => ledger.used(reference, Date.now()),
    onPulled: (reference, how) => ledger.pulled(reference, Date.now(), how),
    metrics: metrics.images,
    log,
    settings: { ...PULL_SETTINGS, ...pulls },
  });
  const preparer = new ImagePreparer({
    runtime,
    images,
    isOurs: (reference, imageId) => ledger.hasPulled(reference, imageId),
    imageOf: (image, pythonVersion) => imageOf(config, image, pythonVersion),
    answer,
    log,
  });
  return { ledger, cache, images, built, preparer };
}
