/**
 * Errors that NVIDIA's drivers write to the kernel's log: reads the log, counts, and tells what each error of a GPU
 * means. Owned by gpus.ts, which acts on them. Must stay true: an error counts once, even when another agent process or
 * another kind of log is read; errors of an earlier boot do not count.
 */
import type { Log } from '#shared/log.ts';
import type { Conditions } from '../telemetry/conditions.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import { followKernelLog } from './kernel-log.ts';
import type { KernelLine, KernelLogState } from './kernel-log.ts';
import type { StoredDevices } from './store.ts';
import type { Xid, XidMeaning } from './xid.ts';
import { RECOVERY_CHANGED, meaningOf, parseSxid, parseXid } from './xid.ts';

const MAX_XID_KEYS = 1000;
/** Log interval per severity: a broken link makes its switch write many errors. All of them are counted. */
const SWITCH_TOLD_EVERY_MS = 1000;

/** An error of a GPU, with what it means. */
export interface GpuError extends Xid {
  readonly meaning: XidMeaning;
  /** Text for people: the number and the driver's message. */
  readonly why: string;
  /** The driver asks for a recovery with this error. */
  readonly asksRecovery: boolean;
}

export interface DriverErrorsParts {
  /** Path of a file that is read like /dev/kmsg. */
  readonly kernelLog: string;
  readonly metrics: Pick<AgentMetrics, 'gpuSwitchErrors' | 'kernelLogRead' | 'kernelLogLastLine'>;
  readonly conditions: Pick<Conditions, 'set'>;
  readonly log: Log;
  readonly onError: (error: GpuError) => void;
}

/** Position in the log, and the errors so far in this boot. */
type Place = Pick<StoredDevices, 'sequence' | 'journalCursor' | 'savedAtMs' | 'xids'>;

export class DriverErrors {
  readonly #parts: DriverErrorsParts;
  readonly #xids = new Map<string, number>();
  readonly #switchToldAtMs = new Map<'fatal' | 'non_fatal', number>();
  #sequence = 0;
  #hasSequence = false;
  #journalCursor: string | undefined;
  /**
   * Lines before this time are skipped where the log's own position is unknown: they were taken in already, or are
   * outdated.
   */
  #sinceMs = 0;

  constructor(parts: DriverErrorsParts) {
    this.#parts = parts;
  }

  /**
   * Continues where an earlier agent of this boot stopped.
   * @param place - undefined: no agent has run here
   */
  restore(place: Place | undefined): void {
    this.#sinceMs = place?.savedAtMs ?? sinceBootMs();
    if (place === undefined) return;
    this.#sequence = place.sequence;
    this.#hasSequence = place.sequence > 0;
    this.#journalCursor = place.journalCursor;
    for (const [key, count] of Object.entries(place.xids)) this.#xids.set(key, count);
  }

  stored(): Place {
    return {
      sequence: this.#sequence,
      ...(this.#journalCursor === undefined ? {} : { journalCursor: this.#journalCursor }),
      savedAtMs: sinceBootMs(),
      xids: Object.fromEntries(this.#xids),
    };
  }

  /** Reads the log until the signal. */
  follow(signal: AbortSignal): Promise<void> {
    const { kernelLog, log } = this.#parts;
    const onLine = (line: KernelLine): void => this.#onLine(line);
    const onState = (state: KernelLogState): void => this.#onState(state);
    const place = { cursor: this.#journalCursor, sinceMs: this.#sinceMs };
    return followKernelLog(kernelLog, { ...place, onLine, onState }, signal, log);
  }

  #onState({ problem }: KernelLogState): void {
    const { conditions, metrics } = this.#parts;
    metrics.kernelLogRead.set(problem === '' ? 1 : 0);
    conditions.set('KernelLogUnread', problem !== '', problem);
  }

  #onLine(line: KernelLine): void {
    this.#journalCursor = line.cursor ?? this.#journalCursor;
    this.#parts.metrics.kernelLogLastLine.set(Math.round((Date.now() - sinceBootMs() + line.atMs) / 1000));
    if (line.sequence !== undefined) {
      if (line.sequence <= this.#sequence) return;
      this.#sequence = line.sequence;
      if (!this.#hasSequence && line.atMs < this.#sinceMs) return;
    }
    const isAbout = line.text.includes('Xid');
    const found = isAbout ? parseXid(line.text) : undefined;
    const ofSwitch = isAbout ? parseSxid(line.text) : undefined;
    if (ofSwitch !== undefined) this.#onSwitchError(ofSwitch);
    if (found !== undefined) this.#onXid(found);
  }

  /** Logs and counts an error of a switch: the driver gives each affected GPU an Xid of its own. */
  #onSwitchError(error: { readonly sxid: number; readonly severity: 'fatal' | 'non_fatal' }): void {
    const { metrics, log } = this.#parts;
    metrics.gpuSwitchErrors.inc({ severity: error.severity });
    const now = performance.now();
    if (now - (this.#switchToldAtMs.get(error.severity) ?? Number.NEGATIVE_INFINITY) < SWITCH_TOLD_EVERY_MS) return;
    this.#switchToldAtMs.set(error.severity, now);
    log[error.severity === 'fatal' ? 'error' : 'warn'](error, 'an NVSwitch reports an error');
  }

  #onXid(found: Xid): void {
    const key = `${found.busId} ${found.xid}`;
    const before = this.#xids.get(key) ?? 0;
    if (this.#xids.size < MAX_XID_KEYS || before > 0) this.#xids.set(key, before + 1);
    const meaning = meaningOf(found.xid, before, found.text);
    const why = `Xid ${found.xid}${found.text === '' ? '' : `: ${found.text}`}`;
    this.#parts.log[meaning === 'note' ? 'info' : 'error']({ ...found, meaning }, 'the GPU driver reports an error');
    this.#parts.onError({ ...found, meaning, why, asksRecovery: found.xid === RECOVERY_CHANGED });
  }
}

/** Time on the clock of the kernel's log. */
const sinceBootMs = (): number => Number(process.hrtime.bigint() / 1_000_000n);
