// Leases of devices, derived from the journal and the engine's containers. No separate record exists that could differ.
// Pure.
import { isGpuUuid } from './parse.ts';

/** A container that has devices, or had them and is not proven gone. */
export interface LeaseOwner {
  readonly containerId: string;
  readonly epoch: number;
  readonly dockerId: string | undefined;
  readonly gpuUuids: readonly string[];
  /** Deployment, for people; empty: none. */
  readonly deploymentId?: string;
}

export interface LeaseRefusal {
  readonly reason: 'gpu_leased' | 'gpu_unknown' | 'gpu_not_healthy' | 'gpu_conflict';
  readonly message: string;
}

export interface LeasableDevice {
  readonly state: string;
  readonly why: string;
  /** Devices that share its silicon: a whole device and its slices are never leased together. */
  readonly sharesWith: readonly string[];
}

/** Why that container cannot have those devices; undefined: it can. */
export function leaseRefusal(
  wanted: { readonly containerId: string; readonly epoch: number; readonly gpuUuids: readonly string[] },
  leaseOwners: Iterable<LeaseOwner>,
  deviceOf: (uuid: string) => LeasableDevice | undefined,
): LeaseRefusal | undefined {
  const taken = new Map<string, LeaseOwner>();
  for (const leaseOwner of leaseOwners) {
    if (leaseOwner.containerId === wanted.containerId && leaseOwner.epoch === wanted.epoch) continue;
    for (const uuid of leaseOwner.gpuUuids) taken.set(uuid, leaseOwner);
  }
  const seen = new Set<string>();
  for (const uuid of wanted.gpuUuids) {
    const device = deviceOf(uuid);
    if (device === undefined || !isGpuUuid(uuid))
      return { reason: 'gpu_unknown', message: `spec.gpu_uuids: this machine offers no GPU ${JSON.stringify(uuid)}` };
    if (seen.has(uuid)) return { reason: 'gpu_conflict', message: `spec.gpu_uuids: ${uuid} is named twice` };
    seen.add(uuid);
    const other = taken.get(uuid) ?? device.sharesWith.map((one) => taken.get(one)).find((one) => one !== undefined);
    if (other !== undefined)
      return { reason: 'gpu_leased', message: `GPU ${uuid} is leased to ${other.containerId} (epoch ${other.epoch})` };
    if (device.state !== 'healthy')
      return { reason: 'gpu_not_healthy', message: `GPU ${uuid} is ${device.state}: ${device.why}` };
  }
  return undefined;
}

/** Devices of containers with conflicting claims: none of them is leased before it is proved free. */
export function conflicts(leaseOwners: Iterable<LeaseOwner>): ReadonlySet<string> {
  const claims = new Map<string, LeaseOwner[]>();
  for (const leaseOwner of leaseOwners)
    for (const uuid of new Set(leaseOwner.gpuUuids)) claims.set(uuid, [...(claims.get(uuid) ?? []), leaseOwner]);
  const found = new Set<string>();
  for (const list of claims.values())
    if (list.length > 1) for (const leaseOwner of list) for (const uuid of leaseOwner.gpuUuids) found.add(uuid);
  return found;
}
