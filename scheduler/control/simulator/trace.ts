// Lines of a trace: what happens to an installation that is simulated. A line is a JSON object, whose `kind` says what
// happens at `t`, in seconds. Names may be texts or numbers. Lines are checked strictly: a fault names line and field.
import { gpuTextsOf, readGpuTerm } from '#shared/domain/gpu-terms.ts';
import { CPU_MARKET, PRIORITIES } from '../../domain/shares.ts';
import type { MarketAmounts, PriorityClass, WorkspaceShare } from '../../domain/shares.ts';

/** Seconds, or percentiles of them: parts from 0 to 1 with their values, both rising. */
export type Seconds = number | readonly (readonly [part: number, seconds: number])[];

export interface MachineLine {
  readonly kind: 'machine';
  readonly atMs: number;
  readonly machine: string;
  /** Number of such machines; with several, a number is put behind the name. */
  readonly count: number;
  readonly pool: string;
  /** Model; empty: no GPU. */
  readonly gpu: string;
  readonly gpus: number;
  /** Memory of one GPU; 0: not known. */
  readonly gpuMemoryBytes: number;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
}

/** The machine is lost, with the containers on it. */
export interface GoneLine {
  readonly kind: 'gone';
  readonly atMs: number;
  readonly machine: string;
}

/** A deployment, or another version of it: containers made from then on are as this line says. */
export interface DeployLine {
  readonly kind: 'deploy';
  readonly atMs: number;
  readonly deployment: string;
  readonly workspace: string;
  readonly gpu: readonly string[];
  readonly gpus: number;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
  readonly pool: string;
  readonly priority: PriorityClass;
  /** From the container's place until it takes tasks. */
  readonly startSeconds: Seconds;
  /** Time of tasks that name none; undefined: each names its own. */
  readonly runSeconds: Seconds | undefined;
  /** Whether each task has a container of its own, which ends with the task. */
  readonly oneTask: boolean;
  /** Whether its containers may end for others, as the policy says. */
  readonly interruptible: boolean;
  readonly tasksPerContainer: number;
  readonly minContainers: number;
  readonly maxContainers: number;
  readonly keepWarmMs: number;
  readonly windowMs: number;
}

/** How a workspace shares the machines from then on. */
export interface LimitLine {
  readonly kind: 'limit';
  readonly atMs: number;
  readonly workspace: string;
  readonly share: WorkspaceShare;
}

/** A task, or several that come at equal distances over some time. */
export interface TaskLine {
  readonly kind: 'task';
  readonly atMs: number;
  readonly deployment: string;
  /** undefined: as the deployment says. */
  readonly runMs: number | undefined;
  readonly count: number;
  readonly overMs: number;
}

/** The end of the trace, until which is simulated. */
export interface EndLine {
  readonly kind: 'end';
  readonly atMs: number;
}

export type TraceLine = MachineLine | GoneLine | DeployLine | LimitLine | TaskLine | EndLine;

/** A file that is no trace, or that has a line which makes no sense. */
export class TraceError extends Error {}

/** Ten years. */
export const MOST_SECONDS = 10 * 365 * 86_400;
const LONGEST_NAME = 128;
export const MOST_TASKS_OF_A_LINE = 1_000_000;
export const MOST_MACHINES = 20_000;
const MOST_GPUS = 64;
const MOST_MARKETS = 32;
const MOST_PERCENTILES = 32;
const MOST_CONTAINERS = 100_000;
const GIB = 1024 ** 3;
/** Amounts of a machine for each of its GPUs, and of one without. */
const CPUS_EACH = 16;
const MEMORY_GIB_EACH = 64;
const KEEP_WARM_SECONDS = 60;

const FIELDS = {
  machine: ['machine', 'count', 'pool', 'gpu', 'gpus', 'gpu_memory_gib', 'cpus', 'memory_gib'],
  gone: ['machine'],
  deploy: [
    ...['deployment', 'workspace', 'gpu', 'gpus', 'cpus', 'memory_gib', 'pool', 'priority', 'start_seconds'],
    ...['run_seconds', 'one_task', 'tasks_per_container', 'min_containers', 'max_containers', 'keep_warm_seconds'],
    ...['window_seconds', 'interruptible'],
  ],
  limit: ['workspace', 'weight', 'guaranteed', 'limits'],
  task: ['deployment', 'seconds', 'count', 'over_seconds'],
  end: [],
} as const satisfies Record<TraceLine['kind'], readonly string[]>;
const ALLOWED = Object.fromEntries(
  Object.entries(FIELDS).map(([kind, names]) => [kind, new Set<string>(['t', 'kind', ...names])]),
);

