import type { VolumeDriverName } from '#shared/domain/volume-drivers.ts';

/** One volume: ids only, from which every host path is made. */
export interface VolumeId {
  readonly workspaceId: string;
  readonly volumeId: string;
}

/** What a container mounts. */
export type VolumeSource =
  | { readonly kind: 'bind'; readonly path: string }
  /** The engine mounts it, when the first container starts, and unmounts it after the last. */
  | { readonly kind: 'engine'; readonly name: string; readonly options: EngineVolume };

/** Options of the engine's own volume driver. */
export interface EngineVolume {
  readonly type: string;
  readonly device: string;
  readonly o: string;
}

/** Where the files of volumes are. Nothing here formats, empties or unmounts what it did not make. */
export interface VolumeDriver {
  readonly name: VolumeDriverName;
  /** How long one call may take before it counts as not answering. */
  readonly deadlineMs: number;
  /** Makes the volume where it is missing, and says how it is mounted. @throws NoAnswer, or Error saying what is wrong */
  mount(volume: VolumeId): Promise<VolumeSource>;
  /** Deletes the volume and all that is in it, whoever owns it; one that is not there is success. */
  remove(volume: VolumeId): Promise<void>;
  /** Does it answer? @throws NoAnswer, or Error saying what is wrong */
  probe(): Promise<void>;
}

/** The files did not answer in time: the file system below hangs. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';
}
