// A look by the GPU tool: its listing, slices of divided devices, and what PCI shows. Tells when the tool stops to
// answer, and when it answers again. Owned by gpus.ts.
import type { Log } from '#shared/log.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { DeviceTable } from './device-table.ts';
import { idleLimitMib } from './idle-memory.ts';
import type { NvidiaSmi, WholeDevice } from './nvidia-smi.ts';
import { NO_SLICES } from './nvidia-smi.ts';
import type { GpuRow, Listing } from './parse.ts';
import { isPassedOn, readPciGpus } from './pci.ts';
import type { PciGpu } from './pci.ts';

export interface ToolLookParts {
  readonly table: Pick<DeviceTable, 'all' | 'wholes'>;
  readonly smi: Pick<NvidiaSmi, 'list' | 'slices' | 'withIslands'>;
  /** NVIDIA's functions on the PCI bus. */
  readonly pciGpus: (() => Promise<readonly PciGpu[]>) | undefined;
  readonly metrics: Pick<AgentMetrics, 'gpuProbeDuration' | 'gpuProbeFailures'>;
  readonly log: Log;
}

export interface Looked {
  readonly listing: Listing;
  readonly slices: Awaited<ReturnType<NvidiaSmi['slices']>>;
  readonly pci: readonly PciGpu[];
}

export class ToolLook {
  readonly #parts: ToolLookParts;
  /** Reason of the last failed look: logged when it changes. */
  #failing = '';

  constructor(parts: ToolLookParts) {
    this.#parts = parts;
  }

  /** @param inUse - devices that somebody has, or that are probed */
  async ask(inUse: ReadonlySet<string>): Promise<Looked> {
    const { smi, pciGpus = readPciGpus, metrics } = this.#parts;
    const from = performance.now();
    const pci = await pciGpus();
    const asked = await smi.list(this.#withPci(pci));
    const listing = asked.kind === 'listed' ? { ...asked, rows: await smi.withIslands(asked.rows) } : asked;
    const divided = listing.kind === 'listed' ? listing.rows.filter((row) => row.migEnabled) : [];
    const slices = divided.length > 0 ? await smi.slices(divided, this.#crowded(divided, inUse)) : NO_SLICES;
    metrics.gpuProbeDuration.observe((performance.now() - from) / 1000);
    this.#tell(listing);
    return { listing, slices, pci };
  }

  #tell(listing: Listing): void {
    const { table, metrics, log } = this.#parts;
    const failing = listing.kind === 'failed' ? listing.reason : '';
    // A machine without GPUs lacks the tool: no failure.
    if (listing.kind === 'failed' && (failing !== 'not_found' || table.all().length > 0)) {
      metrics.gpuProbeFailures.inc({ reason: listing.reason });
      if (failing !== this.#failing) log.warn({ reason: listing.reason, text: listing.text }, 'GPUs do not answer');
    } else if (this.#failing !== '' && failing === '') log.info('GPUs answer again');
    this.#failing = failing;
  }

  /** Divided devices whose memory is in use while a slice of theirs is free: it may be on that slice. */
  #crowded(divided: readonly GpuRow[], inUse: ReadonlySet<string>): readonly GpuRow[] {
    const devices = this.#parts.table.all();
    const hasFree = (whole: string): boolean =>
      devices.some(({ uuid, parentUuid }) => parentUuid === whole && !inUse.has(uuid));
    return divided.filter(({ uuid, memoryUsedMib = 0 }) => memoryUsedMib > idleLimitMib(0, 0) && hasFree(uuid));
  }

  /** Devices that the tool can be asked for one by one: those that it has listed, and others that PCI shows. */
  #withPci(pci: readonly PciGpu[]): readonly WholeDevice[] {
    const known = this.#parts.table.wholes();
    const others = pci.filter((one) => !isPassedOn(one) && !known.some(({ busId }) => busId === one.busId));
    return [...known, ...others.map(({ busId }) => ({ uuid: '', busId }))];
  }
}
