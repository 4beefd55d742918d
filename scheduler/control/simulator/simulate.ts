// Simulates a trace from its files under several policies at once: the files are read once, line by line.
import { linesOf, LongLineError } from './lines-of-file.ts';
import type { Policy, PolicyResult, Simulated } from './simulation.ts';
import { Simulation } from './simulation.ts';
import { MOST_MACHINES, readTraceLine, TraceError } from './trace.ts';
import type { TraceLine } from './trace.ts';

export interface SimulationInput {
  readonly trace: string;
  /** File with the lines of machines; undefined: the trace has them. */
  readonly machines: string | undefined;
  readonly policies: readonly Policy[];
  /** Begins the numbers that are drawn from percentiles. */
  readonly seed: number;
}

export interface SimulationResult {
  readonly seed: number;
  /** Length of the trace. */
  readonly seconds: number;
  readonly lines: number;
  readonly tasks: number;
  readonly policies: readonly PolicyResult[];
}

export interface SimulationOutput {
  readonly result: SimulationResult;
  readonly simulated: readonly Simulated[];
}

/** @throws TraceError, which names file, line and field; Error: a file cannot be read */
export async function simulate({ trace, machines, policies, seed }: SimulationInput): Promise<SimulationOutput> {
  const simulations = policies.map((policy) => new Simulation(policy, seed));
  const early = machines === undefined ? [] : await machineLines(machines);
  let lines = 0;
  let nowMs = 0;
  let isOver = false;
  const accept = (line: TraceLine): void => {
    for (const simulation of simulations) simulation.accept(line);
  };
  let next = 0;
  /** Lines of the other file up to that time. */
  const acceptMachines = (atMs: number): void => {
    for (let one = early[next]; one !== undefined && one.line.atMs <= atMs; one = early[next]) {
      const { line, at } = one;
      inFile(machines ?? '', at, () => accept(line));
      next += 1;
    }
  };
  await eachLine(trace, (text, at) => {
    const line = parsed(text);
    if (isOver) throw new TraceError('stands behind the end');
    if (line.atMs < nowMs)
      throw new TraceError(`t must not be less than in the line before, which has ${nowMs / 1000}`);
    nowMs = line.atMs;
    isOver = line.kind === 'end';
    acceptMachines(nowMs);
    inFile(trace, at, () => accept(line));
    lines = at;
  });
  if (lines === 0) throw new TraceError(`${trace} is no trace: it has no lines`);
  acceptMachines(nowMs);
  const simulated = simulations.map((simulation) => simulation.finish());
  const [first] = simulated;
  const tasks = first?.result.workspaces.reduce((sum, one) => sum + one.tasks, 0) ?? 0;
  return {
    result: { seed, seconds: nowMs / 1000, lines, tasks, policies: simulated.map(({ result }) => result) },
    simulated,
  };
}

/** Kind of a file, by its first line; undefined: neither. */
export async function fileKind(path: string): Promise<'trace' | 'recording' | undefined> {
  try {
    for await (const lines of linesOf(path)) {
      const text = lines.find((line) => line.trim() !== '');
      if (text === undefined) continue;
      const line: unknown = JSON.parse(text);
      if (typeof line !== 'object' || line === null) return undefined;
      return 'do' in line ? 'recording' : 'kind' in line ? 'trace' : undefined;
    }
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof LongLineError) return undefined;
    throw error;
  }
  return undefined;
}

interface Numbered {
  readonly line: TraceLine;
  readonly at: number;
}

/** The lines of the file of machines, the oldest first. */
async function machineLines(path: string): Promise<readonly Numbered[]> {
  const lines: Numbered[] = [];
  await eachLine(path, (text, at) => {
    const line = parsed(text);
    if (line.kind !== 'machine' && line.kind !== 'gone' && line.kind !== 'limit')
      throw new TraceError(`kind must be machine, gone or limit in a file of machines, and is ${line.kind}`);
    if (lines.length >= 2 * MOST_MACHINES) throw new TraceError(`there are more than ${2 * MOST_MACHINES} lines`);
    lines.push({ line, at });
  });
  return lines.toSorted((a, b) => a.line.atMs - b.line.atMs);
}

/** Calls for each line of the file that is not empty. @throws TraceError with file and line */
async function eachLine(path: string, use: (text: string, at: number) => void): Promise<void> {
  let at = 0;
  try {
    for await (const lines of linesOf(path))
      for (const text of lines) {
        at += 1;
        if (text.trim() === '') continue;
        inFile(path, at, () => use(text, at));
      }
  } catch (error) {
    if (error instanceof LongLineError) throw new TraceError(`${path}: ${error.message}`, { cause: error });
    throw error;
  }
}

/** An error that has the file and the line. */
class PlacedError extends TraceError {}

function inFile(path: string, at: number, use: () => void): void {
  try {
    use();
  } catch (error) {
    if (!(error instanceof TraceError) || error instanceof PlacedError) throw error;
    throw new PlacedError(`${path} line ${at}: ${error.message}`, { cause: error });
  }
}

function parsed(text: string): TraceLine {
  let line: unknown;
  try {
    line = JSON.parse(text);
  } catch (error) {
    throw new TraceError('is no JSON', { cause: error });
  }
  return readTraceLine(line);
}
