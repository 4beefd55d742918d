// Where a cold start's time goes, from the agent's own account
// of it (one log line per container that became ready). Pure.
import { median } from './stats.ts';
import { alignColumns, short } from './table.ts';

/**
 * A cold call: epoch milliseconds of its POST and of its answer,
 * and the agent's log line about the container that served it.
 */
export interface ColdCall {
  readonly postedAtMs: number;
  readonly answeredAtMs: number;
  readonly ready: ReadyLine;
}

export interface ReadyLine {
  readonly time: number;
  readonly durationMs: number;
  readonly phases: Readonly<Record<string, number>>;
}

/** Steps in order; the first and the last are seen from outside the agent. */
const STEPS: readonly (readonly [name: string, what: string])[] = [
  ['decide', 'from the POST to the order at the agent: admission, queue, scaling, placement, link'],
  ['proceed', 'acknowledgement and permission, each noted durably'],
  ['prepare', 'image looked at, code archive held'],
  ['turn', 'its turn: few start at once'],
  ['holder', 'a network that waits, else a new one'],
  ['mounts', 'view of the code, volumes'],
  ['create', 'the engine creates'],
  ['start', 'the engine starts'],
  ['hello', "the container's init and Python, until the runner dials"],
  ['on_start', 'handler imported, on_start run'],
  ['answer', 'the task sent, run and answered'],
];

/** @returns undefined for a line that says something else */
export function readyLine(line: string): ReadyLine | undefined {
  if (!line.includes('"container ready"')) return undefined;
  const parsed = JSON.parse(line) as Partial<ReadyLine>;
  const { time, durationMs, phases } = parsed;
  return time === undefined || durationMs === undefined || phases === undefined
    ? undefined
    : { time: Number(time), durationMs, phases };
}

/** Medians of each step, in milliseconds. */
export function phasesOf(calls: readonly ColdCall[]): Readonly<Record<string, number>> {
  const figures: Record<string, number> = {};
  for (const [step] of STEPS) figures[step] = median(calls.map((call) => stepOf(call, step)));
  return figures;
}

function stepOf({ postedAtMs, answeredAtMs, ready }: ColdCall, step: string): number {
  if (step === 'decide') return ready.time - ready.durationMs - postedAtMs;
  if (step === 'answer') return answeredAtMs - ready.time;
  return ready.phases[step] ?? 0;
}

/** A table of the steps, those that cost most marked by their share. */
export function phaseTable(figures: Readonly<Record<string, number>>): string {
  const sum = STEPS.reduce((total, [step]) => total + (figures[step] ?? 0), 0);
  return alignColumns([
    ['step', 'ms', 'share', ''],
    ...STEPS.map(([step, what]) => {
      const ms = figures[step] ?? 0;
      return [step, short(ms), `${Math.round((100 * ms) / sum)} %`, what];
    }),
    ['all', short(sum), '', ''],
  ]);
}
