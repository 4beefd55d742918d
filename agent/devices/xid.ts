// The driver's error numbers, as the kernel's log has them, and what each means for a device and its container. Pure.
import { busIdOf } from './parse.ts';

export interface Xid {
  /** Function 0 of the device: the log leaves it out. */
  readonly busId: string;
  /** GPU instance of a divided device, as `nvidia-smi mig -lgi` numbers it; undefined: the error is the whole device's. */
  readonly instance: number | undefined;
  readonly xid: number;
  readonly text: string;
}

/**
 * fatal: the device is out and its container fails · drain: no new work, what runs goes on · container: only its container fails · warn: said · note: its container's own doing, said in its log.
 */
export type XidMeaning = 'fatal' | 'drain' | 'container' | 'warn' | 'note';

const FATAL: ReadonlySet<number> = new Set([48, 64, 79, 95, 119, 120, 140, 143, 154]);
/** Fatal the second time. */
const FATAL_WHEN_REPEATED: ReadonlySet<number> = new Set([46, 62, 74]);

/** @param before - how often it came from this device since the host's start */
export function meaningOf(xid: number, before: number): XidMeaning {
  if (FATAL.has(xid) || (FATAL_WHEN_REPEATED.has(xid) && before > 0)) return 'fatal';
  if (xid === 63) return 'drain';
  if (xid === 94) return 'container';
  return xid === 92 || FATAL_WHEN_REPEATED.has(xid) ? 'warn' : 'note';
}

/** `NVRM: Xid (PCI:0000:3b:00): 79, pid=…, GPU has fallen off the bus.`, of a MIG slice `(PCI:0000:3b:00 GPU-I:07 GPU-CI:00)`; undefined: another line. */
export function parseXid(line: string): Xid | undefined {
  const match =
    /NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?(?: ([^)]{0,100}))?\): (\d{1,4})\b[,:]?\s*(.*)/i.exec(
      line,
    );
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