const READERS: { readonly [Kind in TraceLine['kind']]: (line: Fields, atMs: number) => TraceLine } = {
  machine: readMachine,
  gone: (line, atMs) => ({ kind: 'gone', atMs, machine: line.name('machine') }),
  deploy: readDeploy,
  limit: readLimit,
  task: readTask,
  end: (_line, atMs) => ({ kind: 'end', atMs }),
};

/** @param line - a parsed line @throws TraceError, which names the field */
export function readTraceLine(line: unknown): TraceLine {
  if (typeof line !== 'object' || line === null || Array.isArray(line)) throw new TraceError('is no JSON object');
  const { kind } = line as { readonly kind?: unknown };
  if (typeof kind !== 'string' || !Object.hasOwn(READERS, kind))
    throw new TraceError(`kind must be one of ${Object.keys(READERS).join(', ')}, and is ${shown(kind)}`);
  const allowed = ALLOWED[kind];
  for (const name in line)
    if (allowed?.has(name) !== true) throw new TraceError(`${name} is no field of a ${kind} line`);
  const fields = new Fields(line as Record<string, unknown>);
  const isStart = kind === 'machine' || kind === 'deploy' || kind === 'limit';
  return READERS[kind as TraceLine['kind']](fields, fields.ms('t', isStart ? 0 : undefined));
}

const shown = (value: unknown): string =>
  value === undefined ? 'not there' : (JSON.stringify(value)?.slice(0, 80) ?? 'not there');

class Fields {
  readonly #line: Readonly<Record<string, unknown>>;

  constructor(line: Readonly<Record<string, unknown>>) {
    this.#line = line;
  }

  has(name: string): boolean {
    return this.#line[name] !== undefined;
  }

  refuse(name: string, must: string): never {
    throw new TraceError(`${name} must be ${must}, and is ${shown(this.#line[name])}`);
  }

  name(name: string, otherwise?: string): string {
    const value = this.#line[name];
    if (value === undefined && otherwise !== undefined) return otherwise;
    if (typeof value === 'string' && value.length >= 1 && value.length <= LONGEST_NAME && !/\p{Cc}/u.test(value))
      return value;
    if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return String(value);
    return this.refuse(name, `a text of 1 to ${LONGEST_NAME} characters or a whole number`);
  }

  number(name: string, from: number, to: number, otherwise?: number): number {
    const value = this.#line[name];
    if (value === undefined && otherwise !== undefined) return otherwise;
    if (typeof value === 'number' && value >= from && value <= to) return value;
    return this.refuse(name, `a number from ${from} to ${to}`);
  }

  whole(name: string, from: number, to: number, otherwise?: number): number {
    const value = this.number(name, from, to, otherwise);
    return Number.isInteger(value) ? value : this.refuse(name, `a whole number from ${from} to ${to}`);
  }

  /** Seconds, in milliseconds. */
  ms(name: string, otherwise?: number): number {
    return Math.round(this.number(name, 0, MOST_SECONDS, otherwise) * 1000);
  }

  yes(name: string): boolean {
    const value = this.#line[name] ?? false;
    return typeof value === 'boolean' ? value : this.refuse(name, 'true or false');
  }

  seconds(name: string): Seconds {
    const value = this.#line[name];
    if (typeof value !== 'object' || value === null) return this.number(name, 0, MOST_SECONDS);
    const must = `a number of seconds, or percentiles such as {"50": 2, "95": 9}, which rise`;
    const pairs = Object.entries(value)
      .map(([key, seconds]): [number, unknown] => [
        /^\d{1,3}(\.\d{1,3})?$/.test(key) ? Number(key) / 100 : NaN,
        seconds,
      ])
      .toSorted(([a], [b]) => a - b);
    let before = 0;
    for (const [part, seconds] of pairs) {
      if (!(part >= 0 && part <= 1) || typeof seconds !== 'number') return this.refuse(name, must);
      if (!(seconds >= before && seconds <= MOST_SECONDS)) return this.refuse(name, must);
      before = seconds;
    }
    if (pairs.length === 0 || pairs.length > MOST_PERCENTILES)
      return this.refuse(name, `from 1 to ${MOST_PERCENTILES} percentiles`);
    return pairs as [number, number][];
  }

  amounts(name: string): MarketAmounts {
    const value = this.#line[name] ?? {};
    const must = `numbers by market, such as {"H100": 8}, at most ${MOST_MARKETS}`;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return this.refuse(name, must);
    const pairs = Object.entries(value as Readonly<Record<string, unknown>>).map(([market, amount]) => {
      if (typeof amount !== 'number' || !(amount >= 0 && amount <= 1e6)) return this.refuse(name, must);
      return [market === CPU_MARKET ? market : this.#modelOf(name, market), amount] as const;
    });
    return pairs.length <= MOST_MARKETS ? Object.fromEntries(pairs) : this.refuse(name, must);
  }

  model(name: string): string {
    const value = this.#line[name] ?? '';
    if (typeof value !== 'string') return this.refuse(name, 'a GPU model, such as H100');
    return value === '' ? '' : this.#modelOf(name, value);
  }

  #modelOf(name: string, text: string): string {
    const term = readGpuTerm(text);
    if (typeof term === 'string') throw new TraceError(`${name}: ${term}`);
    return term.model === term.text ? term.model : this.refuse(name, 'a GPU model without conditions');
  }

