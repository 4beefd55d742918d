// `longshore top` as lines: machines, queues and containers within the width of a terminal. Pure.
import { ageOf, bytesOf, coresOf, counted, memoryOf, usedCoresOf, withNotes } from '../format.ts';
import { numberField, objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { withoutControls } from '../print.ts';
import { kindOfContainer, servedBy } from './deployment-reference.ts';

/** A queue with tasks, a deployment with containers, or containers of one kind that have neither. */
export interface QueueRow {
  readonly name: string;
  readonly kind: string;
  readonly waiting: number;
  readonly running: number;
  readonly containers: number;
  /** RFC 3339; empty: nothing waits. */
  readonly oldestWaiting: string;
  /** The setting at which its tasks wait, as `max_containers 1`; empty: at none, or nobody knows. */
  readonly bound: string;
}

export interface ContainerRow {
  readonly id: string;
  readonly deployment: string;
  readonly status: string;
  readonly machineId: string;
  readonly since: string;
  /** As the machine last said; null: not known. */
  readonly cpuMillicores: number | null;
  readonly memoryBytes: number | null;
  readonly gpuPct: number | null;
}

export interface MachineRow {
  readonly id: string;
  readonly pool: string;
  readonly status: string;
  readonly cpuMillicores: number;
  readonly cpuPct: number | null;
  readonly memoryMib: number;
  readonly memoryPct: number | null;
  readonly gpu: string;
  readonly gpuCount: number;
  readonly freeGpuCount: number | null;
  readonly containers: number | null;
}

export interface Snapshot {
  readonly url: string;
  /** null: the token may not see machines. */
  readonly machines: readonly MachineRow[] | null;
  readonly queues: readonly QueueRow[];
  readonly containers: readonly ContainerRow[];
  /** Whether there are more open tasks than were counted. */
  readonly isCut: boolean;
}

type Cells = readonly string[];
/** Gives a cell its colour, which takes no place. */
type Paint = (heading: string, cell: string) => string;
interface Column {
  readonly heading: string;
  /** Widest cell; a longer one keeps its end where that tells things apart. */
  readonly most: number;
  readonly keeps?: 'end';
}

const MACHINE: readonly Column[] = [
  { heading: 'MACHINE', most: 12, keeps: 'end' },
  { heading: 'POOL', most: 12 },
  { heading: 'STATUS', most: 16 },
  { heading: 'CPU', most: 12 },
  { heading: 'MEMORY', most: 15 },
  { heading: 'GPU FREE', most: 13 },
  { heading: 'RUNS', most: 4 },
];
const QUEUE: readonly Column[] = [
  { heading: 'QUEUE', most: 30 },
  { heading: 'KIND', most: 9 },
  { heading: 'WAIT', most: 6 },
  { heading: 'RUN', most: 6 },
  { heading: 'OLDEST', most: 6 },
  { heading: 'CONTAINERS', most: 10 },
];
/** Shown where a queue waits at a bound. */
const BOUND: Column = { heading: 'BOUND', most: 24 };
const CONTAINER: readonly Column[] = [
  { heading: 'CONTAINER', most: 8, keeps: 'end' },
  { heading: 'OF', most: 20 },
  { heading: 'STATUS', most: 9 },
  { heading: 'MACHINE', most: 8, keeps: 'end' },
  { heading: 'CPU', most: 6 },
  { heading: 'MEMORY', most: 9 },
  { heading: 'GPU', most: 4 },
  { heading: 'AGE', most: 5 },
];

/** @param rows - lines that there is room for; undefined: all are shown */
export function topLines(
  snapshot: Snapshot,
  {
    columns,
    rows,
    paint = (_, cell) => cell,
  }: { readonly columns: number; readonly rows?: number; readonly paint?: Paint },
  nowMs: number,
): readonly string[] {
  const { machines, queues, containers, isCut } = snapshot;
  const waiting = queues.reduce((sum, queue) => sum + queue.waiting, 0);
  const running = queues.reduce((sum, queue) => sum + queue.running, 0);
  const more = isCut ? '+' : '';
  const head = [
    new Date(nowMs).toISOString().slice(11, 19),
    ...(machines === null ? [] : [counted(machines.length, 'machine')]),
    counted(containers.length, 'container'),
    `${counted(waiting, 'task')}${more} waiting, ${running}${more} running`,
  ].join('  ');
  const isBound = queues.some(({ bound }) => bound !== '');
  const sections = [
    ...(machines === null || machines.length === 0
      ? []
      : [table(MACHINE, machines.map(machineCells), { columns, paint })]),
    table(
      isBound ? [...QUEUE, BOUND] : QUEUE,
      queues.map((queue) => queueCells(queue, nowMs)),
      { columns, paint },
    ),
    table(
      CONTAINER,
      containers.map((container) => containerCells(container, nowMs)),
      { columns, paint },
    ),
  ];
  const room = rows === undefined ? undefined : rows - 1 - sections.length;
  return [head.slice(0, columns), ...fitted(sections, room).flatMap((lines) => ['', ...lines])];
}

const machineCells = (machine: MachineRow): Cells => [
  machine.id,
  machine.pool,
  machine.status,
  `${percent(machine.cpuPct)} of ${coresOf(machine.cpuMillicores)}`,
  `${percent(machine.memoryPct)} of ${memoryOf(machine.memoryMib)}`,
  machine.gpuCount === 0 ? '-' : `${machine.freeGpuCount ?? '?'} of ${machine.gpuCount} ${machine.gpu}`,
  machine.containers === null ? '-' : String(machine.containers),
];

const queueCells = (queue: QueueRow, nowMs: number): Cells => [
  queue.name,
  queue.kind,
  String(queue.waiting),
  String(queue.running),
  queue.oldestWaiting === '' ? '-' : ageOf(queue.oldestWaiting, nowMs),
  String(queue.containers),
  queue.bound,
];

const containerCells = (container: ContainerRow, nowMs: number): Cells => [
  container.id,
  container.deployment,
  container.status,
  container.machineId === '' ? '-' : container.machineId,
  container.cpuMillicores === null ? '-' : usedCoresOf(container.cpuMillicores),
  container.memoryBytes === null ? '-' : bytesOf(container.memoryBytes),
  percent(container.gpuPct, '-'),
  ageOf(container.since, nowMs),
];

const percent = (value: number | null, none = '?%'): string => (value === null ? none : `${Math.round(value)}%`);

/** A table in the width: cells are cut, and at last the lines are, which then have no colours. */
function table(
  columns: readonly Column[],
  rows: readonly Cells[],
  { columns: width, paint }: { readonly columns: number; readonly paint: Paint },
): readonly string[] {
  const shown = rows.map((row) => columns.map((column, index) => cut(row[index] ?? '', column)));
  const widths = columns.map(({ heading }, index) =>
    Math.max(heading.length, ...shown.map((row) => (row[index] ?? '').length)),
  );
  const line = (cells: Cells, painter: Paint): string =>
    cells
      .map((cell, index) => {
        const gap = ' '.repeat((widths[index] ?? 0) - cell.length);
        return `${painter(columns[index]?.heading ?? '', cell)}${gap}`;
      })
      .join('  ')
      .trimEnd();
  const plain: Paint = (_, cell) => cell;
  const fitting = (cells: Cells, painter: Paint): string => {
    const text = line(cells, plain);
    return text.length > width ? text.slice(0, width) : line(cells, painter);
  };
  return [
    fitting(
      columns.map(({ heading }) => heading),
      plain,
    ),
    ...shown.map((cells) => fitting(cells, paint)),
  ];
}

function cut(given: string, { most, keeps }: Column): string {
  const text = withoutControls(given);
  if (text.length <= most) return text;
  return keeps === 'end' ? text.slice(-most) : `${text.slice(0, most - 1)}…`;
}

/** Cuts the longest sections until all fit; the last line of a cut one says how many are hidden. */
function fitted(sections: readonly (readonly string[])[], room: number | undefined): readonly (readonly string[])[] {
  if (room === undefined) return sections;
  const heights = sections.map((lines) => lines.length);
  const total = (): number => heights.reduce((sum, height) => sum + height, 0);
  while (total() > room) {
    const longest = heights.indexOf(Math.max(...heights));
    const height = heights[longest] ?? 0;
    if (height <= 2) break;
    heights[longest] = height - 1;
  }
  return sections.map((lines, index) => {
    const height = heights[index] ?? lines.length;
    return height >= lines.length ? lines : [...lines.slice(0, height - 1), `… ${lines.length - height + 1} more`];
  });
}

/** Rows of the scheduler's answers. @param machines - null: the token may not see them */
export function snapshotOf(
  url: string,
  {
    machines,
    deployments,
    containers,
    tasks,
    bounds = new Map<string, string>(),
  }: {
    readonly machines: readonly JsonObject[] | null;
    readonly deployments: readonly JsonObject[];
    readonly containers: readonly JsonObject[];
    readonly tasks: readonly JsonObject[];
    /** By stub. */
    readonly bounds?: ReadonlyMap<string, string>;
  },
  mostTasks: number,
): Snapshot {
  const byStub = new Map<string, JsonObject>();
  for (const deployment of deployments) byStub.set(textField(deployment, 'stubId'), deployment);
  const nameOf = (stubId: string, other: string): string => {
    const deployment = byStub.get(stubId);
    return deployment === undefined ? other : `${textField(deployment, 'name')}/v${numberField(deployment, 'version')}`;
  };
  return {
    url,
    machines: machines === null ? null : machines.map(machineRow),
    queues: queueRows(tasks, containers, { byStub, bounds }, nameOf),
    containers: containers.map((container) => {
      const usage = objectField(container, 'usage');
      const isKnown = textField(usage, 'sampledAt') !== '';
      const gpu = objectField(usage, 'gpu');
      return {
        id: textField(container, 'containerId'),
        deployment: nameOf(textField(container, 'stubId'), servedBy(container)),
        status: textField(container, 'status'),
        machineId: textField(container, 'machineId'),
        since: textField(container, 'startedAt') || textField(container, 'scheduledAt'),
        cpuMillicores: isKnown ? numberField(usage, 'cpuMillicores') : null,
        memoryBytes: isKnown ? numberField(usage, 'memoryBytes') : null,
        gpuPct: typeof gpu['utilizationPct'] === 'number' ? gpu['utilizationPct'] : null,
      };
    }),
    isCut: tasks.length >= mostTasks,
  };
}

function machineRow(machine: JsonObject): MachineRow {
  const metrics = objectField(machine, 'machineMetrics');
  const isKnown = Object.keys(metrics).length > 0;
  return {
    id: textField(machine, 'id'),
    pool: textField(machine, 'poolName'),
    status: withNotes(textField(machine, 'status'), textsField(machine, 'conditions')),
    cpuMillicores: numberField(machine, 'cpu'),
    cpuPct: isKnown ? numberField(metrics, 'cpuUtilizationPct') : null,
    memoryMib: numberField(machine, 'memory'),
    memoryPct: isKnown ? numberField(metrics, 'memoryUtilizationPct') : null,
    gpu: textField(machine, 'gpu'),
    gpuCount: numberField(machine, 'gpuCount'),
    freeGpuCount: isKnown ? numberField(metrics, 'freeGpuCount') : null,
    containers: isKnown ? numberField(metrics, 'containerCount') : null,
  };
}

const stubOf = (one: JsonObject): string => textField(one, 'stubId');

/** Whether no container works on the task yet. */
export const isWaiting = (task: JsonObject): boolean => textField(task, 'status') !== 'RUNNING';

/**
 * Queues with open tasks or containers, the fullest first. Stubs without a deployment and without open tasks, such as
 * those of sandboxes, have no name: those of one kind are one row, named as lists of containers name them.
 */
function queueRows(
  tasks: readonly JsonObject[],
  containers: readonly JsonObject[],
  {
    byStub,
    bounds,
  }: { readonly byStub: ReadonlyMap<string, JsonObject>; readonly bounds: ReadonlyMap<string, string> },
  nameOf: (stubId: string, other: string) => string,
): readonly QueueRow[] {
  const named = new Set([...byStub.keys(), ...tasks.map(stubOf)]);
  const keyOf = (one: JsonObject): string => (named.has(stubOf(one)) ? '' : kindOfContainer(one)) || stubOf(one);
  const rows = [...new Set([...tasks.map(stubOf), ...containers.map(keyOf)])].map((key) => {
    const own = tasks.filter((task) => stubOf(task) === key);
    const kept = containers.filter((container) => keyOf(container) === key);
    const waiting = own.filter(isWaiting);
    const times = waiting.map((task) => textField(task, 'createdAt')).filter((time) => time !== '');
    const type = textField(byStub.get(key) ?? {}, 'stubType');
    return {
      name: nameOf(key, textField(own[0] ?? {}, 'stubName') || key),
      kind: type.split('/', 1)[0] || kindOfContainer(kept[0] ?? {}),
      waiting: waiting.length,
      running: own.length - waiting.length,
      containers: kept.length,
      oldestWaiting: times.toSorted()[0] ?? '',
      bound: bounds.get(key) ?? '',
    };
  });
  return rows.toSorted(
    (a, b) => b.waiting - a.waiting || b.running - a.running || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  );
}
