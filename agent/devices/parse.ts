/**
 * Parses the output of the GPU tool. Pure. No part of the output is taken for granted, and nothing throws: an odd value
 * is absent, an odd row is counted, an odd end is a failure with the tool's message. Formats: nvidia-smi of drivers 418
 * to 580.
 */
import type { PROBE_FAILURES } from '../telemetry/metrics.ts';

/** Fields of one query; a field that an older driver does not know is left out of a second query. */
export const GPU_FIELDS = [
  'index',
  'uuid',
  'name',
  'memory.total',
  'memory.used',
  'utilization.gpu',
  'temperature.gpu',
  'power.draw',
  'driver_version',
  'mig.mode.current',
  'pci.bus_id',
  'gpu_recovery_action',
  'fabric.state',
  'clocks_event_reasons.hw_thermal_slowdown',
  'clocks_event_reasons.hw_power_brake_slowdown',
  'compute_cap',
] as const;
export type GpuField = (typeof GPU_FIELDS)[number];
/** A row without these fields names no device. */
const NEEDED: ReadonlySet<string> = new Set(['index', 'uuid', 'name', 'pci.bus_id']);

export interface GpuRow {
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  /** Absent where the device shares its memory with the CPU. */
  readonly memoryMib: number | undefined;
  readonly memoryUsedMib: number | undefined;
  readonly utilizationPct: number | undefined;
  readonly temperatureCelsius: number | undefined;
  readonly powerWatts: number | undefined;
  readonly driver: string;
  readonly migEnabled: boolean;
  /** PCI address as in /sys: `0000:3b:00.0`. */
  readonly busId: string;
  /** Action that the driver requests after an error (`None`, `Reset`, …); absent: not reported. */
  readonly recovery: string | undefined;
  /**
   * State of NVLink through switches: `Completed` when it may be used; empty: the GPU has none, or the driver does not
   * say.
   */
  readonly fabric: string;
  /** Compute capability, such as `8.9`; empty: the driver does not tell it. */
  readonly computeCap: string;
  /** Number of the GPUs that are linked by NVLink, each with each; absent: not known, or linked to none. */
  readonly nvlinkIsland?: number | undefined;
  /** Heat or the power supply holds the clocks down now; undefined: not reported. */
  readonly slowed: boolean | undefined;
}

/**
 * Action that a driver asks for. `drain`: no new work, running work goes on. `reset`: running work is lost, and a reset
 * of the device or a boot of the host follows.
 */
export type Recovery = 'none' | 'drain' | 'reset';

/**
 * Maps the driver's text of a recovery action, from the tool (`Drain and Reset`) or the kernel's log (`GPU Reset
 * Required`). An action with unknown text takes no new work. An action for memory shared between hosts (`Recover IMEX
 * Domain`) does not affect work on one host.
 * @returns undefined when the driver does not say
 */
export function recoveryOf(words: string): Recovery | undefined {
  const text = words.trim();
  if (text === '' || /^unknown$/i.test(text) || isError(text)) return undefined;
  if (/^none$/i.test(text) || /\bIMEX\b/i.test(text)) return 'none';
  if (/drain/i.test(text)) return 'drain';
  return /reset|reboot|\bFLR\b/i.test(text) ? 'reset' : 'drain';
}

/** Why there is no information: labels of a metric. */
export type ProbeFailure = (typeof PROBE_FAILURES)[number];

export type Listing =
  | {
      readonly kind: 'listed';
      readonly rows: readonly GpuRow[];
      /** Bus ids of devices that the driver has but cannot reach. */
      readonly broken: readonly string[];
      /** Number of unreadable rows: with any, a device that is not listed is not gone. */
      readonly unreadable: number;
      /** Bus ids of devices that were asked singly without a readable answer: not gone. Absent: none was asked. */
      readonly silent?: ReadonlySet<string>;
    }
  | {
      readonly kind: 'failed';
      readonly reason: ProbeFailure;
      readonly text: string;
      readonly broken: readonly string[];
    }
  /** This driver does not know that field. */
  | { readonly kind: 'unknown_field'; readonly field: string };

