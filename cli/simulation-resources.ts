// The command tree's part for recordings of placement, and for simulations.
import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';
import { MOST_RECORDING_SECONDS } from '#shared/domain/recordings.ts';
import type { Invocation } from './commands/run.ts';
import type { SimulateFlags } from './flags.ts';
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
        'policies to compare, with commas: arrival, share, share+reserve (else all)',
        namesWithCommas,
      )
      .option(
        '--seed <number>',
        'begins the numbers that are drawn from percentiles of the trace (else 1)',
        wholeNumber,
      )
      .option('--check', 'of a recording: exit with 1 at the first decision that is another one than was recorded'),
    'simulate trace.jsonl --machines machines.jsonl --policy arrival,share',
    'simulate recording-1770000000000.jsonl --check',
  ).action(async (file: string, flags: SimulateFlags) => {
    const { runSimulate } = await import('./commands/simulate.ts');
    setExitCode(await runSimulate(file, flags, invocation()));
  });
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
