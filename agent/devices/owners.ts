// Who has which device now: containers, as the journal and the engine tell, and builds of images. Owned by gpus.ts.
import { modelMatches } from '#shared/domain/gpus.ts';
import type { Device, DeviceTable } from './device-table.ts';
import { leaseRefusal } from './leases.ts';
import type { LeaseOwner, LeaseRefusal } from './leases.ts';

export interface OwnersParts {
  readonly table: Pick<DeviceTable, 'all' | 'leasable'>;
  /** Containers that have devices. */
  readonly containers: () => Iterable<LeaseOwner>;
}

/** A build that has a device keeps it; `busy`: none is free now; `absent`: this machine has none of them. */
export type TakenForBuild = { readonly kind: 'leased'; readonly uuid: string } | { readonly kind: 'busy' | 'absent' };

export class Owners {
  readonly #parts: OwnersParts;
  /** Builds of images that have devices, by the build. */
  readonly #builds = new Map<string, LeaseOwner>();

  constructor(parts: OwnersParts) {
    this.#parts = parts;
  }

  *all(): Iterable<LeaseOwner> {
    yield* this.#parts.containers();
    yield* this.#builds.values();
  }

  /** Devices that somebody has. */
  held(): ReadonlySet<string> {
    return new Set([...this.all()].flatMap((owner) => owner.gpuUuids));
  }

  /** Devices of builds, of which placement knows nothing. */
  inBuild(): ReadonlySet<string> {
    return new Set([...this.#builds.values()].flatMap(({ gpuUuids }) => gpuUuids));
  }

  of({ uuid }: Pick<Device, 'uuid'>): LeaseOwner[] {
    return [...this.all()].filter((owner) => owner.gpuUuids.includes(uuid));
  }

  /** Why that container cannot have those devices; undefined: it can. */
  refusal(wanted: Parameters<typeof leaseRefusal>[0]): LeaseRefusal | undefined {
    return leaseRefusal(wanted, this.all(), (uuid) => this.#parts.table.leasable(uuid));
  }

  // ---- builds -------------------------------------------------------------------------------------------------------

  /** Leases a free device to a build of an image. @param models - in order of preference */
  takeForBuild(buildId: string, models: readonly string[]): TakenForBuild {
    const [had] = this.#builds.get(buildId)?.gpuUuids ?? [];
    if (had !== undefined) return { kind: 'leased', uuid: had };
    const [uuid] = this.freeForBuild(models);
    const isHere = this.#parts.table.all().some((one) => modelMatches(one.model, models));
    if (uuid === undefined) return { kind: isHere ? 'busy' : 'absent' };
    this.holdForBuild(buildId, [uuid]);
    return { kind: 'leased', uuid };
  }

  /** Free devices of these models, in order of preference. */
  freeForBuild(models: readonly string[]): readonly string[] {
    const devices = models.flatMap((model) =>
      this.#parts.table.all().filter((one) => modelMatches(one.model, [model])),
    );
    return devices
      .map(({ uuid }) => uuid)
      .filter((uuid) => this.refusal({ containerId: '', epoch: 0, gpuUuids: [uuid] }) === undefined);
  }

  /** Counts devices as a build's, such as those of a step that an agent before this one began. */
  holdForBuild(buildId: string, gpuUuids: readonly string[]): void {
    this.#builds.set(buildId, { containerId: buildId, epoch: 0, dockerId: undefined, gpuUuids });
  }

  /** Devices of the build. */
  ofBuild(buildId: string): readonly string[] {
    return this.#builds.get(buildId)?.gpuUuids ?? [];
  }

  buildEnded(buildId: string): void {
    this.#builds.delete(buildId);
  }
}