  gpuTerms(name: string): readonly string[] {
    const value = this.#line[name] ?? '';
    if (typeof value !== 'string') return this.refuse(name, 'a text such as "H100|A100:>=40GiB"');
    return gpuTextsOf(value).map((text) => {
      const term = readGpuTerm(text);
      if (typeof term === 'string') throw new TraceError(`${name}: ${term}`);
      return term.text;
    });
  }
}

function readMachine(line: Fields, atMs: number): MachineLine {
  const gpu = line.model('gpu');
  const gpus = line.whole('gpus', 0, MOST_GPUS, gpu === '' ? 0 : 1);
  if (gpus > 0 && gpu === '') line.refuse('gpu', 'the model, because gpus is not 0');
  const each = Math.max(1, gpus);
  return {
    kind: 'machine',
    atMs,
    machine: line.name('machine'),
    count: line.whole('count', 1, MOST_MACHINES, 1),
    pool: line.name('pool', 'default'),
    gpu: gpus === 0 ? '' : gpu,
    gpus,
    gpuMemoryBytes: line.number('gpu_memory_gib', 0, 10_000, 0) * GIB,
    cpuMillicores: Math.round(line.number('cpus', 0.1, 10_000, CPUS_EACH * each) * 1000),
    memoryBytes: Math.round(line.number('memory_gib', 0.1, 1_000_000, MEMORY_GIB_EACH * each) * GIB),
  };
}

function readDeploy(line: Fields, atMs: number): DeployLine {
  const gpu = line.gpuTerms('gpu');
  const gpus = line.whole('gpus', 0, MOST_GPUS, gpu.length === 0 ? 0 : 1);
  if (gpus > 0 && gpu.length === 0) line.refuse('gpu', 'a model or any, because gpus is not 0');
  const minContainers = line.whole('min_containers', 0, MOST_CONTAINERS, 0);
  return {
    kind: 'deploy',
    atMs,
    deployment: line.name('deployment'),
    workspace: line.name('workspace'),
    gpu: gpus === 0 ? [] : gpu,
    gpus,
    cpuMillicores: Math.round(line.number('cpus', 0.01, 10_000, 1) * 1000),
    memoryBytes: Math.round(line.number('memory_gib', 0.01, 1_000_000, 1) * GIB),
    pool: line.name('pool', ''),
    priority: readPriority(line),
    startSeconds: line.has('start_seconds') ? line.seconds('start_seconds') : 0,
    runSeconds: line.has('run_seconds') ? line.seconds('run_seconds') : undefined,
    oneTask: line.yes('one_task'),
    interruptible: line.yes('interruptible'),
    tasksPerContainer: line.yes('one_task') ? 1 : line.whole('tasks_per_container', 1, 10_000, 1),
    minContainers,
    maxContainers: line.whole('max_containers', Math.max(1, minContainers), MOST_CONTAINERS, MOST_CONTAINERS),
    keepWarmMs: line.ms('keep_warm_seconds', KEEP_WARM_SECONDS),
    windowMs: line.ms('window_seconds', 0),
  };
}

function readPriority(line: Fields): PriorityClass {
  const name = line.name('priority', 'normal');
  return PRIORITIES.find((one) => one === name) ?? line.refuse('priority', `one of ${PRIORITIES.join(', ')}`);
}

function readLimit(line: Fields, atMs: number): LimitLine {
  const share = {
    weight: line.number('weight', 0.01, 1000, 1),
    guaranteed: line.amounts('guaranteed'),
    limits: line.amounts('limits'),
  };
  for (const [market, amount] of Object.entries(share.limits))
    if (amount < (share.guaranteed[market] ?? 0))
      throw new TraceError(`limits must be at least what is guaranteed, and has ${amount} of ${market}`);
  return { kind: 'limit', atMs, workspace: line.name('workspace'), share };
}

function readTask(line: Fields, atMs: number): TaskLine {
  return {
    kind: 'task',
    atMs,
    deployment: line.name('deployment'),
    runMs: line.has('seconds') ? line.ms('seconds') : undefined,
    count: line.whole('count', 1, MOST_TASKS_OF_A_LINE, 1),
    overMs: line.ms('over_seconds', 0),
  };
}
