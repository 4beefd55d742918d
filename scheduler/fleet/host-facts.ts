// The hardware of a host as its agent describes it, cut to the
// stored size. An agent is not trusted with the length of its texts.
import type { HostFacts__Output, Inventory__Output } from '#shared/protocol/generated/messages.ts';
import type { BasePythons } from '../domain/base-pythons.ts';

const MOST = 64;
const MOST_LETTERS = 100;
const MOST_WARNINGS = 32;
const MOST_LETTERS_OF_WARNING = 500;

/** Control characters are removed: the texts are shown on terminals. */
const short = (text: string, most = MOST_LETTERS): string => text.replaceAll(/\p{Cc}+/gu, ' ').slice(0, most);
const most = <T>(list: readonly T[]): readonly T[] => list.slice(0, MOST);

/** Versions of Python as a machine says them, in order: no more than there can be, and nothing else. */
export const boundedPythons = (versions: readonly string[] = []): string[] =>
  [...new Set(versions.filter((version) => /^3\.\d{1,2}$/.test(version)))].slice(0, MOST_PYTHONS).toSorted(byMinor);

const MOST_PYTHONS = 32;
const byMinor = (a: string, b: string): number => Number(a.slice(2)) - Number(b.slice(2));

/** Pythons of base images as a machine's agent told them last. */
export function basePythonsOf(
  inventory: Pick<Inventory__Output, 'basePythons' | 'basePythonsKnown'> | null,
): BasePythons {
  return inventory?.basePythonsKnown === true ? inventory.basePythons : null;
}

/** Host facts cut to their bounds. Pure. */
export function boundedHost(host: HostFacts__Output | null | undefined): HostFacts__Output | null {
  if (host === null || host === undefined) return null;
  return {
    vendor: short(host.vendor),
    product: short(host.product),
    virtualization: short(host.virtualization),
    cpuModel: short(host.cpuModel),
    nics: most(host.nics).map((nic) => ({ ...nic, name: short(nic.name), driver: short(nic.driver) })),
    disks: most(host.disks).map(({ name, kind, bytes, model }) => ({
      name: short(name),
      kind: short(kind),
      bytes,
      model: short(model),
    })),
    numaNodes: most(host.numaNodes).map((node) => ({ ...node, cpus: short(node.cpus) })),
    fileSystems: most(host.fileSystems).map(({ holds, type, device }) => ({
      holds: short(holds),
      type: short(type),
      device: short(device),
    })),
    warnings: host.warnings.slice(0, MOST_WARNINGS).map(({ check, found, remedy }) => ({
      check: short(check),
      found: short(found, MOST_LETTERS_OF_WARNING),
      remedy: short(remedy, MOST_LETTERS_OF_WARNING),
    })),
  };
}

/** The host of a machine as an operator sees it. Pure. @returns null before its agent said anything */
export function hostOf(inventory: Inventory__Output | null) {
  if (inventory === null || !inventory.hostname) return null;
  const { hostname, os, kernel, arch, dockerVersion, gpuDriver, host } = inventory;
  return { hostname, os, kernel, arch, dockerVersion, gpuDriver, ...(host ?? NOTHING) };
}

export type HostView = NonNullable<ReturnType<typeof hostOf>>;

/** Facts of an agent that tells none. */
const NOTHING: HostFacts__Output = {
  vendor: '',
  product: '',
  virtualization: '',
  cpuModel: '',
  nics: [],
  disks: [],
  numaNodes: [],
  fileSystems: [],
  warnings: [],
};
