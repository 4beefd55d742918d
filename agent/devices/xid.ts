// The driver's error numbers in the kernel's log, and the meaning of each for a device and its container. Pure.
import { busIdOf, recoveryOf } from './parse.ts';

export interface Xid {
  /** Bus id of the device, with function 0, which the log leaves out. */
  readonly busId: string;
  /**
   * GPU instance of a divided device, numbered as by `nvidia-smi mig -lgi`; undefined: the error concerns the whole
   * device.
   */
  readonly instance: number | undefined;
  readonly xid: number;
  readonly text: string;
}

/**
 * `fatal`: the device is out of service and its container fails · `drain`: no new work, running work goes on ·
 * `container`: only its container fails · `warn`: logged · `note`: the container's own doing, noted in its log.
 */
export type XidMeaning = 'fatal' | 'drain' | 'container' | 'warn' | 'note';

/*
 * Numbers by the immediate action in NVIDIA's catalogue of Xids (docs.nvidia.com, "Analyzing Xid Errors with the Xid
 * Catalog"; decision 0100). A number in no list is its application's own.
 */
/** Errors that require a reset of the device, or a boot of the host. */
const FATAL: ReadonlySet<number> = new Set([46, 48, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 158]);
/**
 * Fatal errors that a kernel of a tenant may cause on a sound device: a probe decides after a rest, unless the driver
 * asks for a recovery. Otherwise a tenant could take devices away for good (decision 0310).
 */
export const CURED_BY_PROBE: ReadonlySet<number> = new Set([109]);
/** Errors that require a reset when there is time: resources of the device wait to be retired. */
const DRAIN: ReadonlySet<number> = new Set([156]);
/** NVLink errors without a severity: the second one takes the device out of service. */
const FATAL_WHEN_REPEATED: ReadonlySet<number> = new Set([74]);
/**
 * Errors after which the device goes on and an operator should look: power, corrected memory, retired resources. Also
 * NVLink and bus errors whose numbers mean several things; drivers that know them name the action by Xid 154.
 */
const WARN: ReadonlySet<number> = new Set([
  54, 63, 92, 93, 121, 144, 145, 146, 147, 148, 149, 150, 157, 159, 160, 161, 163, 164, 165, 167, 168, 169, 171, 172,
]);
const CONTAINED = 94;
export const RECOVERY_CHANGED = 154;

/**
 * @param before - earlier occurrences on this device since the host's start @param text - the driver's text beside the
 * number
 */
export function meaningOf(xid: number, before: number, text: string): XidMeaning {
  if (xid === RECOVERY_CHANGED) return meaningOfChange(text);
  if (FATAL.has(xid) || (FATAL_WHEN_REPEATED.has(xid) && before > 0)) return 'fatal';
  if (DRAIN.has(xid)) return 'drain';
  if (xid === CONTAINED) return 'container';
  return WARN.has(xid) || FATAL_WHEN_REPEATED.has(xid) ? 'warn' : 'note';
}

/**
 * Meaning of `GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)`. If unreadable, the next look
 * at the device tells.
 */
function meaningOfChange(text: string): XidMeaning {
  const target = /changed from 0x[0-9a-f]+ \([^)]*\) to 0x[0-9a-f]+ \(([^)]*)\)/i.exec(text)?.[1];
  const recovery = target === undefined ? undefined : recoveryOf(target);
  if (recovery === undefined) return 'warn';
  return ({ none: 'note', drain: 'drain', reset: 'fatal' } as const)[recovery];
}

/** Frequent errors of applications. */
const OF_APPLICATIONS = [13, 31, 43, 45] as const;
/** Numbers whose counters begin at 0 with each device, so that their first one is an increase. */
export const COUNTED_FROM_ZERO: readonly number[] = [
  ...new Set([...OF_APPLICATIONS, ...FATAL, ...DRAIN, ...FATAL_WHEN_REPEATED, CONTAINED, RECOVERY_CHANGED, ...WARN]),
];

/**
 * Before the driver's own words, in a line as `dmesg` or a syslog has it. Programs choose names that stand in other
 * lines of the kernel, so nothing else may precede these words.
 */
const BEGIN = String.raw`^(?:\[\s*\d+\.\d+\]\s*)?(?:\[\s*[TC]\d+\]\s*)?`;
const SXID = new RegExp(String.raw`${BEGIN}nvidia-nvswitch\d+: SXid \([^)]{1,100}\): (\d{1,6}),\s*(Non-)?fatal\b`, 'i');
const XID = new RegExp(
  String.raw`${BEGIN}NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?(?: ([^)]{0,100}))?\): (\d{1,4})\b[,:]?\s*(.*)`,
  'i',
);

/**
 * Parses `nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up`.
 * @returns undefined for any other line
 */
export function parseSxid(
  line: string,
): { readonly sxid: number; readonly severity: 'fatal' | 'non_fatal' } | undefined {
  const match = SXID.exec(line);
  return match === null
    ? undefined
    : { sxid: Number(match[1]), severity: match[2] === undefined ? 'fatal' : 'non_fatal' };
}

/**
 * Parses `NVRM: Xid (PCI:0000:3b:00): 79, pid=…, GPU has fallen off the bus.`; a MIG slice has `(PCI:0000:3b:00
 * GPU-I:07 GPU-CI:00)`. Undefined: another line.
 */
export function parseXid(line: string): Xid | undefined {
  const match = XID.exec(line);
  if (match === null) return undefined;
  const busId = busIdOf(match[1] ?? '');
  if (busId === '') return undefined;
  const instance = /\bGPU-I:(\d{1,3})\b/i.exec(match[2] ?? '')?.[1];
  return {
    busId,
    instance: instance === undefined ? undefined : Number(instance),
    xid: Number(match[3]),
    text: (match[4] ?? '').trim().slice(0, 300),
  };
}
