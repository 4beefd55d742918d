// NVIDIA's graphics functions on the PCI bus, as the kernel enumerated them: they show a GPU that the driver does not.
import { readFileSync } from 'node:fs';
import { readFile, readdir, readlink } from 'node:fs/promises';
import { basename, join } from 'node:path';

const DEVICES = '/sys/bus/pci/devices';
const NVIDIA = '0x10de';
/** Display controllers: VGA and 3D. Audio functions and NVSwitches have other classes. */
const DISPLAY = /^0x030[02]/;

export interface PciGpu {
  /** As in /sys: `0000:3b:00.0`. */
  readonly busId: string;
  /** Name of the kernel's driver for it; empty: none. */
  readonly driver: string;
}

/**
 * Reads files of the kernel alone, so a dead device delays nothing. Empty where the host has no PCI.
 * @param root - for tests
 */
export async function readPciGpus(root = DEVICES): Promise<readonly PciGpu[]> {
  const names = await readdir(root).catch((): string[] => []);
  const text = (name: string, file: string): Promise<string> =>
    readFile(join(root, name, file), 'utf8').then(
      (read) => read.trim().toLowerCase(),
      () => '',
    );
  const found = await Promise.all(
    names.map(async (name): Promise<PciGpu[]> => {
      if ((await text(name, 'vendor')) !== NVIDIA || !DISPLAY.test(await text(name, 'class'))) return [];
      // A virtual function belongs to the device that it is a part of.
      if (await readlink(join(root, name, 'physfn')).then(Boolean, () => false)) return [];
      const driver = await readlink(join(root, name, 'driver')).catch(() => '');
      return [{ busId: name.toLowerCase(), driver: basename(driver) }];
    }),
  );
  return found.flat().toSorted((a, b) => (a.busId < b.busId ? -1 : 1));
}

/** Whether the function is passed to a virtual machine: its GPU is not for this host's programs. */
export const isPassedOn = ({ driver }: PciGpu): boolean => /vfio|^pci-stub$|^xen-pciback$/.test(driver);

/** NUMA node of a device by its bus id; -1: the host does not say. */
export function numaNodeOf(busId: string): number {
  try {
    const node = Number(readFileSync(`/sys/bus/pci/devices/${busId}/numa_node`, 'utf8').trim());
    return Number.isInteger(node) ? node : -1;
  } catch {
    return -1;
  }
}
