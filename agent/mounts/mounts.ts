/**
 * The mounts of this machine: one for each bucket with its keys and workspace, one for each workspace's `s3` volumes.
 * Holders (containers, transfers) share them; a mount that nobody holds is unmounted after a while. Must stay true: a
 * mount is shared inside one workspace alone; their number is bounded; every change is on the disk before it counts, so
 * that the next helper takes up the mounts of this one; keys are never on the disk.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '#shared/backoff.ts';
import { messageOf } from '#shared/errors.ts';
import type { Log } from '#shared/log.ts';
import { runInChild } from '../child.ts';
import type { BucketWanted, MountState, VolumeRemoved, VolumeWanted } from '../volumes/mount-messages.ts';
import { MountFailed, boundLog, brokenBy, cachedBytes, endDaemon, residentBytes, startDaemon } from './daemon.ts';
import type { Guard, GuardPlace } from './guard.ts';
import { Leftovers } from './leftovers.ts';
import type { KeptMount } from './record.ts';
import { MountRecord } from './record.ts';
import { endpointOf, storeProblem } from './store.ts';
import type { Store } from './store.ts';

/** Mounts of buckets that one workspace may have on a machine. */
export const MOST_OF_WORKSPACE = 16;
/** Mounts of a machine. */
export const MOST_OF_MACHINE = 128;
const LOOK_EVERY_MS = 5_000;
/** Time that a mount without holders stays. */
const UNUSED_MS = 30_000;
/** Time in which a new holder need not be among those that the agent names. */
const NEW_HOLDER_MS = 60_000;
/** Memory of a daemon above which it ends. */
const MOST_RESIDENT_BYTES = 1024 ** 3;
/** Looks without an answer after which a daemon counts as broken. */
const MOST_SILENT = 3;
const MAKE_MS = 30_000;
const REMOVE_MS = 10 * 60_000;
const PROBE_MS = 5_000;
const MIB = 1024 * 1024;

// A link in the place of a volume would lead out of it, in this machine's own directories.
const MAKE = `set -eu; cd -P -- "$1"
[ -L "$2" ] && { echo "the volume's directory is a link" >&2; exit 1; }
[ -d "$2" ] || mkdir -- "$2" || [ -d "$2" ]`;
const REMOVE = 'set -eu; cd -P -- "$1"; rm -rf -- "$2"; [ ! -e "$2" ] && [ ! -L "$2" ]';

interface Mount extends Omit<KeptMount, 'holders' | 'lost'> {
  readonly holders: Map<string, number>;
  lost: string | undefined;
  silent: number;
  unusedSinceMs: number | undefined;
}

export interface MountsParts {
  readonly directory: string;
  readonly cacheDir: string;
  readonly cacheMib: number;
  readonly program: string;
  readonly hasCompatDir: boolean;
  readonly caBundle: string | undefined;
  /** The operator's bucket of `s3` volumes. */
  readonly volumes: Store | undefined;
  readonly guard: Guard;
  readonly log: Log;
}

export class Mounts {
  readonly #parts: MountsParts;
  readonly #mounts = new Map<string, Mount>();
  /** Mounts that are being made, by key. */
  readonly #making = new Map<string, { readonly whose: string; readonly mount: Promise<Mount> }>();
  readonly #abort = new AbortController();
  #guardPlace: GuardPlace | undefined;
  #hashKey = randomBytes(32).toString('hex');
  #watching: Promise<void> | undefined;
  readonly #record: MountRecord;
  readonly #leftovers: Leftovers;
  #operations = 0;

  constructor(parts: MountsParts) {
    this.#parts = parts;
    this.#record = new MountRecord(parts.directory, parts.log);
    this.#leftovers = new Leftovers(parts.directory, parts.cacheDir);
  }

