// The command tree's part for recordings of placement, and for simulations.
import { InvalidArgumentError, Option } from 'commander';
import type { Command } from 'commander';
import { MOST_RECORDING_SECONDS } from '#shared/domain/recordings.ts';
import type { Invocation } from './commands/run.ts';
import type { SimulateFlags, TraceGenerateFlags } from './flags.ts';
import { command, examples, wholeNumber } from './program-parts.ts';
import { spanMsOf } from './since.ts';

export function addRecord(program: Command, invocation: () => Invocation): void {
  const record = command(program, 'record', "Record what placement is told and decides (the administrator's)");
  examples(
    command(record, 'start', 'Begin a recording, in a file of the scheduler that leads').option(
      '--for <span>',
      'how long, such as 10m or 1h; at most 24h',
      recordingSeconds,
      3600,
    ),
    'record start --for 10m',
  ).action(async (flags: { readonly for: number }) => {
    const { runRecordStart } = await import('./commands/record.ts');
    await runRecordStart(flags.for, invocation());
  });
  examples(command(record, 'stop', 'End the recording before its time; its file stays'), 'record stop').action(
    async () => {
      const { runRecordStop } = await import('./commands/record.ts');
      await runRecordStop(invocation());
    },
  );
  examples(command(record, 'list', 'List recordings, and where their files are'), 'record list').action(async () => {
    const { runRecordList } = await import('./commands/record.ts');
    await runRecordList(invocation());
  });
}

export function addSimulate(program: Command, invocation: () => Invocation, setExitCode: (code: number) => void): void {
  examples(
    command(
      program,
      'simulate',
      'Run a trace in made-up time under several policies, or replay a recording of placement',
    )
      .argument('<file>', 'a trace, or a recording')
      .option('--machines <file>', 'a file with the lines of machines (else the trace has them)')
      .option(
        '--policy <names>',
        'policies to compare, with commas: arrival, share, share+reserve, share+reserve+reclaim (else all)',
        namesWithCommas,
      )
      .option(
        '--seed <number>',
        'begins the numbers that are drawn from percentiles of the trace (else 1)',
        wholeNumber,
      )
      .option('--out <folder>', 'gets result.json, and pictures: gpus.svg, waits.svg')
      .option('--check', 'of a recording: exit with 1 at the first decision that is another one than was recorded'),
    'simulate trace.jsonl --machines machines.jsonl --policy arrival,share',
    'simulate recording-1770000000000.jsonl --check',
  ).action(async (file: string, flags: SimulateFlags) => {
    const { runSimulate } = await import('./commands/simulate.ts');
    setExitCode(await runSimulate(file, flags, invocation()));
  });
}

export function addTrace(program: Command, invocation: () => Invocation): void {
  const trace = command(program, 'trace', 'Make traces for `longshore simulate`');
  examples(
    command(trace, 'generate', 'Make a trace of workspaces that ask for GPUs, and a file of machines')
      .argument('<folder>', 'gets trace.jsonl and machines.jsonl')
      .addOption(
        new Option('--workspaces <names>', 'a number of workspaces, or their names with commas')
          .argParser(workspaceNames)
          .default(workspaceNames('10'), '10'),
      )
      .addOption(
        new Option('--for <span>', 'length of the trace, such as 90m or 7d; at most 366d')
          .argParser(traceSeconds)
          .default(3600, '1h'),
      )
      .option('--machines <number>', 'machines, from 1 to 20000', wholeFrom(1, 20_000), 2)
      .option('--gpu <model>', 'GPU model of the machines', 'H100')
      .option('--gpus <number>', 'GPUs of a machine, from 1 to 64', wholeFrom(1, 64), 8)
      .option('--load <part>', 'GPU time that is asked for, as a part of what there is', numberFrom(0.001, 100), 0.9)
      .option(
        '--skew <number>',
        'exponent of Zipf: the n-th workspace asks for 1/n^skew of the first',
        numberFrom(0, 10),
        1,
      )
      .addOption(
        new Option('--sizes <numbers>', 'GPUs of the deployments of each workspace, with commas')
          .argParser(sizesWithCommas)
          .default([1], '1'),
      )
      .option('--median <seconds>', 'half of the tasks are shorter', numberFrom(0.001, 86_400), 30)
      .option('--sigma <number>', 'spread of lengths, which are log-normal; 0: all are alike', numberFrom(0, 3), 1)
      .option('--start <seconds>', 'time of a container from its place to its first task', numberFrom(0, 3600), 10)
      .option('--day-curve <part>', 'by how much a day rises above its mean, from 0 to 1', numberFrom(0, 1), 0)
      .option(
        '--bursts <number>',
        'five minutes with ten times the load, for each workspace and day',
        wholeFrom(0, 200),
        0,
      )
      .option('--one-task', 'each task has a container of its own, as a job has')
      .option('--seed <number>', 'the same seed makes the same trace', wholeNumber, 1),
    'trace generate week --workspaces 20 --for 7d --day-curve 0.6 --bursts 3',
    'trace generate two --workspaces research,shop --machines 1 --one-task --seed 7',
  ).action(async (folder: string, flags: TraceGenerateFlags) => {
    const { runTraceGenerate } = await import('./commands/trace.ts');
    await runTraceGenerate(folder, flags, invocation());
  });
}

const MOST_GENERATED_WORKSPACES = 1000;

function workspaceNames(text: string): readonly string[] {
  const names = /^\d{1,4}$/.test(text)
    ? Array.from({ length: Number(text) }, (_none, n) => `team-${n + 1}`)
    : namesWithCommas(text);
  if (names.length < 1 || names.length > MOST_GENERATED_WORKSPACES || names.some((name) => name.length > 100))
    throw new InvalidArgumentError(
      `must be 1 to ${MOST_GENERATED_WORKSPACES} workspaces: a number, or names with commas.`,
    );
  return names;
}

function sizesWithCommas(text: string): readonly number[] {
  return namesWithCommas(text).map((size) => wholeFrom(1, 64)(size));
}

const wholeFrom =
  (from: number, to: number) =>
  (text: string): number => {
    const value = wholeNumber(text);
    if (value < from || value > to) throw new InvalidArgumentError(`must be a whole number from ${from} to ${to}.`);
    return value;
  };

const numberFrom =
  (from: number, to: number) =>
  (text: string): number => {
    const value = /^\d{1,9}(\.\d{1,6})?$/.test(text) ? Number(text) : NaN;
    if (!(value >= from && value <= to)) throw new InvalidArgumentError(`must be a number from ${from} to ${to}.`);
    return value;
  };

const MOST_TRACE_SECONDS = 366 * 86_400;

function traceSeconds(text: string): number {
  const seconds = Math.ceil((spanMsOf(text) ?? 0) / 1000);
  if (seconds < 1 || seconds > MOST_TRACE_SECONDS)
    throw new InvalidArgumentError('must be a span from 1s to 366d, such as 90m.');
  return seconds;
}

function namesWithCommas(text: string): readonly string[] {
  const names = text.split(',').map((name) => name.trim());
  if (names.includes('') || new Set(names).size < names.length)
    throw new InvalidArgumentError('must be names with commas between them, each once.');
  return names;
}

function recordingSeconds(text: string): number {
  const ms = spanMsOf(text);
  const seconds = Math.ceil((ms ?? 0) / 1000);
  if (seconds < 1 || seconds > MOST_RECORDING_SECONDS)
    throw new InvalidArgumentError('must be a span from 1s to 24h, such as 10m.');
  return seconds;
}