export interface ToolOutput {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

const UUID = /^(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,100}$/;
/** Whether a text is a device's UUID as the engine takes it: leases are for these alone. */
export const isGpuUuid = (text: string): boolean => UUID.test(text);

/** Reads the answer of `--query-gpu=<fields> --format=csv,noheader,nounits`. */
export function parseListing(fields: readonly string[], output: ToolOutput): Listing {
  const text = `${output.stdout}\n${output.stderr}`;
  const field = /Field "([^"]+)" is not a valid field/.exec(text)?.[1];
  if (field !== undefined && !NEEDED.has(field)) return { kind: 'unknown_field', field };
  const rows: GpuRow[] = [];
  const broken = new Set(brokenIn(text));
  let unreadable = 0;
  for (const line of output.stdout.split('\n')) {
    if (line.trim() === '' || isMessage(line)) continue;
    const row = rowOf(fields, line);
    if (row === undefined) unreadable += 1;
    else if ('broken' in row) broken.add(row.broken);
    else rows.push(row);
  }
  if (output.exitCode === 0 || (output.exitCode === 6 && /no devices were found/i.test(text)))
    return /no devices were found/i.test(text) || rows.length + broken.size + unreadable > 0
      ? { kind: 'listed', rows, broken: [...broken], unreadable }
      : failed('unparsable', text, []);
  // Some drivers end with an error because of one device, and print the others all the same.
  if (broken.size > 0 && rows.length > 0) return { kind: 'listed', rows, broken: [...broken], unreadable };
  return failed(reasonOf(output.exitCode, text), text, [...broken]);
}

const failed = (reason: ProbeFailure, text: string, broken: readonly string[]): Listing => ({
  kind: 'failed',
  reason,
  text: text.replace(/\s+/g, ' ').trim().slice(0, 500),
  broken,
});

function reasonOf(exitCode: number, text: string): ProbeFailure {
  if (exitCode === 18 || /version mismatch/i.test(text)) return 'driver_mismatch';
  if (exitCode === 9 || exitCode === 12 || /communicate with the NVIDIA driver/i.test(text)) return 'no_driver';
  if (exitCode === 15 || /GPU is lost|fallen off the bus/i.test(text)) return 'off_bus';
  if (exitCode === 4 || /insufficient permissions/i.test(text)) return 'permission';
  return 'error';
}

/** Whether a line of the tool is a message, not a row. */
const isMessage = (line: string): boolean =>
  /no devices were found|unable to determine the device handle|NVIDIA-SMI has failed|failed to initialize NVML|^\s*(?:WARNING|ERROR|Reboot|GPU is lost|Make sure|Please|NVML library version)/i.test(
    line,
  );

/**
 * Bus ids of devices that exist and do not answer, from `Unable to determine the device handle for GPU0000:3B:00.0:
 * Unknown Error`. A device that the tool may not open is not among them: programs that have it go on.
 */
function brokenIn(text: string): string[] {
  return handlesIn(text).flatMap(({ busId, words }) => (/^insufficient permissions/i.test(words) ? [] : [busId]));
}

function handlesIn(text: string): { readonly busId: string; readonly words: string }[] {
  const found = text.matchAll(
    /device handle for gpu\s*(?:\d+:\s*)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?):?[ \t]*([^\n]*)/gi,
  );
  return [...found].map(([, busId = '', words = '']) => ({ busId: busIdOf(busId), words }));
}

/** Whether the tool answered about every device: it may stop at a bad one, and end as if nothing were wrong. */
export const isWhole = ({ exitCode, stdout, stderr }: ToolOutput): boolean =>
  exitCode === 0 && !/unable to determine the device handle/i.test(`${stdout}\n${stderr}`);

/** Bus id as in /sys: lower case, four digits of domain or as many as it needs. Empty: the text is none. */
export function busIdOf(text: string): string {
  const match = /^([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-9a-f]))?$/i.exec(text.trim());
  if (match === null) return '';
  const [, domain = '', bus, device, part = '0'] = match;
  return `${domain.replace(/^0+(?=.{4})/, '')}:${bus}:${device}.${part}`.toLowerCase();
}

function rowOf(fields: readonly string[], line: string): GpuRow | { readonly broken: string } | undefined {
  const values = line.split(',').map((value) => value.trim());
  if (values.length !== fields.length) return undefined;
  const get = (field: GpuField): string => values[fields.indexOf(field)] ?? '';
  const busId = busIdOf(get('pci.bus_id'));
  const uuid = get('uuid');
  const index = Number(get('index'));
  if (busId === '') return undefined;
  if (!isGpuUuid(uuid) || /^\[.*\]$|^ERR!?$/i.test(get('name')))
    return isError(uuid) || isError(get('name')) ? { broken: busId } : undefined;
  if (values.some((value) => IS_LOST.test(value))) return { broken: busId };
  if (!Number.isInteger(index) || index < 0) return undefined;
  // Where the driver fails to tell these, the row would describe another device: a whole one, or one of another model.
  const mode = get('mig.mode.current');
  if (mode !== 'Enabled' && mode !== 'Disabled' && !isUntold(mode)) return undefined;
  if ((['memory.total', 'memory.used'] as const).some((field) => isError(get(field)) && !isUntold(get(field))))
    return undefined;
  const recovery = get('gpu_recovery_action');
  const fabric = get('fabric.state');
  const slow = [get('clocks_event_reasons.hw_thermal_slowdown'), get('clocks_event_reasons.hw_power_brake_slowdown')];
  return {
    index,
    uuid,
    name: get('name'),
    memoryMib: numberOf(get('memory.total')),
    memoryUsedMib: numberOf(get('memory.used')),
    utilizationPct: numberOf(get('utilization.gpu')),
    temperatureCelsius: numberOf(get('temperature.gpu')),
    powerWatts: numberOf(get('power.draw')),
    driver: isError(get('driver_version')) ? '' : get('driver_version'),
    migEnabled: mode === 'Enabled',
    busId,
    recovery: recovery === '' || isError(recovery) ? undefined : recovery,
    fabric: isError(fabric) ? '' : fabric.slice(0, 40),
    computeCap: /^\d{1,3}\.\d{1,3}$/.test(get('compute_cap')) ? get('compute_cap') : '',
    slowed: slow.includes('Active') ? true : slow.includes('Not Active') ? false : undefined,
  };
}

