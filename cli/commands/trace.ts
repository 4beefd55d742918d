// `longshore trace`: makes traces for `longshore simulate`.
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { shellWord } from '#shared/shell-word.ts';
import type { GeneratedLine, GeneratorOptions } from '#scheduler/control/simulator/generate.ts';
import { CliError, errorCode, usageError } from '../errors.ts';
import type { TraceGenerateFlags } from '../flags.ts';
import { showDone } from './run.ts';
import type { Invocation } from './run.ts';

export async function runTraceGenerate(
  directory: string,
  flags: TraceGenerateFlags,
  invocation: Invocation,
): Promise<void> {
  const { expectedTasks, machineLines, MOST_GENERATED, traceLines } =
    await import('#scheduler/control/simulator/generate.ts');
  const { for: seconds, gpus, median, start, oneTask = false, ...named } = flags;
  const times = { hours: seconds / 3600, medianSeconds: median, startSeconds: start };
  const options: GeneratorOptions = { ...named, ...times, gpusPerMachine: gpus, oneTask };
  const { workspaces, sizes } = options;
  const large = sizes.find((size) => size > gpus);
  if (large !== undefined) throw usageError(`--sizes has ${large}, and a machine has ${gpus} GPUs (--gpus)`);
  const expected = expectedTasks(options);
  if (expected > MOST_GENERATED)
    throw usageError(
      `the trace would have about ${Math.round(expected)} tasks, and at most ${MOST_GENERATED} are made: shorten --for, or make tasks longer with --median`,
    );
  const [machines, trace] = [join(directory, 'machines.jsonl'), join(directory, 'trace.jsonl')];
  await mkdir(directory, { recursive: true }).catch((error: unknown) => notWritten(directory, error));
  await writeLines(machines, machineLines(options));
  const lines = await writeLines(trace, traceLines(options));
  const tasks = lines - 1 - workspaces.length * sizes.length;
  showDone(invocation, { trace, machines, tasks }, [
    `${tasks} tasks are in ${trace}, and the machines in ${machines}`,
    `run them: longshore simulate ${shellWord(trace)} --machines ${shellWord(machines)}`,
  ]);
}

/** Lines that are written at once. */
const MOST_AT_ONCE = 1000;

/** @returns the number of lines */
async function writeLines(path: string, lines: Iterable<GeneratedLine>): Promise<number> {
  const stream = createWriteStream(path, { flags: 'wx' });
  try {
    await once(stream, 'open');
    let count = 0;
    let texts: string[] = [];
    const write = async (): Promise<void> => {
      if (!stream.write(texts.join(''))) await once(stream, 'drain');
      texts = [];
    };
    for (const line of lines) {
      count += 1;
      texts.push(`${JSON.stringify(line)}\n`);
      if (texts.length >= MOST_AT_ONCE) await write();
    }
    await write();
    stream.end();
    await once(stream, 'close');
    return count;
  } catch (error) {
    stream.destroy();
    return notWritten(path, error);
  }
}

function notWritten(path: string, error: unknown): never {
  const code = errorCode(error);
  if (code === '') throw error;
  if (code === 'EEXIST') throw new CliError(`${path} is there already: choose another folder`, { cause: error });
  throw new CliError(`cannot write ${path} (${code})`, { cause: error });
}
