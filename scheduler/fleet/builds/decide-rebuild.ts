// Whether an image is built again for a container that no machine can take for want of it. Pure.
import type { MachineId } from '#shared/domain/ids.ts';

export interface RebuildInput {
  /** Machines that have the image, are in service, and may run the container by their pools and GPUs. */
  readonly holders: readonly MachineId[];
  /** Homes of the local volumes that the container mounts. */
  readonly homes: readonly MachineId[];
  /** Whether machines can pull the image. */
  readonly isInRegistry: boolean;
}

export type RebuildDecision =
  | { readonly kind: 'none'; readonly why: 'waits_for_holder' | 'in_registry' | 'volumes_apart' }
  /** `only`: the machine that must have the image; undefined: any that may run the container. */
  | { readonly kind: 'build'; readonly only: MachineId | undefined };

export function decideRebuild({ holders, homes, isInRegistry }: RebuildInput): RebuildDecision {
  if (isInRegistry) return { kind: 'none', why: 'in_registry' };
  const [home, ...others] = new Set(homes);
  if (others.length > 0) return { kind: 'none', why: 'volumes_apart' };
  const usable = home === undefined ? holders : holders.filter((holder) => holder === home);
  // A holder that is full, or away for a moment, takes the container later.
  if (usable.length > 0) return { kind: 'none', why: 'waits_for_holder' };
  return { kind: 'build', only: home };
}