const MOST_IN_MATRIX = 64;

/**
 * Reads the matrix of `topo -m`: GPUs that are linked by NVLink, each with each, have the same number, from 1 on. A GPU
 * joins the first group whose members it is all linked to, so partly linked ones make several groups.
 * @returns by the index of the GPU; undefined: the answer is no such matrix. A GPU that is linked to none is absent
 */
export function parseIslands({ stdout }: Pick<ToolOutput, 'stdout'>): ReadonlyMap<number, number> | undefined {
  // The tool underlines the first line.
  // oxlint-disable-next-line no-control-regex
  const lines = stdout.replace(/\u001b\[[0-9;]*m/g, '').split('\n');
  const head = lines.map((line) => line.trim().split(/\s+/)).find(([first]) => first === 'GPU0');
  const columns = head?.slice(0, head.findIndex((one) => !/^GPU\d+$/.test(one)) >>> 0) ?? [];
  if (columns.length < 2 || columns.length > MOST_IN_MATRIX) return undefined;
  const links = new Map<number, ReadonlySet<number>>();
  for (const line of lines) {
    const [, index, cells = ''] = /^GPU(\d+)\s+(\S.*)$/.exec(line.trimEnd()) ?? [];
    const values = cells.trim().split(/\s+/);
    if (index === undefined || values.length < columns.length || values[0]?.startsWith('GPU') === true) continue;
    links.set(
      Number(index),
      new Set(columns.flatMap((name, at) => (/^NV\d+$/.test(values[at] ?? '') ? Number(name.slice(3)) : []))),
    );
  }
  if (links.size !== columns.length) return undefined;
  const groups: number[][] = [];
  for (const [gpu, others] of links) {
    const group = groups.find((members) =>
      members.every((one) => others.has(one) && links.get(one)?.has(gpu) === true),
    );
    if (group === undefined) groups.push([gpu]);
    else group.push(gpu);
  }
  const islands = groups.filter((members) => members.length > 1);
  return new Map(islands.flatMap((members, at) => members.map((gpu) => [gpu, at + 1] as const)));
}

/** Values of a device that the driver has given up. */
const IS_LOST = /^\[(?:GPU is lost|GPU requires (?:a )?reset)\.?\]$/i;

/** Whether the device, or its driver, has no such value. */
const isUntold = (text: string): boolean =>
  text === '' || /^\[?(?:N\/A|Not Supported|Not Available|Function Not Found|Not Found)\]?$/i.test(text);

/** Values that stand for an error: `[N/A]`, `[Not Supported]`, `[Unknown Error]`, `[GPU is lost]`, `ERR!`. */
const isError = (text: string): boolean => /^\[.*\]$|^ERR!?$|^N\/A$|^Unknown Error$/i.test(text);

function numberOf(text: string): number | undefined {
  if (text === '' || isError(text)) return undefined;
  // An older tool prints units despite `nounits`.
  const value = Number(/^-?\d+(?:\.\d+)?/.exec(text)?.[0] ?? Number.NaN);
  return Number.isFinite(value) && value >= 0 ? value : undefined;
}

export interface MigSlice {
  readonly uuid: string;
  readonly parentUuid: string;
  /** Name of the slice's size, such as `3g.40gb`. */
  readonly profile: string;
  readonly memoryMib: number | undefined;
  /** Number of the slice within its device, as counted by `-L` and `-q`. */
  readonly index: number;
  /** GPU instance of the slice, which the kernel's log names; undefined: not known. */
  readonly instance: number | undefined;
  /** Memory in use; undefined: not asked for, or not told. */
  readonly memoryUsedMib?: number | undefined;
}

/**
 * Slices in the output of `-L`, the only listing with their UUIDs; drivers before 470 also print the instance there.
 */
export function parseSlices(stdout: string): {
  readonly slices: readonly MigSlice[];
  /** UUIDs of the whole devices in the output, divided or not. */
  readonly parents: ReadonlySet<string>;
} {
  const slices: MigSlice[] = [];
  const parents = new Set<string>();
  let parentUuid = '';
  for (const line of stdout.split('\n')) {
    const gpu = /^GPU \d+: .*\(UUID: (GPU-[^)\s]+)\)/.exec(line);
    if (gpu !== null) {
      parentUuid = gpu[1] ?? '';
      parents.add(parentUuid);
    } else if (/^\S/.test(line)) parentUuid = '';
    const slice = /^\s+MIG (\S+)\s+Device\s+(\d+):\s*\(UUID: (MIG-[^)\s]+)\)/.exec(line);
    if (slice === null || parentUuid === '') continue;
    const [, profile = '', index = '', uuid = ''] = slice;
    if (!isGpuUuid(uuid)) continue;
    const gib = /\.(\d+)gb/.exec(profile)?.[1];
    const instance = /^MIG-GPU-[^/]+\/(\d{1,3})\//.exec(uuid)?.[1];
    slices.push({
      uuid,
      parentUuid,
      profile,
      memoryMib: gib === undefined ? undefined : Number(gib) * 1024,
      index: Number(index),
      instance: instance === undefined ? undefined : Number(instance),
    });
  }
  return { slices, parents };
}

