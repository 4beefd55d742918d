// The GPUs that this host should have and does not show, for the checks that an operator runs: by the same rules as the
// agent's, and by the devices that the agent remembers.
import type { AgentConfig } from '../config.ts';
import { excludedGpus, stateDirOf } from '../config.ts';
import { DeviceTable } from '../devices/device-table.ts';
import { NO_SLICES } from '../devices/nvidia-smi.ts';
import type { Listing } from '../devices/parse.ts';
import type { PciGpu } from '../devices/pci.ts';
import { presenceOf } from '../devices/presence.ts';
import { readStored } from '../devices/store.ts';

export const MISSING_GPU_STEP =
  'look at `nvidia-smi`, at the kernel log (`dmesg | grep NVRM`) and at the seating of the card; one that was taken out: `longshore machine gpu forget`; one that this machine does not use: LONGSHORE_EXCLUDED_GPUS with its PCI bus id';

/** @returns a text for each; empty: nothing is missing */
export async function missingGpus(
  config: AgentConfig,
  listing: Listing,
  pci: readonly PciGpu[],
): Promise<readonly string[]> {
  const table = new DeviceTable(excludedGpus(config), () => -1);
  const stored = await readStored(stateDirOf(config)).catch(() => undefined);
  if (stored !== undefined) table.restore(stored.devices, false, stored.probedDriver);
  table.take(listing, NO_SLICES, new Set());
  const known = table.known();
  const { faults } = presenceOf({
    listing,
    pci,
    known,
    // Slices are not asked for here; the check of GPUs has its own warning.
    empty: [],
    isExcluded: (busId) => table.isExcluded('', busId),
    expected: config.LONGSHORE_EXPECTED_GPUS ?? stored?.expected,
  });
  const lost = known.filter(({ isLost }) => isLost);
  return [...lost.map(({ uuid, busId }) => `${uuid} at ${busId} was here before and does not answer`), ...faults];
}
