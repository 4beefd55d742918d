/**
 * Volumes on an NFS server, `<export>/<workspace>/<volume>`, mounted by the engine's own volume driver. This process
 * needs no right to mount, and the engine counts the containers of each mount. Must stay true: a one-shot container
 * that mounts the export creates the volume's directory before the volume is mounted. An absent server's error is the
 * engine's own sentence.
 */
import { createHash } from 'node:crypto';
import type { Mount } from '../containers/runtime.ts';
import type { EngineVolume, VolumeDriver, VolumeId, VolumeSource } from './driver.ts';

/** Deadline for a mount and the creation of a directory there. */
const DEADLINE_MS = 30_000;
const MOST_KNOWN = 10_000;

const MAKE =
  'umask 077; mkdir -p "/target/$1" && { mkdir "/target/$1/$2" 2>/dev/null && chmod 0777 "/target/$1/$2" || test -d "/target/$1/$2"; }';
const REMOVE = 'rm -rf "/target/$1/$2"';
const PROBE = 'test -d /target';

export interface NfsParts {
  /** The export's root. The device of a volume is the root's with its path appended. */
  readonly export: EngineVolume;
  /**
   * Runs a script in a one-shot container with a mount at `/target`; throws the engine's message when the mount fails.
   */
  readonly runWith: (mount: Mount, script: string, args: readonly string[], deadlineMs: number) => Promise<void>;
  readonly labels: () => Readonly<Record<string, string>>;
}

/**
 * The engine's volume options, from `host:/path` and mount options.
 * @param options - in fstab's form, without `addr`; `nosuid,nodev` are always added
 */
export function nfsExport(where: string, options: string): EngineVolume {
  const colon = where.indexOf(':/');
  const host = where.slice(0, colon).replace(/^\[|\]$/g, '');
  const o = [`addr=${host}`, ...options.split(',').filter((one) => one !== ''), 'nosuid', 'nodev'].join(',');
  return { type: 'nfs', device: `:${where.slice(colon + 1).replace(/\/+$/, '')}`, o };
}

export const NFS_PREFIX = 'ls-nfs-';

export class NfsVolumes implements VolumeDriver {
  readonly name = 'nfs';
  readonly deadlineMs = DEADLINE_MS;
  readonly #parts: NfsParts;
  /** Prefix of volume names: options of an engine's volume never change, so other settings need other names. */
  readonly #prefix: string;
  readonly #made = new Set<string>();

  constructor(parts: NfsParts) {
    this.#parts = parts;
    const { type, device, o } = parts.export;
    this.#prefix = `${NFS_PREFIX}${createHash('sha256').update(`${type} ${device} ${o}`).digest('hex').slice(0, 8)}`;
  }

  async mount({ workspaceId, volumeId }: VolumeId): Promise<VolumeSource> {
    const path = `${workspaceId}/${volumeId}`;
    if (!this.#made.has(path)) {
      await this.#run(MAKE, [workspaceId, volumeId]);
      if (this.#made.size >= MOST_KNOWN) this.#made.clear();
      this.#made.add(path);
    }
    const { type, device, o } = this.#parts.export;
    const name = `${this.#prefix}-${workspaceId}-${volumeId}`;
    return { kind: 'engine', name, options: { type, device: `${device}/${path}`, o } };
  }

  async remove({ workspaceId, volumeId }: VolumeId): Promise<void> {
    this.#made.delete(`${workspaceId}/${volumeId}`);
    await this.#run(REMOVE, [workspaceId, volumeId]);
  }

  async probe(): Promise<void> {
    await this.#run(PROBE, []);
  }

  #run(script: string, args: readonly string[]): Promise<void> {
    const mount: Mount = {
      kind: 'volume',
      target: '/target',
      readOnly: false,
      source: '',
      volume: { name: `${this.#prefix}-export`, options: this.#parts.export, labels: this.#parts.labels() },
    };
    return this.#parts.runWith(mount, script, args, DEADLINE_MS);
  }
}
