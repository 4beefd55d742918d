/**
 * Questions to the GPU tool. A single broken device can make the tool fail for all of them, or stop before the others.
 * The devices that it does not show are then asked one by one, and each is judged by its own answer. Must stay true:
 * every question ends within two deadlines, whatever the number of devices. A device that does not answer is told apart
 * from a device that is gone.
 */
import { withDeadline } from '#shared/backoff.ts';
import type { ConditionField, GpuCondition } from './gpu-condition.ts';
import { CONDITION_FIELDS, REMAP_FIELDS, parseConditions, unknownField } from './gpu-condition.ts';
import { idleLimitMib } from './idle-memory.ts';
import type { ComputeProcess, GpuField, GpuRow, Listing, MigSlice, ProbeFailure } from './parse.ts';
import {
  GPU_FIELDS,
  isWhole,
  parseInstances,
  parseIslands,
  parseListing,
  parseMemory,
  parseProcesses,
  parseSliceMemory,
  parseSlices,
} from './parse.ts';
import type { AskTool, Run } from './smi-program.ts';
import { SmiProgram } from './smi-program.ts';

/** Without persistence mode the driver starts each idle GPU anew for each call, which takes over a second. */
export const PROBE_DEADLINE_MS = 30_000;
/** Part of the deadline that one device has of its own. */
const SINGLE_PART = 1 / 3;
const MAX_GPUS_ASKED_SINGLY = 32;
const ASKED_AT_ONCE = 16;
/**
 * Bound on queries for the instances of one set of slices: the answer is long, and a driver that lacks them will not
 * gain them.
 */
const MAX_INSTANCE_TRIES = 3;
const MAX_ISLAND_TRIES = 3;
/** Most time that a look gives to the islands: without them devices are chosen by their NUMA nodes. */
const ISLANDS_DEADLINE_MS = 5_000;
const PROCESSES = ['--query-compute-apps=gpu_uuid,pid', '--format=csv,noheader,nounits'];
/** Failures that concern the driver or the tool, and so every device alike, where no device is named. */
const OF_ALL: ReadonlySet<ProbeFailure> = new Set(['not_found', 'no_driver', 'driver_mismatch']);

/** A whole device as the tool can be asked for it. */
export interface WholeDevice {
  /** Empty: a function on PCI that the driver has not listed yet. */
  readonly uuid: string;
  readonly busId: string;
}

/** A whole device, or a slice. */
export interface AnyDevice extends WholeDevice {
  /** The device that a slice is part of; empty for a whole device. */
  readonly parentUuid: string;
}

/** Processes by the UUID of the whole device; a device without an entry gave no answer. */
export type Processes = ReadonlyMap<string, readonly ComputeProcess[]>;

export interface Slices {
  readonly found: readonly MigSlice[];
  /** UUIDs of divided devices whose slices could not be listed. */
  readonly silent: ReadonlySet<string>;
}

export const NO_SLICES: Slices = { found: [], silent: new Set() };

