/**
 * The machine's GPUs: the devices, their health, and their leases. Asks the GPU tool on a timer, reads the kernel's
 * log, has devices probed, checks inside containers that they still reach their devices, and reports changes. Called by
 * the executor (leases), the link (inventory, reports) and the composition root. Must stay true: a device is leased to
 * one container, and only while it is healthy. A device is free again when its container is gone and no process of it
 * is left. A bad device blocks no other, and a call that never answers stops nothing here.
 */
import { sleep } from '#shared/backoff.ts';
import type { GpuAction } from '#shared/domain/gpus.ts';
import { Listeners } from '#shared/listeners.ts';
import type { Log } from '#shared/log.ts';
import type { DeviceSample, Gpu, GpuUse } from '#shared/protocol/generated/messages.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import type { AccessParts } from './access.ts';
import { Access } from './access.ts';
import { DeviceOrders } from './device-orders.ts';
import type { DeviceOrdersParts } from './device-orders.ts';
import { DeviceTable } from './device-table.ts';
import type { Device, GpuSample } from './device-table.ts';
import { DriverErrors } from './driver-errors.ts';
import type { GpuError } from './driver-errors.ts';
import { FreeProof } from './free-proof.ts';
import { deviceSamples, gpuUseOf } from './gpu-use.ts';
import { conflicts } from './leases.ts';
import type { LeaseOwner, LeaseRefusal } from './leases.ts';
import type { NvidiaSmi } from './nvidia-smi.ts';
import { MemoryWatch } from './memory-watch.ts';
import { Owners } from './owners.ts';
import type { TakenForBuild } from './owners.ts';
import type { Listing } from './parse.ts';
import { numaNodeOf } from './pci.ts';
import type { PciGpu } from './pci.ts';
import type { Presence } from './presence.ts';
import { NOTHING_MISSING, presenceOf } from './presence.ts';
import type { ProbesParts } from './probes.ts';
import { Probes } from './probes.ts';
import { degradedWords, isHostSuspect, metricsOf, reportOf } from './shown.ts';
import { DeviceFile } from './store.ts';
import { ToolLook } from './tool-look.ts';
import { COUNTED_FROM_ZERO, CURED_BY_PROBE } from './xid.ts';

const PROBE_MS = 30_000;

export interface GpusParts {
  readonly smi: NvidiaSmi;
  readonly stateDir: string;
  readonly bootId: string;
  /** UUIDs or bus ids that are not offered. */
  readonly excluded: readonly string[];
  /** Number of GPUs that the machine's own setting expects; undefined: its pool says, or nobody. */
  readonly expected?: number | undefined;
  readonly kernelLog: string;
  readonly probeEveryMs?: number;
  readonly proofMs?: number;
  /** NVIDIA's functions on the PCI bus. */
  readonly pciGpus?: (() => Promise<readonly PciGpu[]>) | undefined;
  readonly metrics: AgentMetrics;
  readonly log: Log;
  /** Containers that have devices. */
  readonly leaseOwners: () => Iterable<LeaseOwner>;
  /** Running containers with devices, by the engine's id. */
  readonly running: AccessParts['running'];
  readonly askInside: AccessParts['askInside'];
  readonly probe: ProbesParts['probe'];
  /** Resets a device by a program that may. @throws with its words */
  readonly reset: DeviceOrdersParts['reset'];
  readonly conditions: Pick<Conditions, 'set'>;
  /** Called with the driver's devices after each look. */
  readonly onLook: (uuids: readonly string[]) => void;
}

export class Gpus {
  readonly #parts: GpusParts;
  readonly #table: DeviceTable;
  readonly #owners: Owners;
  readonly #look: ToolLook;
  readonly #file: DeviceFile;
  readonly #errors: DriverErrors;
  readonly #probes: Probes;
  readonly #access: Access;
  readonly #freeProof: FreeProof;
  readonly #memory: MemoryWatch;
  readonly #orders: DeviceOrders;
  readonly #changes = new Listeners<[]>();
  readonly #faulted = new Listeners<[string, string]>();
  readonly #noted = new Listeners<[string, string]>();
  readonly #abort = new AbortController();
  readonly #tasks: Promise<void>[] = [];
  /** Samples that `newSamples` has told. */
  #told: ReadonlyMap<string, GpuSample> = new Map();
  /** Count of faults: an answer of the tool is outdated when a fault came after its question. */
  #faults = 0;
  /** Devices that went out of service with the first look, before the journal was read. */
  #outAtOpen: readonly Device[] = [];
  /** When the first look was asked for. */
  #openedAtMs = 0;
  #areOwnersKnown = false;
  /** Set once the lease owners of devices are known: an error in the kernel's log then finds its container. */
  #started = false;
  #listening = false;
  /** GPUs that the machine's pool expects. */
  #poolExpects: number | undefined;
  #presence: Presence = NOTHING_MISSING;
  /** An earlier agent process has stored results of probes. */
  #hasProbed = false;

