// Which GPUs a host should have and does not show: bus ids that the tool names as broken, functions on PCI that the
// driver does not list, and fewer devices than an operator expects. Pure. Lost devices are in the table by themselves.
import type { Listing } from './parse.ts';
import type { PciGpu } from './pci.ts';
import { isPassedOn } from './pci.ts';

/** A whole device that a look has shown, or the table knows. */
export interface KnownDevice {
  readonly uuid: string;
  readonly busId: string;
  readonly isLost: boolean;
}

export interface PresenceFacts {
  readonly listing: Listing;
  readonly pci: readonly PciGpu[];
  /** Whole devices: of the table, excluded ones, and divided ones without slices. */
  readonly known: readonly KnownDevice[];
  /** Whole devices with MIG on and without a slice. */
  readonly empty: readonly string[];
  /** Whether the operator excludes the device at that bus id by a setting. */
  readonly isExcluded: (busId: string) => boolean;
  /** Number of whole devices that the operator expects; undefined: none is set. */
  readonly expected: number | undefined;
}

export interface Presence {
  /** Whole devices that are there. */
  readonly present: number;
  readonly expected: number | undefined;
  /** GPUs that the host has and that nobody can name by a UUID. */
  readonly unlisted: number;
  /** For people; empty: nothing is missing. */
  readonly faults: readonly string[];
}

export const NOTHING_MISSING: Presence = { present: 0, expected: undefined, unlisted: 0, faults: [] };

export function presenceOf({ listing, pci, known, empty, isExcluded, expected }: PresenceFacts): Presence {
  const isKnown = (busId: string): boolean => known.some((device) => device.busId === busId) || isExcluded(busId);
  const broken = listing.kind === 'unknown_field' ? [] : listing.broken.filter((busId) => !isKnown(busId));
  // A host without the tool is none that serves GPUs, whatever its graphics card.
  const hasTool = listing.kind !== 'failed' || listing.reason !== 'not_found' || known.length > 0;
  const unlisted = hasTool
    ? pci.filter((one) => !isPassedOn(one) && !isKnown(one.busId) && !broken.includes(one.busId))
    : [];
  const present = known.filter(({ isLost }) => !isLost).length;
  const faults = [
    ...broken.map((busId) => `the driver cannot reach the GPU at ${busId}`),
    ...empty.map((uuid) => `GPU ${uuid} has MIG on and no slice: divide it again, or turn MIG off`),
    ...unlisted.map(({ busId }) => `the driver does not list the GPU that PCI shows at ${busId}`),
    ...(expected !== undefined && present < expected ? [`${present} of ${expected} expected GPUs are here`] : []),
  ];
  return { present, expected, unlisted: broken.length + unlisted.length, faults };
}
