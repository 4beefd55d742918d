// `longshore simulate`: runs traces under several policies, and replays recordings of placement.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SimulationInput, SimulationOutput, SimulationResult } from '#scheduler/control/simulator/simulate.ts';
import type { MarketResult } from '#scheduler/control/simulator/figures.ts';
import type { PolicyResult, WorkspaceResult } from '#scheduler/control/simulator/simulation.ts';
import { CliError, errorCode, notFound, usageError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import type { ExitCode } from '../exit-codes.ts';
import type { SimulateFlags } from '../flags.ts';
import { counted } from '../format.ts';
import { note, print, printJson, printTable } from '../print.ts';
import { showDone } from './run.ts';
import type { Invocation } from './run.ts';

/** Workspaces that the table has of each policy. */
const MOST_SHOWN = 20;

export async function runSimulate(file: string, flags: SimulateFlags, invocation: Invocation): Promise<ExitCode> {
  const { fileKind } = await import('#scheduler/control/simulator/simulate.ts');
  const kind = await fileKind(file).catch((error: unknown) => {
    throw unreadable(file, error);
  });
  if (kind === undefined) throw usageError(`${file} is neither a trace nor a recording`);
  if (kind === 'recording') {
    const other = (['machines', 'policy', 'seed', 'out'] as const).find((name) => flags[name] !== undefined);
    if (other !== undefined) throw usageError(`${file} is a recording, and --${other} is for traces`);
    if (flags.check !== true) throw usageError('say what to do with the recording: --check replays and compares it');
    return await check(file, invocation);
  }
  if (flags.check === true) throw usageError(`${file} is a trace, and --check is for recordings`);
  await runTrace(file, flags, invocation);
  return EXIT.ok;
}

async function runTrace(file: string, flags: SimulateFlags, invocation: Invocation): Promise<void> {
  const { isPolicy, POLICIES } = await import('#scheduler/control/simulator/simulation.ts');
  const policies = (flags.policy ?? Object.keys(POLICIES)).map((name) => {
    if (isPolicy(name)) return name;
    throw usageError(`there is no policy ${name}; there are ${Object.keys(POLICIES).join(', ')}`);
  });
  const output = await simulated({ trace: file, machines: flags.machines, policies, seed: flags.seed ?? 1 });
  const { result } = output;
  if (flags.out !== undefined) await writeOutput(flags.out, output);
  if (invocation.options.json === true) printJson(result);
  else show(result);
}

async function simulated(input: SimulationInput): Promise<SimulationOutput> {
  const { simulate } = await import('#scheduler/control/simulator/simulate.ts');
  const { TraceError } = await import('#scheduler/control/simulator/trace.ts');
  return await simulate(input).catch((error: unknown) => {
    if (error instanceof TraceError) throw new CliError(error.message, { cause: error });
    throw errorCode(error) === '' ? error : unreadable(pathOf(error) ?? input.trace, error);
  });
}

/** Writes the result and its pictures; files of an earlier run are replaced. */
async function writeOutput(folder: string, { result, simulated: all }: SimulationOutput): Promise<void> {
  const { usePicture, waitsPicture } = await import('#scheduler/control/simulator/picture.ts');
  const files = {
    'result.json': `${JSON.stringify(result, null, 2)}\n`,
    'gpus.svg': usePicture(all, result.seconds),
    'waits.svg': waitsPicture(result.policies),
  };
  try {
    await mkdir(folder, { recursive: true });
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  } catch (error) {
    throw new CliError(`cannot write to ${folder} (${errorCode(error)})`, { cause: error });
  }
  note(`result.json, gpus.svg and waits.svg are in ${folder}`);
}

// ---- the tables -----------------------------------------------------------------------------------------------------

function show({ tasks, seconds, policies }: SimulationResult): void {
  print(`${tasks} tasks in ${secondsText(seconds)}`);
  print('');
  printTable(
    ['POLICY', 'MARKET', 'CAPACITY', 'USED', 'JAIN', 'WORST MINUTE'],
    policies.flatMap(({ policy, markets }) => markets.map((market) => [policy, ...marketCells(market)])),
  );
  print('');
  printTable(
    ['POLICY', 'WORKSPACE', 'TASKS', 'UNSERVED', 'WAIT P50', 'P95', 'P99', 'GPU HOURS', 'BUSY'],
    policies.flatMap((one) => workspaceRows(one)),
  );
  for (const { policy, all } of policies)
    if (all.preempted > 0)
      print(
        `${policy}: ${counted(all.preempted, 'container')} ended for others, and ${secondsText(all.lost_seconds)} of work were lost`,
      );
  const most = Math.max(...policies.map(({ workspaces }) => workspaces.length));
  if (most > MOST_SHOWN) print(`and ${most - MOST_SHOWN} more workspaces, which --json has`);
}

const marketCells = ({ market, capacity, used, ...jain }: MarketResult): readonly string[] => [
  market,
  String(capacity),
  `${percent(used, capacity)}`,
  jain.jain_mean === null ? '-' : jain.jain_mean.toFixed(3),
  jain.jain_worst === null ? '-' : `${jain.jain_worst.toFixed(3)} at ${secondsText(jain.jain_worst_at ?? 0)}`,
];

const workspaceRows = ({ policy, workspaces, all }: PolicyResult): readonly (readonly string[])[] =>
  [...workspaces.slice(0, MOST_SHOWN), { workspace: 'all', ...all }].map((one: WorkspaceResult) => [
    policy,
    one.workspace,
    String(one.tasks),
    String(one.unserved),
    ...[one.wait_seconds.p50, one.wait_seconds.p95, one.wait_seconds.p99].map(secondsText),
    (one.gpu_seconds / 3600).toFixed(1),
    one.gpu_seconds === 0 ? '-' : percent(one.busy_gpu_seconds, one.gpu_seconds),
  ]);

const percent = (part: number, of: number): string => `${of === 0 ? 0 : Math.round((100 * part) / of)} %`;
const secondsText = (seconds: number): string =>
  `${seconds < 10 ? Math.round(seconds * 100) / 100 : Math.round(seconds)} s`;

// ---- recordings -----------------------------------------------------------------------------------------------------

async function check(file: string, invocation: Invocation): Promise<ExitCode> {
  const { checkRecording, RecordingError } = await import('#scheduler/control/simulator/check.ts');
  const checked = await checkRecording(file).catch((error: unknown) => {
    if (error instanceof RecordingError) throw new CliError(`${file}: ${error.message}`, { cause: error });
    throw unreadable(file, error);
  });
  const { lines, compared, ended, different } = checked;
  const sentences =
    different === undefined
      ? [`${compared} answers in ${lines} lines are equal; the recording ended with: ${ended}`]
      : [
          `line ${different.line} has another answer, after ${compared - 1} equal ones`,
          `recorded: ${different.recorded}`,
          `replayed: ${different.replayed}`,
        ];
  showDone(invocation, checked, sentences);
  return different === undefined ? EXIT.ok : EXIT.failed;
}

const pathOf = (error: unknown): string | undefined =>
  error instanceof Error && 'path' in error && typeof error.path === 'string' ? error.path : undefined;

function unreadable(file: string, error: unknown): CliError {
  const code = errorCode(error);
  if (code === 'ENOENT') return notFound(`there is no file ${file}`, error);
  return new CliError(`cannot read ${file} (${code})`, { cause: error });
}
