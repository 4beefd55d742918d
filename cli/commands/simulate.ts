// `longshore simulate`: replays recordings of placement.
import { CliError, errorCode, notFound, usageError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import type { ExitCode } from '../exit-codes.ts';
import type { SimulateFlags } from '../flags.ts';
import { showDone } from './run.ts';
import type { Invocation } from './run.ts';

export async function runSimulate(file: string, flags: SimulateFlags, invocation: Invocation): Promise<ExitCode> {
  if (flags.check !== true) throw usageError('say what to do with the recording: --check replays and compares it');
  return await check(file, invocation);
}

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

function unreadable(file: string, error: unknown): CliError {
  const code = errorCode(error);
  if (code === 'ENOENT') return notFound(`there is no file ${file}`, error);
  return new CliError(`cannot read ${file} (${code})`, { cause: error });
}