/**
 * GPU instances of the slices in `-q -x`: keys are the device's UUID and the slice's index (`GPU-…/0`), values such as
 * 5.
 */
export function parseInstances(stdout: string): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const part of stdout.split(/<gpu id=/).slice(1)) {
    const uuid = /<uuid>(GPU-[^<\s]+)<\/uuid>/.exec(part)?.[1];
    if (uuid === undefined) continue;
    const slices = part.matchAll(
      /<mig_device>\s*<index>(\d+)<\/index>\s*<gpu_instance_id>(\d{1,3})<\/gpu_instance_id>/g,
    );
    for (const [, index, instance] of slices) found.set(`${uuid}/${Number(index)}`, Number(instance));
  }
  return found;
}

/** Used memory of slices in `-q -x`: keys as in `parseInstances`, values in MiB. */
export function parseSliceMemory(stdout: string): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const part of stdout.split(/<gpu id=/).slice(1)) {
    const uuid = /<uuid>(GPU-[^<\s]+)<\/uuid>/.exec(part)?.[1];
    if (uuid === undefined) continue;
    for (const slice of part.split('<mig_device>').slice(1)) {
      const index = /<index>(\d+)<\/index>/.exec(slice)?.[1];
      const memory = /<fb_memory_usage>([\s\S]*?)<\/fb_memory_usage>/.exec(slice)?.[1] ?? '';
      const used = /<used>(\d+) MiB<\/used>/.exec(memory)?.[1];
      if (index !== undefined && used !== undefined) found.set(`${uuid}/${Number(index)}`, Number(used));
    }
  }
  return found;
}

/** Used memory in MiB of `--query-gpu=uuid,memory.used`, by the UUID; a device that does not tell is absent. */
export function parseMemory(output: ToolOutput): ReadonlyMap<string, number> {
  const rows = output.stdout.split('\n').map((line) => line.split(',').map((value) => value.trim()));
  return new Map(
    rows.flatMap(([uuid = '', used = '']) => {
      const mib = numberOf(used);
      return isGpuUuid(uuid) && mib !== undefined ? [[uuid, mib] as const] : [];
    }),
  );
}

export interface ComputeProcess {
  readonly uuid: string;
  readonly pid: number;
}

/**
 * Compute processes of `--query-compute-apps=gpu_uuid,pid`; undefined: the query failed. A driver without this list has
 * none to report.
 * @param of - the only device that was asked for: a row that cannot say its device is about this one
 */
export function parseProcesses(output: ToolOutput, of?: string): readonly ComputeProcess[] | undefined {
  if (!isWhole(output)) return undefined;
  const found: ComputeProcess[] = [];
  for (const line of output.stdout.split('\n')) {
    if (line.trim() === '' || /no running processes found|^\s*\[?(?:N\/A|Not Supported)\]?/i.test(line)) continue;
    const [said = '', pid = ''] = line.split(',').map((value) => value.trim());
    const uuid = isGpuUuid(said) ? said : of;
    if (uuid === undefined || !/^\d+$/.test(pid)) return undefined;
    found.push({ uuid, pid: Number(pid) });
  }
  return found;
}

/**
 * Whether a container's driver has lost its devices: the effect of systemd's `daemon-reload` on devices that the hook
 * passed.
 */
export const hasLostAccess = (text: string): boolean => /failed to initialize NVML:\s*unknown error/i.test(text);
