/** The devices of this machine as data: the tool's listing, with each device's health. Owned by gpus.ts. */
import type { GpuState } from '#shared/domain/gpus.ts';
import { GPU_STATES, gpuModelOf } from '#shared/domain/gpus.ts';
import type { DeviceHealth, HealthEvent } from './health.ts';
import { HEALTHY, UNPROBED, healthAfter } from './health.ts';
import { idleLimitMib } from './idle-memory.ts';
import type { LeasableDevice } from './leases.ts';
import type { GpuRow, Listing, MigSlice } from './parse.ts';
import { busIdOf, recoveryOf } from './parse.ts';
import type { StoredDevice } from './store.ts';
import type { KnownDevice } from './presence.ts';
import type { Slices, WholeDevice } from './nvidia-smi.ts';

export interface GpuSample {
  readonly utilizationRatio: number | undefined;
  readonly memoryUsedBytes: number | undefined;
  readonly temperatureCelsius: number | undefined;
  readonly powerWatts: number | undefined;
  readonly slowed: boolean | undefined;
}

export interface Device {
  readonly uuid: string;
  readonly model: string;
  readonly memoryBytes: number;
  /** Compute capability, such as `8.9`; empty or absent: not known. */
  readonly computeCap?: string | undefined;
  /** NVLink island, from 1 on; absent: none is known. */
  readonly nvlinkIsland?: number | undefined;
  readonly busId: string;
  readonly index: number;
  readonly numaNode: number;
  /** UUID of the device that a MIG slice belongs to; empty for a whole device. */
  readonly parentUuid: string;
  /** GPU instance of a MIG slice; undefined: a whole device, or the tool does not say. */
  readonly instance?: number | undefined;
  readonly health: DeviceHealth;
  /** An operator keeps the device out until it is returned. */
  readonly excluded: boolean;
  /** Containers whose processes may still use the device, until that is disproved. */
  readonly lastDockerIds: readonly string[];
  readonly sample: GpuSample | undefined;
  /** Memory in use as of the last look, also of a slice where that was asked for; undefined: not known. */
  readonly usedMib: number | undefined;
}

const MAX_DEVICES = 256;
const MIB = 1024 * 1024;

export class DeviceTable {
  driver = '';
  readonly #devices = new Map<string, Device>();
  /** Bus ids of whole devices in the last listing, by UUID: excluded ones and divided ones without slices, too. */
  #listedAt: ReadonlyMap<string, string> = new Map();
  /** Devices that may have a container, and that the last answer did not show: the next one decides. */
  #omitted: ReadonlySet<string> = new Set();
  /** Devices that a boot or a fault took: a slice among them is not forgotten when its GPU is listed without it. */
  readonly #awaited = new Set<string>();
  /** Divided whole devices that have no slice, as of the last look. */
  #empty: readonly string[] = [];
  /** State of NVLink through switches, by whole device, as of the last look. */
  readonly #fabrics = new Map<string, string>();
  readonly #excluded: ReadonlySet<string>;
  readonly #numaNodeOf: (busId: string) => number;

  constructor(excluded: readonly string[], numaNodeOf: (busId: string) => number) {
    this.#excluded = new Set(excluded.map((one) => busIdOf(one) || one.toLowerCase()));
    this.#numaNodeOf = numaNodeOf;
  }

  get(uuid: string): Device | undefined {
    return this.#devices.get(uuid);
  }

