// Makes traces: workspaces that ask for more or less, by day and in bursts, with tasks of different lengths. The same
// options and seed make the same trace. Pure; lines come one by one, so a trace may be longer than memory.
import { Heap } from '../plan/heap.ts';
import { Random } from './random.ts';

export interface GeneratorOptions {
  readonly seed: number;
  readonly hours: number;
  readonly machines: number;
  readonly gpu: string;
  readonly gpusPerMachine: number;
  /** Names of workspaces; the first one asks for most. */
  readonly workspaces: readonly string[];
  /** Exponent of Zipf's law: the n-th workspace asks for 1 / n ^ skew of the first. 0: all ask for the same. */
  readonly skew: number;
  /** GPU time of all tasks, as a part of that of all machines. */
  readonly load: number;
  /** Numbers of GPUs: each workspace has a deployment for each. */
  readonly sizes: readonly number[];
  /** Part by which the load of a day rises above its mean, and falls below it. */
  readonly dayCurve: number;
  /** Bursts of each workspace in a day. */
  readonly bursts: number;
  readonly medianSeconds: number;
  /** Spread of lengths: the standard deviation of their logarithm. */
  readonly sigma: number;
  readonly startSeconds: number;
  readonly oneTask: boolean;
}

export type GeneratedLine = Readonly<Record<string, unknown>>;

/** Most tasks that a trace is expected to have. */
export const MOST_GENERATED = 20_000_000;

const HOUR_SECONDS = 3600;
const DAY_SECONDS = 86_400;
/** In a burst a workspace asks for ten times as much, for five minutes. */
const BURST_FACTOR = 10;
const BURST_SECONDS = 300;
/** No task is longer. */
const LONGEST_SECONDS = DAY_SECONDS;

/** Number of tasks that such a trace has, about. */
export function expectedTasks(options: GeneratorOptions): number {
  return options.hours * HOUR_SECONDS * sourcesOf(options).reduce((sum, { rate }) => sum + rate, 0);
}

export function machineLines({ machines, gpu, gpusPerMachine }: GeneratorOptions): readonly GeneratedLine[] {
  return [{ kind: 'machine', machine: 'm', count: machines, gpu, gpus: gpusPerMachine }];
}

/** The lines of the trace, without machines. */
export function* traceLines(options: GeneratorOptions): Generator<GeneratedLine> {
  const { startSeconds, oneTask, hours, gpu } = options;
  const endSeconds = hours * HOUR_SECONDS;
  const sources = sourcesOf(options);
  for (const { deployment, workspace, gpus } of sources)
    yield {
      kind: 'deploy',
      deployment,
      workspace,
      gpu,
      gpus,
      start_seconds: startSeconds,
      ...(oneTask ? { one_task: true } : {}),
    };
  const next = new Heap<Source>((a, b) => a.atSeconds < b.atSeconds);
  for (const source of sources) {
    source.advance(options);
    next.push(source);
  }
  for (let source = next.pop(); source !== undefined && source.atSeconds < endSeconds; source = next.pop()) {
    const seconds = Math.min(LONGEST_SECONDS, source.random.logNormal(options.medianSeconds, options.sigma));
    yield { t: milli(source.atSeconds), kind: 'task', deployment: source.deployment, seconds: milli(seconds) };
    source.advance(options);
    next.push(source);
  }
  yield { t: endSeconds, kind: 'end' };
}

/** Seconds as a trace has them, to a millisecond. */
const milli = (seconds: number): number => Math.floor(seconds * 1000) / 1000;

/** Tasks of a deployment: they come independently of each other, at a rate that changes. */
class Source {
  readonly deployment: string;
  readonly workspace: string;
  readonly gpus: number;
  /** Mean number of tasks in a second. */
  readonly rate: number;
  readonly random: Random;
  readonly #bursts: Bursts;
  atSeconds = 0;

  constructor(workspace: string, gpus: number, rate: number, { seed, bursts }: GeneratorOptions) {
    this.deployment = `${workspace}-${gpus}`;
    this.workspace = workspace;
    this.gpus = gpus;
    this.rate = rate;
    this.random = new Random(seed, this.deployment);
    this.#bursts = new Bursts(new Random(seed, 'bursts', workspace), bursts);
  }

  /** Goes on to the next task. */
  advance({ dayCurve, bursts }: GeneratorOptions): void {
    // Bursts are a part of the mean. Tasks come at the highest rate, and some are left out at other times.
    const mean = 1 + (bursts * BURST_SECONDS * (BURST_FACTOR - 1)) / DAY_SECONDS;
    const most = (1 + dayCurve) * (bursts > 0 ? BURST_FACTOR : 1);
    for (;;) {
      this.atSeconds += this.random.exponential(mean / (this.rate * most));
      const byDay = 1 + dayCurve * Math.sin((2 * Math.PI * this.atSeconds) / DAY_SECONDS);
      const now = byDay * (this.#bursts.isOn(this.atSeconds) ? BURST_FACTOR : 1);
      if (this.random.next() * most < now) return;
    }
  }
}

/** Bursts of a workspace, which all of its deployments have at the same times. */
class Bursts {
  readonly #random: Random;
  readonly #gapSeconds: number;
  #beginsAt: number;

  constructor(random: Random, aDay: number) {
    this.#random = random;
    this.#gapSeconds = aDay === 0 ? Infinity : Math.max(0, DAY_SECONDS / aDay - BURST_SECONDS);
    this.#beginsAt = aDay === 0 ? Infinity : random.exponential(this.#gapSeconds);
  }

  /** @param atSeconds - not before the time that was asked for last */
  isOn(atSeconds: number): boolean {
    while (atSeconds >= this.#beginsAt + BURST_SECONDS)
      this.#beginsAt += BURST_SECONDS + this.#random.exponential(this.#gapSeconds);
    return atSeconds >= this.#beginsAt;
  }
}

function sourcesOf(options: GeneratorOptions): readonly Source[] {
  const { workspaces, skew, load, machines, gpusPerMachine, sizes, medianSeconds, sigma } = options;
  const parts = workspaces.map((_name, index) => 1 / (index + 1) ** skew);
  const all = parts.reduce((sum, part) => sum + part, 0);
  const meanSeconds = medianSeconds * Math.exp(sigma ** 2 / 2);
  return workspaces.flatMap((workspace, index) =>
    sizes.map((gpus) => {
      const gpuSeconds = (load * machines * gpusPerMachine * (parts[index] ?? 0)) / all / sizes.length;
      return new Source(workspace, gpus, gpuSeconds / (gpus * meanSeconds), options);
    }),
  );
}
