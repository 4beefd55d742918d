// The result of a probe, and the party at fault for a failed one. Pure. The probe is agent/probe/gpu-probe.c: the last
// line on stdout is the result, its steps are on stderr. Source: decision 0107.
import type { PROBE_RESULTS } from '../telemetry/metrics.ts';

/**
 * `failed`: the device's own fault · `host`: no program reaches GPUs on this host in its present state · `unable`:
 * nothing was learned · `stuck`: the probe does not end, not even by a kill · `absent`: the image has no probe.
 */
export type ProbeOutcome =
  | { readonly kind: 'passed'; readonly text: string }
  | { readonly kind: Exclude<ProbeResult, 'passed'>; readonly text: string };
export type ProbeResult = (typeof PROBE_RESULTS)[number];

/** Errors of the CUDA driver that are the host's fault for any device (CUDA driver API, CUresult), each with a hint. */
const HOST_ERRORS: ReadonlyMap<number, string> = new Map([
  [34, 'the library is a stub without a driver'],
  [802, 'the fabric of NVSwitches is not set up: look at nvidia-fabricmanager'],
  [803, 'the kernel has another version of the driver than the libraries: reboot the host'],
  [804, 'the compatibility library does not fit this device'],
]);

/** Exit codes of a program that was ended from outside by a signal: 128 and its number. */
const KILLED = 137;
const TERMINATED = 143;
const MAX_TEXT = 300;

export interface ProbeRun {
  readonly exitCode: number;
  /** Lines of stdout and stderr, in the engine's order. */
  readonly lines: readonly string[];
}

export function outcomeOf({ exitCode, lines }: ProbeRun): ProbeOutcome {
  const result = lines.map(resultIn).findLast((one) => one !== undefined);
  const at = `at ${stepOf(lines)}`;
  // Without a result, the driver's library or the kernel ended the program.
  if (result === undefined) {
    if (exitCode === 127) return { kind: 'absent', text: "the holders' image has no probe of GPUs" };
    if (exitCode === KILLED) return { kind: 'unable', text: `the probe was killed ${at}: for want of memory?` };
    if (exitCode === TERMINATED) return { kind: 'unable', text: `the probe was ended ${at}: by an engine that stops?` };
    return { kind: 'failed', text: `the probe ended with exit code ${exitCode} ${at}` };
  }
  const { step, code, name, text } = result;
  if (exitCode === 0 && step === 'done' && code === 0) return { kind: 'passed', text: '' };
  if (exitCode === 3) return { kind: 'host', text: `the driver's library cannot be used: ${text}` };
  if (exitCode === 2) return { kind: 'failed', text: `data came back wrong from the device: ${text}` };
  const words = `CUDA error ${code}${name === '' ? '' : ` (${name})`} at ${step}`;
  const known = HOST_ERRORS.get(code);
  return known === undefined ? { kind: 'failed', text: words } : { kind: 'host', text: `${words}: ${known}` };
}

/** Inconclusive tries before an operator is told. */
const MOST_UNABLE = 3;

/** Whether the machine says that no program reaches its GPUs. @param tries - outcomes of that kind in a row */
export const isUnusable = ({ kind }: ProbeOutcome, tries: number): boolean =>
  kind === 'host' || (kind === 'unable' && tries >= MOST_UNABLE);

/** The step that a probe without an end was in. */
export const stepOf = (lines: readonly string[]): string =>
  lines.findLast((line) => /^[a-z]{1,20}$/.test(line)) ?? 'its start';

interface Result {
  readonly step: string;
  readonly code: number;
  readonly name: string;
  readonly text: string;
}

function resultIn(line: string): Result | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    const { step, code, name, text } = JSON.parse(line) as Record<string, unknown>;
    if (typeof step !== 'string' || typeof code !== 'number') return undefined;
    const words = (value: unknown): string => (typeof value === 'string' ? value.slice(0, MAX_TEXT) : '');
    return { step: words(step), code, name: words(name), text: words(text) };
  } catch {
    return undefined;
  }
}