  /** Takes up the mounts of the helper before, and clears what nobody knows. */
  async start(): Promise<void> {
    const { directory, cacheDir, guard, log } = this.#parts;
    for (const name of ['b', 's3', 'log']) await mkdir(join(directory, name), { recursive: true, mode: 0o700 });
    await mkdir(cacheDir, { recursive: true, mode: 0o700 });
    const before = await this.#record.read();
    this.#hashKey = before?.hashKey ?? this.#hashKey;
    this.#guardPlace = await guard.start(before?.guard);
    for (const kept of before?.mounts ?? []) {
      const { holders, lost, ...rest } = kept;
      const mount: Mount = {
        ...rest,
        holders: new Map(holders.map((holder) => [holder, performance.now()])),
        lost,
        silent: 0,
        unusedSinceMs: undefined,
      };
      if (lost === undefined && (await brokenBy(mount)) !== undefined) await this.#lose(mount, 'its daemon ended');
      this.#mounts.set(mount.id, mount);
    }
    await this.#leftovers.clear([...this.#mounts.values()]);
    await this.#write();
    if (this.#mounts.size > 0) log.info({ mounts: this.#mounts.size }, 'mounts taken up');
    this.#watching = this.#watch();
  }

  /** @param end - whether the mounts end, too; otherwise the next helper takes them up */
  async stop(end: boolean): Promise<void> {
    this.#abort.abort();
    await this.#watching;
    await Promise.allSettled([...this.#making.values()].map(({ mount }) => mount));
    if (end) {
      await Promise.all([...this.#mounts.values()].map((mount) => endDaemon(mount, 5_000)));
      this.#mounts.clear();
      await this.#write();
    }
    await this.#parts.guard.stop();
  }

  /** Mounts a workspace's bucket. @throws MountFailed, ClosedAddress */
  async bucket(wanted: BucketWanted): Promise<string> {
    const { holder, workspaceId, ...fields } = wanted;
    const store: Store = { ...fields, prefix: '' };
    const problem = storeProblem(store);
    if (problem !== undefined) throw new MountFailed(problem);
    // The daemon's own refusal would not say why; the guard asks again at each connection.
    await this.#parts.guard.addressOf(new URL(endpointOf(store)).hostname);
    const { path } = await this.#held(holder, 'bucket', workspaceId, store);
    return path;
  }

  /** The directory of an `s3` volume, made if missing. @throws MountFailed, NoAnswer */
  async volume({ holder, workspaceId, volumeId }: VolumeWanted): Promise<string> {
    const { path } = await this.#held(holder, 'volumes', workspaceId, this.#storeOf(workspaceId));
    await runInChild(MAKE, [path, volumeId], MAKE_MS);
    return join(path, volumeId);
  }

  /** Deletes an `s3` volume with all its files. @throws MountFailed, NoAnswer */
  async remove({ workspaceId, volumeId }: VolumeRemoved): Promise<void> {
    const holder = `operation-${(this.#operations += 1)}`;
    const { path, holders } = await this.#held(holder, 'volumes', workspaceId, this.#storeOf(workspaceId));
    // The holder is no container, and the agent does not name it.
    const renewing = setInterval(() => holders.set(holder, performance.now()), NEW_HOLDER_MS / 4);
    try {
      await runInChild(REMOVE, [path, volumeId], REMOVE_MS);
    } finally {
      clearInterval(renewing);
      holders.delete(holder);
    }
  }

  /** Whether the server of `s3` volumes answers at all. @throws MountFailed */
  async probe(): Promise<void> {
    const store = this.#storeOf('probe');
    try {
      await fetch(endpointOf(store), { method: 'HEAD', redirect: 'manual', signal: AbortSignal.timeout(PROBE_MS) });
    } catch (error) {
      throw new MountFailed(`the server of s3 volumes does not answer: ${messageOf(error)}`, true);
    }
  }

  /** Takes the holders of now, and tells those whose mount is broken. */
  async sync(holders: readonly string[]): Promise<MountState> {
    const now = new Set(holders);
    const nowMs = performance.now();
    let isChanged = false;
    for (const mount of this.#mounts.values())
      for (const [holder, sinceMs] of mount.holders)
        if (!now.has(holder) && nowMs - sinceMs > NEW_HOLDER_MS) isChanged = mount.holders.delete(holder) || isChanged;
    if (isChanged) await this.#write();
    return this.state;
  }

  get state(): MountState {
    const mounts = [...this.#mounts.values()];
    const lost = mounts.flatMap(({ lost: why, holders: theirs }) =>
      why === undefined ? [] : [...theirs.keys()].map((holder) => ({ holder, why })),
    );
    return { volumes: this.#parts.volumes !== undefined, mounts: mounts.length, lost };
  }

  #storeOf(workspaceId: string): Store {
    const { volumes } = this.#parts;
    if (volumes === undefined)
      throw new MountFailed('the mount helper has no bucket for s3 volumes (LONGSHORE_S3_VOLUMES)');
    return { ...volumes, prefix: volumes.prefix === '' ? workspaceId : `${volumes.prefix}/${workspaceId}` };
  }

  async #held(holder: string, kind: KeptMount['kind'], workspaceId: string, store: Store): Promise<Mount> {
    const key = createHmac('sha256', this.#hashKey)
      .update(JSON.stringify([kind, workspaceId, store]))
      .digest('hex');
    const mount = await this.#mounted(key, kind, workspaceId, store);
    mount.holders.set(holder, performance.now());
    mount.unusedSinceMs = undefined;
    await this.#write();
    return mount;
  }

  async #mounted(key: string, kind: KeptMount['kind'], workspaceId: string, store: Store): Promise<Mount> {
    const there = [...this.#mounts.values()].find((one) => one.key === key && one.lost === undefined);
    if (there !== undefined) return there;
    const making = this.#making.get(key);
    if (making !== undefined) return making.mount;
    this.#checkRoom(`${kind} ${workspaceId}`);
    const mount = this.#make(key, kind, workspaceId, store).finally(() => this.#making.delete(key));
    this.#making.set(key, { whose: `${kind} ${workspaceId}`, mount });
    return mount;
  }

  /** @throws MountFailed when there are as many mounts as may be */
  #checkRoom(whose: string): void {
    const live = [...this.#mounts.values()].filter(({ lost }) => lost === undefined);
    const all = [
      ...live.map(({ kind, workspaceId }) => `${kind} ${workspaceId}`),
      ...[...this.#making.values()].map((one) => one.whose),
    ];
    if (all.filter((one) => one === whose).length >= MOST_OF_WORKSPACE)
      throw new MountFailed(
        `the workspace has ${MOST_OF_WORKSPACE} buckets mounted on this machine, which is the most`,
      );
    // Another machine may have room.
    if (all.length >= MOST_OF_MACHINE)
      throw new MountFailed(`this machine has ${MOST_OF_MACHINE} buckets mounted, which is the most`, true);
  }

  async #make(key: string, kind: KeptMount['kind'], workspaceId: string, store: Store): Promise<Mount> {
    const { directory, cacheDir, program, hasCompatDir, caBundle, guard, log } = this.#parts;
    const id = randomBytes(8).toString('hex');
    const path = join(directory, kind === 'bucket' ? 'b' : 's3', workspaceId, id);
    await mkdir(join(path, '..'), { recursive: true, mode: 0o700 });
    const from = performance.now();
    const facts = await startDaemon({
      program,
      hasCompatDir,
      store,
      path,
      cacheDir: join(cacheDir, id),
      logPath: this.#leftovers.logOf(id),
      caBundle,
      proxy: kind === 'bucket' ? guard.url : undefined,
    });
    const mount: Mount = {
      ...facts,
      id,
      kind,
      workspaceId,
      key,
      name: store.bucket,
      holders: new Map(),
      lost: undefined,
      silent: 0,
      unusedSinceMs: undefined,
    };
    this.#mounts.set(id, mount);
    log.info({ mount: id, kind, workspaceId, durationMs: Math.round(performance.now() - from) }, 'bucket mounted');
    return mount;
  }

  async #watch(): Promise<void> {
    while (await sleep(LOOK_EVERY_MS, this.#abort.signal)) {
      // Looks at one mount wait for none of another.
      const looks = [...this.#mounts.values()].map((mount) => this.#look(mount));
      for (const look of await Promise.allSettled(looks))
        if (look.status === 'rejected') this.#parts.log.warn({ err: look.reason }, 'a mount could not be looked at');
    }
  }

  /** Looks at one mount: whether its daemon answers, whether it keeps its bounds, whether somebody holds it. */
  async #look(mount: Mount): Promise<void> {
    const { log, cacheMib } = this.#parts;
    if (mount.lost === undefined) {
      await boundLog(this.#leftovers.logOf(mount.id));
      const [broken, cached, resident] = await Promise.all([
        brokenBy(mount),
        cachedBytes(mount),
        residentBytes(mount.pid),
      ]);
      mount.silent = broken === 'silent' ? mount.silent + 1 : 0;
      const why =
        broken === 'ended'
          ? 'its daemon ended'
          : mount.silent >= MOST_SILENT
            ? 'its daemon does not answer'
            : cached > cacheMib * MIB
              ? `its open files take more than ${cacheMib} MiB of disk (LONGSHORE_MOUNTS_CACHE_MIB)`
              : resident > MOST_RESIDENT_BYTES
                ? `its daemon takes more than ${MOST_RESIDENT_BYTES / MIB} MiB of memory`
                : undefined;
      if (why !== undefined) {
        log.error({ mount: mount.id, kind: mount.kind, workspaceId: mount.workspaceId, why }, 'a mount is broken');
        await this.#lose(mount, why);
        await this.#write();
      }
    }
    if (mount.holders.size > 0) {
      mount.unusedSinceMs = undefined;
      return;
    }
    mount.unusedSinceMs ??= performance.now();
    if (performance.now() - mount.unusedSinceMs < UNUSED_MS) return;
    this.#mounts.delete(mount.id);
    await this.#write();
    if (mount.lost === undefined) await endDaemon(mount);
    await this.#leftovers.forget(mount);
    log.info({ mount: mount.id, kind: mount.kind, workspaceId: mount.workspaceId }, 'bucket unmounted');
  }

  async #lose(mount: Mount, why: string): Promise<void> {
    mount.lost = `the mount of ${mount.kind === 'bucket' ? `bucket ${mount.name}` : 's3 volumes'} broke: ${why}`;
    await endDaemon(mount, 0);
  }

  #write(): Promise<void> {
    return this.#record.write(() => ({
      guard: this.#guardPlace ?? { port: 0, secret: '' },
      hashKey: this.#hashKey,
      mounts: [...this.#mounts.values()].map(
        ({ holders, silent: _looks, unusedSinceMs: _time, lost, ...kept }): KeptMount => ({
          ...kept,
          holders: [...holders.keys()],
          ...(lost === undefined ? {} : { lost }),
        }),
      ),
    }));
  }
}
