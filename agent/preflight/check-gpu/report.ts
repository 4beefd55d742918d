/** The report of `longshore agent check-gpu`: the checked items, the host, and the text for people. Pure. */
import type { GpuRow } from '../../devices/parse.ts';

/** A machine without any GPU has its own code; an interrupted check ends like a program that SIGINT ends. */
export const CHECK_EXIT = { ok: 0, failed: 1, noGpu: 4, interrupted: 130 } as const;

export interface Line {
  /** The checked item: one to three words. */
  readonly check: string;
  /**
   * `failed`: GPU work does not run here as it should; `warning`: worth a look; `skipped`: not tried, `found` says why.
   */
  readonly level: 'ok' | 'warning' | 'failed' | 'skipped';
  readonly found: string;
  /** The action to take; empty when none is needed. */
  readonly remedy: string;
}

export const line = (level: Line['level'], check: string, found: string, remedy = ''): Line => ({
  check,
  level,
  found,
  remedy,
});

export interface GpuReport {
  /**
   * `passed`: the host serves its GPUs (warnings allowed); `no_gpu`: nothing was checked; `interrupted`: `checks` has
   * the lines until then.
   */
  readonly outcome: 'passed' | 'failed' | 'no_gpu' | 'interrupted';
  readonly exitCode: number;
  readonly startedAt: string;
  readonly seconds: number;
  readonly host: {
    readonly name: string;
    readonly system: string;
    readonly kernel: string;
    readonly processor: string;
    readonly cores: number;
    readonly memoryBytes: number;
  };
  /** Versions; an empty one is not known. */
  readonly versions: {
    readonly longshore: string;
    readonly driver: string;
    readonly docker: string;
    readonly containerd: string;
    readonly runc: string;
    readonly toolkit: string;
  };
  readonly gpus: readonly Pick<GpuRow, 'index' | 'uuid' | 'name' | 'memoryMib' | 'busId' | 'migEnabled'>[];
  readonly checks: readonly Line[];
}

const MARKS: Readonly<Record<Line['level'], string>> = {
  ok: 'ok',
  warning: 'WARNING',
  failed: 'FAILED',
  skipped: 'skipped',
};

/** Verdict over all lines. Pure. */
export function outcomeOf(
  checks: readonly Line[],
  { hasGpus, interrupted }: { readonly hasGpus: boolean; readonly interrupted: boolean },
): Pick<GpuReport, 'outcome' | 'exitCode'> {
  if (interrupted) return { outcome: 'interrupted', exitCode: CHECK_EXIT.interrupted };
  if (checks.some(({ level }) => level === 'failed')) return { outcome: 'failed', exitCode: CHECK_EXIT.failed };
  return hasGpus ? { outcome: 'passed', exitCode: CHECK_EXIT.ok } : { outcome: 'no_gpu', exitCode: CHECK_EXIT.noGpu };
}

/** The report as a table, with each remedy below its line, and the verdict at the end. */
export function reportText({ outcome, startedAt, seconds, host, versions, checks }: GpuReport): string {
  const width = Math.max(0, ...checks.map(({ check }) => check.length));
  const told = Object.entries(versions).filter(([, version]) => version !== '');
  const head = [
    `${host.name}: ${host.system}, Linux ${host.kernel}, ${host.cores} x ${host.processor}, ${Math.round(host.memoryBytes / 1024 ** 3)} GiB`,
    told.map(([name, version]) => `${name} ${version}`).join(', '),
    `${startedAt}, ${seconds.toFixed(1)} s`,
  ];
  const lines = checks.flatMap(({ check, level, found, remedy }) => [
    `${MARKS[level].padEnd(8)} ${check.padEnd(width)}  ${found}`,
    ...(remedy === '' ? [] : [`${' '.repeat(9 + width)}  -> ${remedy}`]),
  ]);
  return [...head, '', ...lines, '', verdict(outcome, checks)].join('\n');
}

function verdict(outcome: GpuReport['outcome'], checks: readonly Line[]): string {
  const count = (level: Line['level']): number => checks.filter((one) => one.level === level).length;
  const [bad, odd, left] = [count('failed'), count('warning'), count('skipped')];
  if (outcome === 'interrupted')
    return 'INTERRUPTED: this is what was seen until then. Run the check again to know whether this host serves its GPUs.';
  if (outcome === 'no_gpu')
    return `NO GPU HERE: nothing was checked (exit code ${CHECK_EXIT.noGpu}). Run this on a host with an NVIDIA GPU.`;
  if (outcome === 'failed') return `${bad} of ${checks.length} checks FAILED: this host does not serve GPUs as it is.`;
  const more = [
    ...(odd > 0 ? [`${odd} warning${odd > 1 ? 's' : ''}`] : []),
    ...(left > 0 ? [`${left} not tried`] : []),
  ];
  return `This host serves its GPUs${more.length > 0 ? ` (${more.join(', ')})` : ''}.`;
}