  all(): readonly Device[] {
    return [...this.#devices.values()].toSorted((a, b) => a.index - b.index || (a.uuid < b.uuid ? -1 : 1));
  }

  /** Devices with that bus id, in any PCI function of it. */
  at(busId: string): readonly Device[] {
    const slot = busId.replace(/\.[0-9a-f]$/, '');
    return this.all().filter((device) => device.busId.replace(/\.[0-9a-f]$/, '') === slot);
  }

  /** Slices of that GPU instance among those with that bus id; all of them where the instance is unknown. */
  atInstance(busId: string, instance: number | undefined): readonly Device[] {
    const all = this.at(busId);
    const named = all.filter((device) => instance !== undefined && device.instance === instance);
    return named.length > 0 ? named : all;
  }

  leasable(uuid: string): LeasableDevice | undefined {
    const device = this.#devices.get(uuid);
    if (device === undefined) return undefined;
    const { state, why } = device.health;
    const sharesWith =
      device.parentUuid === ''
        ? this.all()
            .filter((one) => one.parentUuid === uuid)
            .map((one) => one.uuid)
        : [device.parentUuid];
    return device.excluded ? { state: 'excluded', why: EXCLUDED, sharesWith } : { state, why, sharesWith };
  }

  /** A text that changes with every reported or stored field. */
  fingerprint(): string {
    return JSON.stringify(
      this.all().map(
        ({ sample: _sample, usedMib: _usedMib, lastDockerIds, health: { missed: _missed, ...health }, ...rest }) => [
          rest,
          health,
          health.unproven ? lastDockerIds : [],
        ],
      ),
    );
  }

  exclude(uuid: string, excluded: boolean): void {
    const device = this.#devices.get(uuid);
    if (device !== undefined) this.#devices.set(uuid, { ...device, excluded });
  }

  forget(uuid: string): void {
    this.#devices.delete(uuid);
    this.#awaited.delete(uuid);
  }

  /** Whole devices with MIG on and without a slice, which serve nothing. */
  get empty(): readonly string[] {
    return this.#empty;
  }

  /** Whole devices that are reset together with that one: those on its NVLink fabric, else itself. */
  resetTogether(whole: string): readonly string[] {
    const isLinked = (uuid: string): boolean => (this.#fabrics.get(uuid) ?? '') !== '';
    return isLinked(whole) ? this.wholes().flatMap(({ uuid }) => (isLinked(uuid) ? [uuid] : [])) : [whole];
  }

  event(uuid: string, event: HealthEvent): void {
    const device = this.#devices.get(uuid);
    if (device !== undefined && (event.kind === 'absent' || event.kind === 'booted')) this.#awaited.add(uuid);
    if (device !== undefined) this.#devices.set(uuid, { ...device, health: healthAfter(device.health, event) });
  }

  /**
   * Notes the last container when no process of it is visible on the device. A device that is being lost shows no
   * process either, so the id stays until the tool lists the device again.
   */
  released(uuid: string, dockerId: string): void {
    const device = this.#devices.get(uuid);
    if (device !== undefined)
      this.#devices.set(uuid, { ...device, lastDockerIds: [...device.lastDockerIds, dockerId] });
  }

  /** Takes a device out of service until it is proved free: processes of those containers may still use it. */
  quarantine(uuid: string, dockerIds: readonly string[], why: string): void {
    this.event(uuid, { kind: 'unproven', why });
    const device = this.#devices.get(uuid);
    if (device !== undefined)
      this.#devices.set(uuid, { ...device, lastDockerIds: [...new Set([...device.lastDockerIds, ...dockerIds])] });
  }

  /** The whole devices, those of slices included, as the tool can be asked for them. */
  wholes(): readonly WholeDevice[] {
    const found = new Map(this.all().map(({ uuid, parentUuid, busId }) => [parentUuid || uuid, busId]));
    return [...found].map(([uuid, busId]) => ({ uuid, busId }));
  }

  /** Every whole device that is known: those in the table, and those that the last listing showed beside them. */
  known(): readonly KnownDevice[] {
    const isLost = (whole: string): boolean =>
      this.all().some((one) => (one.parentUuid || one.uuid) === whole && one.health.state === 'lost');
    const places = new Map([...this.wholes().map(({ uuid, busId }) => [uuid, busId] as const), ...this.#listedAt]);
    return [...places].map(([uuid, busId]) => ({ uuid, busId, isLost: !this.#listedAt.has(uuid) && isLost(uuid) }));
  }

  /** Whether a setting excludes that device. */
  isExcluded(uuid: string, busId: string): boolean {
    return this.#excluded.has(uuid.toLowerCase()) || (busId !== '' && this.#excluded.has(busId));
  }

  /** The whole devices that these are, or are part of. */
  wholesOf(uuids: readonly string[]): readonly WholeDevice[] {
    const wanted = new Set(uuids.map((uuid) => this.#devices.get(uuid)?.parentUuid || uuid));
    return this.wholes().filter(({ uuid }) => wanted.has(uuid));
  }

  /** UUIDs of devices that share its silicon: a whole device and its slices. */
  sharers(uuid: string): readonly string[] {
    return this.leasable(uuid)?.sharesWith ?? [];
  }

  /**
   * Takes in an answer of the tool.
   * @param slices - slices of divided devices
   * @param held - devices of containers, which are never forgotten
   * @param mayBeHeld - devices that are lost only when two answers in a row do not show them
   * @returns devices that became unusable with this answer: out of reach, or in need of a reset
   */
  take(
    listing: Listing,
    slices: Slices,
    held: ReadonlySet<string>,
    mayBeHeld: ReadonlySet<string> = held,
  ): readonly Device[] {
    const before = new Map(this.#devices);
    // Samples are dropped first: an answer that omits a device must not leave its old use in place.
    for (const device of before.values())
      this.#devices.set(device.uuid, { ...device, sample: undefined, usedMib: undefined });
    if (listing.kind === 'listed') this.#listed(listing, slices, held, mayBeHeld);
    else if (listing.kind === 'failed') {
      this.#listedAt = new Map([...this.#listedAt].filter(([, busId]) => !listing.broken.includes(busId)));
      for (const device of this.all()) {
        const gone = listing.broken.includes(device.busId);
        this.event(device.uuid, { kind: gone ? 'absent' : 'missed', why: gone ? UNREACHABLE : listing.text });
      }
    }
    const needReset = new Set(
      listing.kind === 'listed'
        ? listing.rows.filter((row) => recoveryOf(row.recovery ?? '') === 'reset').map((row) => row.uuid)
        : [],
    );
    return this.all().filter(({ uuid, parentUuid, health: { state } }) => {
      if (before.get(uuid)?.health.state === state) return false;
      return state === 'lost' || (state === 'unhealthy' && (needReset.has(uuid) || needReset.has(parentUuid)));
    });
  }

  #listed(
    listing: Extract<Listing, { kind: 'listed' }>,
    slices: Slices,
    held: ReadonlySet<string>,
    mayBeHeld: ReadonlySet<string>,
  ): void {
    this.#replaced(listing.rows, held);
    const silent = [...this.#listedAt].filter(([, busId]) => listing.silent?.has(busId) === true);
    this.#listedAt = new Map([...silent, ...listing.rows.map(({ uuid, busId }) => [uuid, busId] as const)]);
    const seen = new Set<string>();
    const divided = new Map<string, GpuRow>();
    /** Divided devices with a slice that was not known: their division is another one. */
    const redivided = new Set<string>();
    for (const row of listing.rows) {
      this.#fabricIs(row);
      if (row.driver !== '') this.#driverIs(row.driver);
      if (this.isExcluded(row.uuid, row.busId)) continue;
      if (row.migEnabled) divided.set(row.uuid, row);
      else if (this.#put(rowDevice(row), row.recovery, sampleOf(row), row.memoryUsedMib)) seen.add(row.uuid);
    }
    for (const slice of slices.found) {
      const row = divided.get(slice.parentUuid);
      if (row !== undefined && !this.#devices.has(slice.uuid)) redivided.add(row.uuid);
      if (row === undefined || this.isExcluded(slice.uuid, '')) continue;
      if (this.#put(sliceDevice(row, slice), row.recovery, undefined, usedBySlice(row, slice))) seen.add(slice.uuid);
    }
    const hasSlice = (whole: string): boolean => slices.found.some(({ parentUuid }) => parentUuid === whole);
    this.#empty = [...divided.keys()].filter((whole) => !slices.silent.has(whole) && !hasSlice(whole));
    const omitted = new Set<string>();
    for (const device of this.all()) {
      const { uuid, busId, parentUuid } = device;
      if (seen.has(uuid)) continue;
      const isDivided = divided.has(uuid) || divided.has(parentUuid);
      const isWhole = listing.rows.some((row) => row.uuid === parentUuid && !row.migEnabled);
      const isTaken = this.#awaited.has(uuid) && parentUuid !== '' && !redivided.has(parentUuid);
      if (this.isExcluded(uuid, busId) && !held.has(uuid)) this.forget(uuid);
      else if (listing.broken.includes(busId)) this.event(uuid, { kind: 'absent', why: UNREACHABLE });
      else if ((listing.silent?.has(busId) ?? listing.unreadable > 0) || slices.silent.has(parentUuid))
        this.event(uuid, { kind: 'missed', why: 'the GPU tool gave no readable answer about it' });
      else if ((isDivided || isWhole) && isTaken) this.event(uuid, { kind: 'absent', why: UNDIVIDED });
      // The operator changed the division: a device that no container holds exists no more.
      else if ((isDivided || isWhole) && !held.has(uuid)) this.forget(uuid);
      else if (mayBeHeld.has(uuid) && !this.#omitted.has(uuid)) {
        omitted.add(uuid);
        this.event(uuid, { kind: 'missed', why: UNLISTED, omitted: true });
      } else this.event(uuid, { kind: 'absent', why: UNLISTED });
    }
    this.#omitted = omitted;
  }

  /** Forgets lost devices whose place on the bus another device has: the card was replaced. */
  #replaced(rows: readonly GpuRow[], held: ReadonlySet<string>): void {
    const known = new Set(this.wholes().map(({ uuid }) => uuid));
    const taken = new Set(rows.filter(({ uuid }) => !known.has(uuid)).map(({ busId }) => busId));
    for (const { uuid, busId, health } of this.all())
      if (health.state === 'lost' && taken.has(busId) && !held.has(uuid)) this.forget(uuid);
  }

  /**
   * Notes the state of the switch fabric. After its manager stopped or restarted, programs may fail with error 802, so
   * a probe decides.
   */
  #fabricIs({ uuid, fabric }: GpuRow): void {
    if (fabric !== '' && fabric !== FABRIC_WORKS && fabric !== this.#fabrics.get(uuid))
      for (const device of this.all())
        if (device.uuid === uuid || device.parentUuid === uuid)
          this.event(device.uuid, { kind: 'doubted', why: `the state of its fabric is: ${fabric}` });
    if (this.#fabrics.size < MAX_DEVICES || this.#fabrics.has(uuid)) this.#fabrics.set(uuid, fabric);
  }

  /** Notes the driver's version: a probe's result holds only for the driver that it ran with. */
  #driverIs(driver: string): void {
    if (this.driver !== '' && this.driver !== driver)
      for (const { uuid } of this.all()) this.event(uuid, { kind: 'new_driver' });
    this.driver = driver;
  }

  #put(
    facts: DeviceFacts,
    recovery: string | undefined,
    sample: GpuSample | undefined,
    usedMib: number | undefined,
  ): boolean {
    const known = this.#devices.get(facts.uuid);
    if (known === undefined && this.#devices.size >= MAX_DEVICES) return false;
    const health = healthAfter(known?.health ?? UNPROBED, { kind: 'listed', recovery });
    const numaNode = known?.numaNode ?? this.#numaNodeOf(facts.busId);
    const lastDockerIds = health.unproven ? (known?.lastDockerIds ?? []) : [];
    const excluded = known?.excluded ?? false;
    this.#awaited.delete(facts.uuid);
    this.#devices.set(facts.uuid, { ...facts, numaNode, health, excluded, lastDockerIds, sample, usedMib });
    return true;
  }

  // ---- on disk ------------------------------------------------------------------------------------------------------

  stored(): StoredDevice[] {
    return this.all().map(({ health, sample: _sample, usedMib: _usedMib, ...device }) => ({
      ...device,
      lastDockerIds: [...device.lastDockerIds],
      state: health.state,
      why: health.why,
      resetAsked: health.resetAsked,
      probeCures: health.probeCures,
      unproven: health.unproven,
      occupied: health.occupied,
      awaited: this.#awaited.has(device.uuid),
    }));
  }

  /**
   * @param booted - the host has booted since: no earlier process uses a device
   * @param driver - the driver with which healthy devices passed a probe; empty: none was probed
   */
  restore(devices: readonly StoredDevice[], booted: boolean, driver: string): void {
    this.driver = driver;
    for (const { state, why, resetAsked, probeCures, unproven, excluded, awaited, occupied, ...device } of devices) {
      const known = GPU_STATES.find((one): one is GpuState => one === state) ?? 'suspect';
      const isProved = driver !== '' || known !== 'healthy';
      this.#devices.set(device.uuid, {
        ...device,
        excluded,
        health: isProved
          ? {
              ...HEALTHY,
              state: known,
              why,
              resetAsked,
              probeCures,
              unproven,
              occupied,
            }
          : UNPROBED,
        sample: undefined,
        usedMib: undefined,
      });
      if (awaited) this.#awaited.add(device.uuid);
      if (booted) this.event(device.uuid, { kind: 'booted' });
    }
  }

  /**
   * Marks devices in use as healthy where no results of probes are stored: a running container proves more than a
   * probe.
   */
  trust(uuids: ReadonlySet<string>): void {
    for (const device of this.all())
      if (uuids.has(device.uuid) && device.health.state === 'unprobed')
        this.#devices.set(device.uuid, { ...device, health: HEALTHY });
  }
}

export const EXCLUDED = 'an operator keeps it out';
const FABRIC_WORKS = 'Completed';
const UNREACHABLE = 'the driver cannot reach it';
const UNDIVIDED = 'its GPU came back without it';
const UNLISTED = 'the driver does not list it any more';

type DeviceFacts = Omit<Device, 'health' | 'numaNode' | 'excluded' | 'lastDockerIds' | 'sample' | 'usedMib'>;

const rowDevice = ({ uuid, name, memoryMib, computeCap, nvlinkIsland, busId, index }: GpuRow): DeviceFacts => ({
  uuid,
  model: gpuModelOf(name, memoryMib),
  memoryBytes: (memoryMib ?? 0) * MIB,
  computeCap,
  nvlinkIsland,
  busId,
  index,
  parentUuid: '',
});

/** A slice is a model of its own: a request for the whole device never gets a part of it. */
const sliceDevice = (row: GpuRow, slice: MigSlice): DeviceFacts => ({
  uuid: slice.uuid,
  model: `${gpuModelOf(row.name, row.memoryMib)}-MIG-${slice.profile}`,
  memoryBytes: (slice.memoryMib ?? 0) * MIB,
  computeCap: row.computeCap,
  busId: row.busId,
  index: row.index,
  parentUuid: row.uuid,
  ...(slice.instance === undefined ? {} : { instance: slice.instance }),
});

/** At most: where the whole device uses little, none of its slices uses more. */
const usedBySlice = ({ memoryUsedMib: all }: GpuRow, { memoryUsedMib }: MigSlice): number | undefined =>
  memoryUsedMib ?? (all !== undefined && all <= idleLimitMib(0, 0) ? all : undefined);

const sampleOf = (row: GpuRow): GpuSample => ({
  utilizationRatio: row.utilizationPct === undefined ? undefined : row.utilizationPct / 100,
  memoryUsedBytes: row.memoryUsedMib === undefined ? undefined : row.memoryUsedMib * MIB,
  temperatureCelsius: row.temperatureCelsius,
  powerWatts: row.powerWatts,
  slowed: row.slowed,
});