export class NvidiaSmi {
  readonly #ask: AskTool;
  readonly #deadlineMs: number;
  #fields: readonly GpuField[] = GPU_FIELDS;
  /** The last question for all devices failed, or left one out: further ones go to each device at once. */
  #failsForAll = false;
  /** NVLink islands of the devices in the last listing, and the number of queries for them. */
  #islands: { readonly of: string; readonly tries: number; readonly found: ReadonlyMap<number, number> | undefined } = {
    of: '',
    tries: 0,
    found: undefined,
  };
  /** GPU instances of the slices in the last listing, and the number of queries for them. */
  #instances: { readonly of: string; readonly tries: number; readonly found: ReadonlyMap<string, number> } = {
    of: '',
    tries: 0,
    found: new Map(),
  };

  /** @param tool - path of the tool, or what stands in for it */
  constructor(tool: string | AskTool, deadlineMs: number = PROBE_DEADLINE_MS) {
    this.#ask = typeof tool === 'string' ? new SmiProgram(tool).ask : tool;
    this.#deadlineMs = deadlineMs;
  }

  /** Lists every device of the driver. @param known - those that the tool leaves out are asked for singly */
  async list(known: readonly WholeDevice[] = []): Promise<Listing> {
    const all = await this.#query('');
    this.#failsForAll = all.kind === 'failed' && (!OF_ALL.has(all.reason) || all.broken.length > 0);
    if (all.kind === 'unknown_field' || (all.kind === 'failed' && !this.#failsForAll)) return all;
    const shown = all.kind === 'listed' ? all.rows : [];
    const broken = new Set(all.broken);
    const isShown = (one: WholeDevice): boolean =>
      broken.has(one.busId) || shown.some(({ uuid, busId }) => uuid === one.uuid || busId === one.busId);
    const asked = known.filter((one) => !isShown(one));
    if (asked.length === 0) return all;
    const answers = await this.#singly(asked, (id, deadlineMs) => this.#query(id, deadlineMs));
    const silent = new Set<string>();
    for (const [{ busId }, one] of answers) {
      if (one === undefined) silent.add(busId);
      else if (one.kind === 'listed') {
        for (const id of one.broken) broken.add(id);
        if (one.unreadable > 0) silent.add(busId);
      } else if (one.kind === 'failed' && (one.reason === 'off_bus' || one.broken.includes(busId))) broken.add(busId);
      else silent.add(busId);
    }
    const own = answers.flatMap(([, one]) => (one?.kind === 'listed' ? one.rows : []));
    this.#failsForAll ||= own.length > 0;
    if (all.kind === 'failed' && own.length === 0) return { ...all, broken: [...broken] };
    const rows = [...shown, ...own.filter((row) => !shown.some(({ uuid }) => uuid === row.uuid))];
    const unreadable = all.kind === 'listed' ? all.unreadable : 0;
    return { kind: 'listed', rows, broken: [...broken], unreadable, silent };
  }

  /**
   * MIG slices of the divided devices.
   * @param crowded - devices of which the memory of each slice is asked for, too: a long answer
   */
  async slices(divided: readonly WholeDevice[], crowded: readonly WholeDevice[] = []): Promise<Slices> {
    const slices = await this.#slicesOf(divided);
    if (crowded.length === 0) return slices;
    const outputs = await this.#details(crowded);
    const used = new Map(outputs.flatMap((stdout) => [...parseSliceMemory(stdout)]));
    const usedBy = ({ parentUuid, index }: MigSlice): number | undefined => used.get(`${parentUuid}/${index}`);
    return { ...slices, found: slices.found.map((slice) => ({ ...slice, memoryUsedMib: usedBy(slice) })) };
  }

  async #slicesOf(divided: readonly WholeDevice[]): Promise<Slices> {
    const run = this.#failsForAll ? undefined : await this.#run(['-L']);
    const outputs = run?.kind === 'done' && isWhole(run) ? [run.stdout] : [];
    const shown = parseSlices(outputs.join('\n')).parents;
    const left = divided.filter(({ uuid }) => !shown.has(uuid));
    for (const [, one] of await this.#singly(left, (id, deadlineMs) => this.#run(['-L'], id, deadlineMs)))
      if (one?.kind === 'done' && one.exitCode === 0) outputs.push(one.stdout);
    const { slices, parents } = parseSlices(outputs.join('\n'));
    const silent = new Set(divided.flatMap(({ uuid }) => (parents.has(uuid) ? [] : [uuid])));
    if (slices.every(({ instance }) => instance !== undefined)) return { found: slices, silent };
    await this.#askInstances(slices, divided);
    const instanceOf = ({ parentUuid, index }: MigSlice): number | undefined =>
      this.#instances.found.get(`${parentUuid}/${index}`);
    return { found: slices.map((slice) => ({ ...slice, instance: slice.instance ?? instanceOf(slice) })), silent };
  }

  /** Queries GPU instances only when the set of slices has changed. */
  async #askInstances(slices: readonly MigSlice[], divided: readonly WholeDevice[]): Promise<void> {
    const of = slices.map(({ uuid, index }) => `${uuid} ${index}`).join();
    const before = this.#instances;
    if (before.of === of && (before.found.size > 0 || before.tries >= MAX_INSTANCE_TRIES)) return;
    const outputs = await this.#details(divided);
    const found = new Map(outputs.flatMap((stdout) => [...parseInstances(stdout)]));
    this.#instances = { of, tries: before.of === of ? before.tries + 1 : 1, found };
  }

  /** Output of `-q -x`, for all devices together or for each. */
  async #details(devices: readonly WholeDevice[]): Promise<readonly string[]> {
    const run = this.#failsForAll ? undefined : await this.#run(['-q', '-x']);
    if (run?.kind === 'done' && isWhole(run)) return [run.stdout];
    const answers = await this.#singly(devices, (id, deadlineMs) => this.#run(['-q', '-x'], id, deadlineMs));
    return answers.flatMap(([, one]) => (one?.kind === 'done' && one.exitCode === 0 ? [one.stdout] : []));
  }

  /** The same rows with their NVLink islands, which are asked for when the set of devices changed, thrice at most. */
  async withIslands(rows: readonly GpuRow[]): Promise<readonly GpuRow[]> {
    const of = rows.map(({ index, uuid }) => `${index} ${uuid}`).join();
    const before = this.#islands;
    if (rows.length > 1 && (before.of !== of || (before.found === undefined && before.tries < MAX_ISLAND_TRIES))) {
      const limitMs = Math.min(this.#deadlineMs, ISLANDS_DEADLINE_MS);
      const run = this.#failsForAll ? undefined : await this.#run(['topo', '-m'], '', limitMs);
      const found = run?.kind === 'done' && run.exitCode === 0 ? parseIslands(run) : undefined;
      this.#islands = { of, tries: before.of === of ? before.tries + 1 : 1, found };
    }
    const { found } = this.#islands;
    if (found === undefined || this.#islands.of !== of) return rows;
    // A slice of a divided GPU has no link of its own.
    return rows.map((row) => ({ ...row, nvlinkIsland: row.migEnabled ? undefined : found.get(row.index) }));
  }

  /** Compute processes on those devices. */
  async processes(of: readonly WholeDevice[]): Promise<Processes> {
    const run = this.#failsForAll ? undefined : await this.#run(PROCESSES);
    const all = run?.kind === 'done' ? parseProcesses(run) : undefined;
    if (all !== undefined) return new Map(of.map(({ uuid }) => [uuid, all]));
    if (run?.kind === 'missing') return new Map();
    const answers = await this.#singly(of, (id, deadlineMs) => this.#run(PROCESSES, id, deadlineMs));
    return new Map(
      answers.flatMap(([{ uuid }, one]) => {
        const found = one?.kind === 'done' ? parseProcesses(one, uuid) : undefined;
        return found === undefined ? [] : [[uuid, found] as const];
      }),
    );
  }

  /**
   * Used memory in MiB of those devices and slices, by the UUID; a device that does not tell is absent. Where a divided
   * device uses little in all, each of its slices counts as using that. Asks for these devices alone, within that time.
   * @param ofSlices - each slice of a device that uses more is asked for, too: a long answer. Without it they do not
   * tell
   */
  async memory(
    devices: readonly AnyDevice[],
    deadlineMs: number,
    ofSlices = false,
  ): Promise<ReadonlyMap<string, number>> {
    const until = performance.now() + deadlineMs;
    const places = new Map(devices.map(({ uuid, parentUuid, busId }) => [parentUuid || uuid, busId]));
    const wholes = [...places].map(([uuid, busId]) => ({ uuid, busId }));
    const used = await this.#memoryOf(wholes, Math.min(deadlineMs, this.#deadlineMs));
    const isDivided = (uuid: string): boolean => devices.some(({ parentUuid }) => parentUuid === uuid);
    const crowded = wholes.filter(({ uuid }) => isDivided(uuid) && (used.get(uuid) ?? 0) > idleLimitMib(0, 0));
    const late = (): Error => new Error('no answer about slices');
    const asked = ofSlices && crowded.length > 0;
    const { found } = asked
      ? await withDeadline(this.slices(crowded, crowded), until - performance.now(), late).catch(() => NO_SLICES)
      : NO_SLICES;
    const usedBy = ({ uuid, parentUuid }: AnyDevice): number | undefined =>
      crowded.some((one) => one.uuid === parentUuid)
        ? found.find((slice) => slice.uuid === uuid)?.memoryUsedMib
        : used.get(parentUuid || uuid);
    return new Map(
      devices.flatMap((device) => {
        const mib = usedBy(device);
        return mib === undefined ? [] : [[device.uuid, mib] as const];
      }),
    );
  }

  async #memoryOf(wholes: readonly WholeDevice[], limitMs: number): Promise<ReadonlyMap<string, number>> {
    const args = ['--query-gpu=uuid,memory.used', '--format=csv,noheader,nounits'];
    const answers = await this.#singly(wholes, (id, leftMs) => this.#run(args, id, leftMs), limitMs, limitMs);
    return new Map(
      answers.flatMap(([, one]) => (one?.kind === 'done' && one.exitCode === 0 ? [...parseMemory(one)] : [])),
    );
  }

  /** Whether a display is driven by that device, as in a workstation. */
  async hasDisplay({ uuid }: WholeDevice, deadlineMs: number): Promise<boolean> {
    const args = ['--query-gpu=display_active', '--format=csv,noheader,nounits'];
    const run = await this.#run(args, uuid, Math.min(deadlineMs, this.#deadlineMs));
    return run.kind === 'done' && run.exitCode === 0 && run.stdout.trim() === 'Enabled';
  }

  /**
   * Condition of the GPUs, which a check of the host asks for beside the listing; undefined: the tool did not answer.
   * @param known - devices that are asked one by one when the tool fails for all
   */
  async conditions(known: readonly WholeDevice[] = []): Promise<readonly GpuCondition[] | undefined> {
    const all = await this.#conditionsOf('', this.#deadlineMs);
    if (all !== undefined || known.length === 0) return all;
    const answers = await this.#singly(known, (id, deadlineMs) => this.#conditionsOf(id, deadlineMs));
    const found = answers.flatMap(([, one]) => one ?? []);
    return found.length === 0 ? undefined : found;
  }

  async #conditionsOf(id: string, deadlineMs: number): Promise<readonly GpuCondition[] | undefined> {
    let fields: readonly ConditionField[] = CONDITION_FIELDS;
    for (;;) {
      const run = await this.#run([`--query-gpu=${fields.join(',')}`, '--format=csv,noheader,nounits'], id, deadlineMs);
      if (run.kind !== 'done') return undefined;
      const unknown = unknownField(run);
      const fewer = fields.filter((field) => field !== unknown);
      if (unknown === undefined || fewer.length === fields.length) {
        if (run.exitCode !== 0) return undefined;
        const remapArgs = [`--query-remapped-rows=${REMAP_FIELDS.join(',')}`, '--format=csv,noheader,nounits'];
        const remaps = await this.#run(remapArgs, id, deadlineMs);
        return parseConditions(
          fields,
          run.stdout,
          remaps.kind === 'done' && remaps.exitCode === 0 ? remaps.stdout : '',
        );
      }
      fields = fewer;
    }
  }

  async #query(id: string, deadlineMs = this.#deadlineMs): Promise<Listing> {
    for (;;) {
      const fields = this.#fields;
      const run = await this.#run([`--query-gpu=${fields.join(',')}`, '--format=csv,noheader,nounits'], id, deadlineMs);
      if (run.kind === 'timeout')
        return { kind: 'failed', reason: 'timeout', text: `no answer in ${deadlineMs} ms`, broken: [] };
      if (run.kind === 'missing')
        return { kind: 'failed', reason: 'not_found', text: `${run.path} is not there`, broken: [] };
      const listing = parseListing(fields, run);
      if (listing.kind !== 'unknown_field') return listing;
      const fewer = fields.filter((field) => field !== listing.field);
      if (fewer.length === fields.length)
        return { kind: 'failed', reason: 'error', text: `field ${listing.field}`, broken: [] };
      this.#fields = fewer;
    }
  }

  /**
   * Asks each device, several at once, each within its own deadline and all within one of the tool's, or those given.
   * @returns undefined for a device that was not asked in time
   */
  async #singly<T>(
    devices: readonly WholeDevice[],
    ask: (id: string, deadlineMs: number) => Promise<T>,
    limitMs = this.#deadlineMs,
    singleMs = limitMs * SINGLE_PART,
  ): Promise<readonly (readonly [WholeDevice, T | undefined])[]> {
    const until = performance.now() + limitMs;
    const answers: (readonly [WholeDevice, T | undefined])[] = [];
    for (let from = 0; from < devices.length; from += ASKED_AT_ONCE) {
      const leftMs = Math.floor(Math.min(singleMs, until - performance.now()));
      const isAsked = from < MAX_GPUS_ASKED_SINGLY && leftMs > 0;
      const some = devices.slice(from, from + ASKED_AT_ONCE).map(async (device) => {
        const id = device.uuid === '' ? device.busId : device.uuid;
        return [device, isAsked ? await ask(id, leftMs) : undefined] as const;
      });
      answers.push(...(await Promise.all(some)));
    }
    return answers;
  }

  #run(args: readonly string[], id = '', deadlineMs = this.#deadlineMs): Promise<Run> {
    return this.#ask(args, id, deadlineMs);
  }
}
