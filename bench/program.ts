// The common parts of `npm run bench`, `chaos`, `upgrade` and `soak`: a command line, a workplace that is always
// removed, and exit codes. Exit code 2: invalid command line; 130: interrupted; 1: the program failed, or a check did.
import { UsageError } from './options.ts';
import { openWorkplace } from './workplace.ts';
import type { Workplace } from './workplace.ts';

class Interrupted extends Error {}

export interface Program<Options> {
  readonly name: string;
  readonly usage: string;
  /** @throws UsageError naming the option */
  readonly parse: (args: readonly string[]) => Options;
  /** @returns the exit code */
  readonly work: (options: Options, place: Workplace) => Promise<number>;
}

/** Runs it on this process's command line and sets its exit code. */
export async function runProgram<Options>(program: Program<Options>): Promise<void> {
  process.exitCode = await outcomeOf(program, process.argv.slice(2));
}

async function outcomeOf<Options>(
  { name, usage, parse, work }: Program<Options>,
  args: readonly string[],
): Promise<number> {
  const say = (text: string): void => void process.stderr.write(`${name}: ${text}\n`);
  try {
    if (args.includes('--help')) {
      process.stdout.write(`${usage}\n`);
      return 0;
    }
    const options = parse(args);
    const stop = new AbortController();
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
      process.on(signal, () => stop.abort(new Interrupted()));
    const place = await openWorkplace(stop.signal);
    try {
      return await work(options, place);
    } finally {
      for (const problem of await place.close()) say(`not cleaned up: ${problem}`);
    }
  } catch (error) {
    if (error instanceof UsageError) {
      say(`${error.message}\n${usage}`);
      return 2;
    }
    if (error instanceof Interrupted) {
      say('interrupted; everything it started has ended');
      return 130;
    }
    say(causes(error));
    return 1;
  }
}

/** Messages of an error and its causes. */
export function causes(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message}: ${causes(error.cause)}`;
}
