import type { VolumeDriverName } from '#shared/domain/volume-drivers.ts';

/** A volume, named by ids only, from which every host path is made. */
export interface VolumeId {
  readonly workspaceId: string;
  readonly volumeId: string;
}

/** The source of a container's mount. */
export type VolumeSource =
  | { readonly kind: 'bind'; readonly path: string }
  /** A volume of the engine, which mounts it with the first container and unmounts it after the last. */
  | { readonly kind: 'engine'; readonly name: string; readonly options: EngineVolume };

/** Options of the engine's own volume driver. */
export interface EngineVolume {
  readonly type: string;
  readonly device: string;
  readonly o: string;
}

/** A store of volumes' files. Drivers never format, empty or unmount anything that they did not create. */
export interface VolumeDriver {
  readonly name: VolumeDriverName;
  /** Time after which a call counts as unanswered. */
  readonly deadlineMs: number;
  /** The disk may be missing or away: the driver is probed also while nobody mounts anything. */
  readonly isWatched?: boolean;
  /**
   * Creates the volume if missing, and returns its mount source.
   * @param holder - the container or transfer that uses it
   * @throws NoAnswer, or Error with the fault
   */
  mount(volume: VolumeId, holder: string): Promise<VolumeSource>;
  /** Deletes the volume and all its content, for every owner; an absent volume counts as success. */
  remove(volume: VolumeId): Promise<void>;
  /** Checks that the store answers. @throws NoAnswer, or Error with the fault */
  probe(): Promise<void>;
}
