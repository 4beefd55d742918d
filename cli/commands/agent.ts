// `longshore agent`: the daemon in the foreground, as a service runs it and as `longshore up` starts it.
import { open, rm, stat, writeFile } from 'node:fs/promises';
import { messageOf } from '#shared/errors.ts';
import { CliError } from '../errors.ts';
import { note, print, printJson } from '../print.ts';
import { underSupervisor } from './daemon.ts';

const INTERRUPTS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
const LEFTOVERS_MS = 1000;

export interface GpuCheckFlags {
  readonly image: string | undefined;
  readonly reload: boolean;
  readonly report: string | undefined;
  readonly json: boolean;
}

export function runAgentCommand(env: NodeJS.ProcessEnv): Promise<number> {
  return underSupervisor(async () => {
    const { runAgent } = await import('#agent/process.ts');
    await runAgent(env);
    return 0;
  });
}

/** @returns 1 when a check failed */
export async function runAgentCheck(asJson: boolean, env: NodeJS.ProcessEnv): Promise<number> {
  const [{ checkMachine }, { findingsText }] = await Promise.all([
    import('#agent/preflight/check.ts'),
    import('#agent/preflight/finding.ts'),
  ]);
  const findings = await checkMachine(env);
  const isReady = findings.every(({ level }) => level !== 'failed');
  if (asJson) printJson({ ready: isReady, findings });
  else print(findingsText(findings));
  return isReady ? 0 : 1;
}

/**
 * An interrupt (SIGINT, SIGTERM, SIGHUP) ends the check and reports its results so far; a second one exits at once.
 * @param report - a file that keeps the report as JSON
 * @returns 0: the host serves its GPUs; 1: a check failed; 3: there is no GPU; 130: the check was interrupted
 */
export async function runGpuCheck(
  { image, reload, report: file, json }: GpuCheckFlags,
  env: NodeJS.ProcessEnv,
): Promise<number> {
  const [{ checkGpuHost }, { reportText }] = await Promise.all([
    import('#agent/preflight/check-gpu/host.ts'),
    import('#agent/preflight/check-gpu/report.ts'),
  ]);
  // The proof comes before the check, which takes minutes on some hosts.
  if (file !== undefined) await proveWritable(file);
  const interrupt = new AbortController();
  const end = (signal: string): void => {
    note(`${signal}: the containers of this check are removed; a second ${signal} ends it at once`);
    interrupt.abort();
  };
  for (const signal of INTERRUPTS) process.once(signal, end);
  const report = await checkGpuHost(env, { image, reload, signal: interrupt.signal });
  // The report is written first, since printing fails on a terminal that is gone.
  const written = file === undefined ? undefined : await keep(file, report);
  if (json) printJson(report);
  else print(reportText(report));
  if (file !== undefined && written === '') note(`the report is in ${file}`);
  // A program that the interrupted check still runs would keep this process alive.
  if (interrupt.signal.aborted) setTimeout(() => process.exit(), LEFTOVERS_MS).unref();
  if (written) throw new CliError(`the report could not be written: ${written}`);
  return report.exitCode;
}

/** @throws CliError when the file cannot be written. Existing content stays, and no empty file is left behind. */
async function proveWritable(file: string): Promise<void> {
  try {
    const isThere = await stat(file).then(
      () => true,
      () => false,
    );
    await (await open(file, 'a')).close();
    if (!isThere) await rm(file);
  } catch (error) {
    throw new CliError(
      `the report cannot be written: ${messageOf(error)}; name another file, and nothing was checked yet`,
      { cause: error },
    );
  }
}

/** @returns the reason why the file could not be written; empty when it was */
const keep = (file: string, report: object): Promise<string> =>
  writeFile(file, `${JSON.stringify(report, null, 2)}\n`).then(() => '', messageOf);