  constructor(parts: GpusParts) {
    this.#parts = parts;
    const { stateDir, kernelLog, metrics, conditions, log } = parts;
    this.#table = new DeviceTable(parts.excluded, numaNodeOf);
    this.#owners = new Owners({ table: this.#table, containers: parts.leaseOwners });
    this.#look = new ToolLook({ table: this.#table, smi: parts.smi, pciGpus: parts.pciGpus, metrics, log });
    this.#errors = new DriverErrors({ kernelLog, metrics, conditions, log, onError: (error) => this.#onError(error) });
    this.#file = new DeviceFile(stateDir, log, () => ({
      version: 1,
      bootId: parts.bootId,
      ...this.#errors.stored(),
      devices: this.#table.stored(),
      probedDriver: this.#table.driver,
      idle: this.#memory.stored(),
      rests: this.#probes.prober.stored(),
      ...(this.#poolExpects === undefined ? {} : { expected: this.#poolExpects }),
    }));
    this.#access = new Access({
      running: parts.running,
      askInside: parts.askInside,
      onLost: (containerId) => {
        log.error({ containerId }, 'a container has lost its GPUs');
        this.#faulted.tell(containerId, 'the container has lost access to its GPU (NVML: Unknown Error)');
      },
      log,
    });
    this.#probes = new Probes({
      table: this.#table,
      held: () => this.#owners.held(),
      probe: parts.probe,
      conditions: parts.conditions,
      metrics,
      log,
      onResult: (changed) => {
        if (changed) this.#changed();
        else this.#tellConditions();
      },
    });
    this.#memory = new MemoryWatch({
      table: this.#table,
      smi: parts.smi,
      inUse: () => new Set([...this.#owners.held(), ...this.#probes.prober.running]),
      probedAtMs: (uuid) => this.#probes.prober.endedAtMs(uuid),
      onIdle: () => this.#file.changed(),
      log,
    });
    this.#orders = new DeviceOrders({
      table: this.#table,
      inUse: () => new Set([...this.#owners.held(), ...this.#probes.prober.running]),
      memory: this.#memory,
      prober: this.#probes.prober,
      reset: parts.reset,
      onChange: () => this.#changed(),
      log,
    });
    this.#freeProof = new FreeProof({
      table: this.#table,
      smi: parts.smi,
      proofMs: parts.proofMs,
      crowded: (uuids) => this.#memory.released(uuids),
      isStuck: (uuid) => this.#probes.isStuck(uuid),
      log,
      signal: this.#abort.signal,
    });
    parts.metrics.xidsFromZero = COUNTED_FROM_ZERO;
    parts.metrics.onCollectGpus(() => this.#collect());
  }

  /** Told when a device's state or the list of devices has changed. */
  onChange(listener: () => void): void {
    this.#changes.add(listener);
  }

  /** Carries out what an operator wants of a GPU, and stores it. @throws Error with a text for people */
  async order(uuid: string, action: GpuAction): Promise<void> {
    await this.#orders.carryOut(uuid, action);
    await this.#file.written();
  }

  /** Takes the number of GPUs that the machine's pool expects; it counts from the next look on. */
  poolExpects(count: number | undefined): void {
    if (count === this.#poolExpects) return;
    this.#poolExpects = count;
    this.#file.changed();
  }

  /** Told when the container can no longer use its devices. */
  onFault(listener: (containerId: string, message: string) => void): void {
    this.#faulted.add(listener);
  }

  /** Told of a note for the container's own log. */
  onNote(listener: (containerId: string, message: string) => void): void {
    this.#noted.add(listener);
  }

  /** Restores the stored state, then asks the tool once, within its deadline. */
  async open(): Promise<void> {
    const stored = await this.#file.read();
    const booted = stored !== undefined && stored.bootId !== this.#parts.bootId;
    this.#poolExpects = stored?.expected;
    if (!booted) this.#probes.prober.restore(stored?.rests);
    this.#hasProbed = (stored?.probedDriver ?? '') !== '';
    if (stored !== undefined) this.#table.restore(stored.devices, booted, stored.probedDriver);
    this.#memory.restore(stored?.idle);
    this.#errors.restore(booted ? { sequence: 0, savedAtMs: 0, xids: {} } : stored);
    this.#openedAtMs = performance.now();
    // Who has which device is known once the journal is read; after a boot no container is left.
    this.#outAtOpen = await this.#probe(booted ? undefined : this.#table.all().map(({ uuid }) => uuid));
    this.#tellConditions();
  }

  /**
   * Applies the journal: containers whose device went out of service while no agent ran have failed. Devices that two
   * containers claim are quarantined. Then the memory that the first look has read is judged.
   */
  async rebuild(): Promise<void> {
    this.#areOwnersKnown = true;
    for (const device of this.#outAtOpen) this.#failLeaseOwners(device, device.health.why);
    this.#outAtOpen = [];
    if (!this.#hasProbed) this.#table.trust(this.#owners.held());
    const claimed = conflicts(this.#owners.all());
    const before = this.#table.fingerprint();
    if (claimed.size > 0) {
      this.#parts.log.error({ gpuUuids: [...claimed] }, 'containers claim one GPU: all of theirs are quarantined');
      for (const uuid of claimed) this.#table.quarantine(uuid, [], 'two containers claim it');
    }
    await this.#memory.looked(this.#openedAtMs, this.#owners.held());
    if (this.#table.fingerprint() !== before) this.#changed();
  }

  start(): void {
    this.#started = true;
    this.#tasks.push(this.#keepProbing());
    this.#listen();
    this.#probes.prober.start();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#probes.prober.stop();
    await Promise.allSettled(this.#tasks);
    // Writes the position in the kernel's log, which moves with each line and is otherwise stored only with an error.
    if (this.#table.all().length > 0) this.#file.changed();
    await this.#file.written();
  }

  get driver(): string {
    return this.#table.driver;
  }

  /** The devices as reported to the scheduler. */
  report(): Gpu[] {
    return reportOf(this.#table.all(), this.#owners.inBuild());
  }

  /** Summed use of these devices as of the last look, without a call of the tool; undefined when there are none. */
  useOf(gpuUuids: readonly string[]): GpuUse | undefined {
    return gpuUseOf(gpuUuids.map((uuid) => this.#table.get(uuid)));
  }

  /** Samples of all devices since the last call; empty: the tool was not asked meanwhile. */
  newSamples(): DeviceSample[] {
    const devices = this.#table.all();
    const isNew = devices.some(({ uuid, sample }) => sample !== undefined && this.#told.get(uuid) !== sample);
    if (!isNew) return [];
    this.#told = new Map(
      devices.flatMap(({ uuid, sample }) => (sample === undefined ? [] : [[uuid, sample] as const])),
    );
    return deviceSamples(devices);
  }

  #tellConditions(): void {
    const devices = this.#table.all();
    const words = degradedWords(devices, this.#presence.faults);
    this.#parts.conditions.set('GpuDegraded', words !== '', words);
    this.#parts.conditions.set('SuspectHost', isHostSuspect(devices));
    this.#probes.tellConditions();
  }

  // ---- leases -------------------------------------------------------------------------------------------------------

  /** Why that container cannot have those devices. The caller journals the lease in the same turn of the loop. */
  refusal(wanted: {
    readonly containerId: string;
    readonly epoch: number;
    readonly gpuUuids: readonly string[];
  }): LeaseRefusal | undefined {
    if (wanted.gpuUuids.length === 0) return undefined;
    const refusal = this.#owners.refusal(wanted);
    if (refusal !== undefined) this.#parts.metrics.gpuLeaseRefusals.inc({ reason: refusal.reason });
    return refusal;
  }

  /**
   * Looks at the memory of devices that are about to be leased, where the last answer is not current: a device whose
   * memory is in use is then refused. Costs at most five seconds.
   */
  async beforeLease(gpuUuids: readonly string[]): Promise<void> {
    if (await this.#memory.beforeLease(gpuUuids)) this.#changed();
  }

  /**
   * Waits, after the container's removal, until no process of it is left on its devices, which are then free. Devices
   * without proof in time are quarantined until it comes.
   * @param dockerId - undefined: the engine never had the container
   */
  async release(gpuUuids: readonly string[], dockerId: string | undefined): Promise<void> {
    if (gpuUuids.length === 0 || dockerId === undefined) return;
    if (!(await this.#freeProof.release(gpuUuids, dockerId))) return;
    this.#changed();
    await this.#file.written();
  }

  /** As Owners: placement hears that the device of a build is not offered. */
  takeForBuild(buildId: string, models: readonly string[]): TakenForBuild {
    const taken = this.#owners.takeForBuild(buildId, models);
    if (taken.kind === 'leased') this.#changed();
    return taken;
  }

  freeForBuild(models: readonly string[]): readonly string[] {
    return this.#owners.freeForBuild(models);
  }

  holdForBuild(buildId: string, gpuUuids: readonly string[]): void {
    this.#owners.holdForBuild(buildId, gpuUuids);
    this.#changed();
  }

  /** The containers of the build are gone: its devices are free once no process of these is left on them. */
  async releaseFromBuild(buildId: string, dockerIds: readonly string[]): Promise<void> {
    const gpuUuids = this.#owners.ofBuild(buildId);
    if (gpuUuids.length === 0) return;
    try {
      for (const dockerId of dockerIds) await this.release(gpuUuids, dockerId);
    } finally {
      this.#owners.buildEnded(buildId);
      this.#changed();
    }
  }

  // ---- looking ------------------------------------------------------------------------------------------------------

  async #keepProbing(): Promise<void> {
    const { signal } = this.#abort;
    while (await sleep((this.#parts.probeEveryMs ?? PROBE_MS) * (0.9 + Math.random() * 0.2), signal)) {
      // A look keeps devices open, and the reset of one is refused then.
      if (this.#orders.isResetting) continue;
      try {
        await this.#probe();
        this.#access.round();
      } catch (error) {
        this.#parts.log.error({ err: error }, 'GPUs could not be looked at');
      }
    }
  }

  /**
   * @param mayBeHeld - devices that may have a container; undefined: those that have one
   * @returns devices that went out of service with this look
   */
  async #probe(mayBeHeld?: readonly string[]): Promise<readonly Device[]> {
    const from = performance.now();
    const inUse = new Set([...this.#owners.held(), ...this.#probes.prober.running]);
    const faults = this.#faults;
    const { listing, slices, pci } = await this.#look.ask(inUse);
    const held = this.#owners.held();
    const before = `${this.#table.fingerprint()} ${this.#presence.faults.join()}`;
    const answer = faults === this.#faults ? listing : withoutRecovery(listing);
    const out = this.#table.take(answer, slices, held, mayBeHeld === undefined ? held : new Set(mayBeHeld));
    for (const device of out) this.#failLeaseOwners(device, device.health.why);
    await this.#freeProof.check(held);
    // Who has a device is known once the journal is read: the memory of the first look is judged then.
    if (this.#areOwnersKnown) await this.#memory.looked(from, inUse);
    this.#parts.onLook(this.#table.all().flatMap(({ uuid, health }) => (health.state === 'lost' ? [] : [uuid])));
    this.#presence = presenceOf({
      listing,
      pci,
      known: this.#table.known(),
      empty: this.#table.empty,
      isExcluded: (busId) => this.#table.isExcluded('', busId),
      expected: this.#parts.expected ?? this.#poolExpects,
    });
    if (`${this.#table.fingerprint()} ${this.#presence.faults.join()}` !== before) this.#changed();
    if (this.#table.all().length > 0) this.#listen();
    this.#probes.looked();
    return out;
  }

  #listen(): void {
    if (!this.#started || this.#listening || this.#abort.signal.aborted || this.#table.all().length === 0) return;
    this.#listening = true;
    this.#tasks.push(this.#errors.follow(this.#abort.signal));
  }

  #onError(error: GpuError): void {
    const { metrics } = this.#parts;
    const { meaning, why, xid, busId, asksRecovery } = error;
    // A reset affects all slices of a device: none of them gets new work, even if another one had the error.
    if (meaning === 'fatal' || meaning === 'drain') {
      this.#faults += 1;
      for (const { uuid } of this.#table.at(busId)) {
        this.#table.event(uuid, { kind: 'broken', why, asked: asksRecovery, probeCures: CURED_BY_PROBE.has(xid) });
        this.#probes.prober.faulted(uuid);
      }
    }
    for (const device of this.#table.atInstance(busId, error.instance)) {
      metrics.gpuXidErrors.inc({ gpu_uuid: device.uuid, xid: String(xid) });
      if (meaning === 'fatal' || meaning === 'drain' || meaning === 'container')
        metrics.gpuFaults.inc({ gpu_uuid: device.uuid, effect: meaning });
      for (const leaseOwner of this.#owners.of(device))
        this.#noted.tell(leaseOwner.containerId, `GPU ${device.uuid}: ${why}`);
      if (meaning === 'fatal' || meaning === 'container') this.#failLeaseOwners(device, why);
      if (meaning === 'container') this.#table.event(device.uuid, { kind: 'doubted', why });
    }
    this.#changed();
    this.#probes.prober.check();
  }

  #failLeaseOwners(device: Device, why: string): void {
    for (const { containerId } of this.#owners.of(device))
      this.#faulted.tell(containerId, `GPU ${device.uuid}: ${why}`);
  }

  #changed(): void {
    this.#file.changed();
    this.#tellConditions();
    this.#changes.tell();
  }

  #collect(): void {
    const { metrics } = this.#parts;
    metrics.setGpuCounts(this.#presence);
    metrics.setGpus(metricsOf(this.#table.all(), this.#owners.all(), (uuid) => this.#memory.aboveBytes(uuid)));
  }
}

const withoutRecovery = (listing: Listing): Listing =>
  listing.kind === 'listed'
    ? { ...listing, rows: listing.rows.map((row) => ({ ...row, recovery: undefined })) }
    : listing;
