// `console` (G19): the cost of the web console. Requests of its views are measured beside a read of one task, and with
// all of the data beside a tenth. Then: how long they hold up other reads, tabs that are open, bytes of scripts and
// of first lists. Both stores take turns. The data is in `console-data.ts`, the requests are in `console-views.ts`.
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { sleep } from '#shared/backoff.ts';
import { load } from '../load.ts';
import { measureOf } from '../measure.ts';
import type { Figures, Measure, Round } from '../measure.ts';
import { inTurn } from '../rounds.ts';
import { median, percentile } from '../stats.ts';
import { alignColumns, short } from '../table.ts';
import { startConsolePlane } from './console-data.ts';
import type { Answer, ConsolePlane, ConsoleSize, StoreKind } from './console-data.ts';
import { Tabs } from './console-tabs.ts';
import { olderReads, viewsOf } from './console-views.ts';
import type { View } from './console-views.ts';
import type { SuiteContext, SuiteResult } from './suite.ts';

interface Size extends ConsoleSize {
  readonly passes: number;
  readonly holdPasses: number;
  readonly seconds: number;
}

const FULL: Size = {
  tasks: 100_000,
  deployments: 1_000,
  containers: 5_000,
  machines: 1_000,
  passes: 8,
  holdPasses: 1,
  seconds: 2,
};
const QUICK: Size = { ...tenth(FULL), passes: 12, holdPasses: 2 };
const STORES: readonly StoreKind[] = ['embedded', 'postgres'];
/** Answers are kept for a second, some for longer: the next pass is to meet most of them anew. */
const PASS_MS = 1_100;
const SETTLE_MS = 2_000;
const IDLE_TABS = 50;
const BUSY_TABS = 200;
const CONNECTIONS = 64;
const KIB = 1024;
/** The level of `scheduler/api/http/console/compressed.ts`. */
const GZIP_LEVEL = 4;
/** Time between two reads of the reader that is held up. */
const PROBE_MS = 1;

function tenth<T extends ConsoleSize>(size: T): T {
  const { tasks, deployments, containers, machines } = size;
  return {
    ...size,
    tasks: tasks / 10,
    deployments: deployments / 10,
    containers: containers / 10,
    machines: machines / 10,
  };
}

export async function consoleViews(context: SuiteContext): Promise<SuiteResult> {
  const size = context.isQuick ? QUICK : FULL;
  const measures: (Measure | undefined)[] = [];
  const rounds: Round[] = [];
  const texts: string[] = [];
  const figures: Record<string, unknown> = {};
  for (const kind of STORES) {
    const place = context.place.part();
    const own = { ...context, place };
    const few = await startConsolePlane(own, kind, tenth(size));
    const many = await startConsolePlane(own, kind, size);
    const bytes = await firstBytes(many);
    const { measures: seen, rounds: kept, text, details } = await views(own, kind, size, few, many, bytes);
    measures.push(...seen);
    rounds.push(...kept);
    texts.push(text);
    figures[kind] = details;
    const tabs = await withTabs(own, kind, size, many);
    measures.push(...tabs.measures);
    rounds.push(...tabs.rounds);
    for (const problem of await place.close()) context.say(`console: not cleaned up: ${problem}`);
  }
  const script = await scriptBytes(context.place.directory);
  measures.push(measureOf('console', 'script', 'KiB', [oneRound({ script: script / KIB })], 1));
  return { measures, rounds, details: { text: texts.join('\n'), figures } };
}

const oneRound = (product: Figures, baseline?: Figures): Round => ({
  number: 1,
  baseline,
  product,
  outside: 0,
  isKept: true,
});

interface Viewed {
  readonly measures: readonly (Measure | undefined)[];
  readonly rounds: readonly Round[];
  readonly text: string;
  readonly details: object;
}

async function views(
  { runRounds, place: { signal }, slack }: SuiteContext,
  kind: StoreKind,
  size: Size,
  few: ConsolePlane,
  many: ConsolePlane,
  bytes: ReadonlyMap<string, number>,
): Promise<Viewed> {
  // Both sides take turns inside a pass: a pass is the same second for both.
  const seen = await runRounds('console', async () => {
    const sides = { few: new Map<string, number[]>(), many: new Map<string, number[]>() };
    for (let pass = 0; pass <= size.passes; pass += 1) {
      signal.throwIfAborted();
      const beganMs = performance.now();
      // The first pass is thrown away.
      await lookAtAll(few, pass === 0 ? new Map() : sides.few);
      await lookAtAll(many, pass === 0 ? new Map() : sides.many);
      await sleep(Math.max(0, PASS_MS - (performance.now() - beganMs)), signal);
    }
    return { baseline: worstOf(sides.few), product: worstOf(sides.many) };
  });
  const held = await runRounds(
    'console',
    inTurn(
      () =>
        holdUp(
          many,
          olderReads(many).map((path) => [path]),
          size.holdPasses,
          signal,
        ),
      () =>
        holdUp(
          many,
          viewsOf(many).map(({ paths }) => paths),
          size.holdPasses,
          signal,
        ),
    ),
  );
  const counted = seen.filter(({ isKept }) => isKept);
  if (counted.length === 0) return { measures: [], rounds: [...seen, ...held], text: '', details: {} };
  const of = (side: 'baseline' | 'product', name: string): number =>
    median(counted.map((round) => round[side]?.[name] ?? Number.NaN));
  const read = of('product', READ);
  const rows = viewsOf(many).map(({ name }) => ({
    name,
    ms: of('product', name),
    fewMs: of('baseline', name),
    kib: (bytes.get(name) ?? 0) / KIB,
  }));
  const slowest = rows.reduce((a, b) => (b.ms > a.ms ? b : a));
  const growing = rows.reduce((a, b) => (b.ms / b.fewMs > a.ms / a.fewMs ? b : a));
  const lists = new Set(
    viewsOf(many)
      .filter(isList)
      .map(({ name }) => name),
  );
  const largest = Math.max(...rows.filter(({ name }) => lists.has(name)).map(({ kib }) => kib));
  const judged = (name: string, unit: string, product: number, baseline?: number): Measure | undefined =>
    measureOf(
      'console',
      name,
      unit,
      [oneRound({ [name]: product }, baseline === undefined ? undefined : { [name]: baseline })],
      slack,
    );
  const named = held.map((round) => ({
    ...round,
    baseline: { [`${kind} hold`]: round.baseline?.['hold'] ?? Number.NaN },
    product: { [`${kind} hold`]: round.product['hold'] ?? Number.NaN },
  }));
  return {
    measures: [
      judged(`${kind} views`, 'ms', slowest.ms, read),
      judged(`${kind} growth`, 'ms', growing.ms, growing.fewMs),
      kind === 'embedded' ? measureOf('console', `${kind} hold`, 'ms', named, slack) : undefined,
      judged(`${kind} list`, 'KiB', largest),
    ],
    rounds: [...seen, ...held],
    text: [
      `${kind}: p95 of a read of one task ${short(read)} ms; slowest view ${slowest.name}, growing most ${growing.name}`,
      alignColumns([
        ['view', 'p95', 'to a read', 'to a tenth', 'first load'],
        ...rows.map(({ name, ms, fewMs, kib }) => [
          name,
          `${short(ms)} ms`,
          `${short(ms / read)} x`,
          `${short(ms / fewMs)} x`,
          `${short(kib)} KiB`,
        ]),
      ]),
    ].join('\n'),
    details: { read, rows },
  };
}

const READ = 'read';
const isList = (view: View): boolean => view.isList === true;

/** Looks at each view once; between two views one task is read. */
async function lookAtAll(side: ConsolePlane, into: Map<string, number[]>): Promise<void> {
  const add = (name: string, { ms }: Answer): void => void into.set(name, [...(into.get(name) ?? []), ms]);
  for (const { name, paths } of viewsOf(side)) {
    add(READ, await side.read(taskPath(side)));
    for (const path of paths) add(`${name} ${path.split('?', 1)[0] ?? ''}`, await side.read(path));
  }
}

const taskPath = ({ ids }: ConsolePlane): string => `/api/v1/task/${ids.workspaceId}/${ids.taskId}`;

/** The p95 of each view's slowest request. */
function worstOf(side: ReadonlyMap<string, readonly number[]>): Figures {
  const worst: Record<string, number> = {};
  for (const [key, times] of side) {
    const at = key.indexOf(' /');
    const name = at < 0 ? key : key.slice(0, at);
    worst[name] = Math.max(worst[name] ?? 0, percentile(times, 95));
  }
  return worst;
}

/** The longest wait of a reader of one task while requests are made; of several passes the median. */
async function holdUp(
  side: ConsolePlane,
  asked: readonly (readonly string[])[],
  passes: number,
  signal: AbortSignal,
): Promise<Figures> {
  const longest: number[] = [];
  for (let pass = 0; pass < passes; pass += 1) {
    signal.throwIfAborted();
    await sleep(PASS_MS, signal);
    let isOver = false;
    let most = 0;
    const probe = (async () => {
      while (!isOver) {
        most = Math.max(most, (await side.read(taskPath(side))).ms);
        await sleep(PROBE_MS, signal);
      }
    })();
    try {
      for (const paths of asked) for (const path of paths) await side.read(path);
    } finally {
      isOver = true;
      await probe.catch(() => undefined);
    }
    await probe;
    longest.push(most);
  }
  return { hold: median(longest) };
}

/** Bytes of each view's first answers, by gzip as the passage of the console has them. */
async function firstBytes(side: ConsolePlane): Promise<ReadonlyMap<string, number>> {
  const bytes = new Map<string, number>();
  for (const { name, paths } of viewsOf(side)) {
    let sum = 0;
    for (const path of paths) sum += gzipSync((await side.read(path)).body, { level: GZIP_LEVEL }).length;
    bytes.set(name, sum);
  }
  return bytes;
}

async function withTabs(
  { runRounds, place, slack }: SuiteContext,
  kind: StoreKind,
  { seconds }: Size,
  side: ConsolePlane,
): Promise<{ readonly measures: readonly (Measure | undefined)[]; readonly rounds: readonly Round[] }> {
  const { signal } = place;
  const tabs = new Tabs(side);
  place.later(() => tabs.be(0));
  const windowMs = seconds * 3_000;
  const share = async (count: number): Promise<number> => {
    await tabs.be(count);
    await sleep(SETTLE_MS, signal);
    const beforeMs = side.plane.cpuMs();
    const beganMs = performance.now();
    await sleep(windowMs, signal);
    tabs.check();
    return ((side.plane.cpuMs() - beforeMs) / (performance.now() - beganMs)) * 100;
  };
  const [firstTab, idleTab, calls] = [`${kind} first tab`, `${kind} idle tab`, `${kind} calls`];
  const idle = await runRounds('console', async () => {
    const none = await share(0);
    const one = await share(1);
    const more = await share(IDLE_TABS);
    return { baseline: undefined, product: { [firstTab]: one - none, [idleTab]: (more - none) / IDLE_TABS } };
  });
  const [app] = side.idle;
  if (app === undefined) throw new Error('nothing is deployed for calls');
  const target = side.plane.targetOf(app);
  await side.plane.call({ ...app, url: target.url });
  const rate = async (count: number): Promise<Figures> => {
    await tabs.be(count);
    await load(target, CONNECTIONS, { seconds: 1 });
    const { figures } = await load(target, CONNECTIONS, { seconds });
    tabs.check();
    return { [calls]: figures['rate'] ?? Number.NaN };
  };
  await load(target, CONNECTIONS, { seconds });
  const busy = await runRounds(
    'console',
    inTurn(
      () => rate(0),
      () => rate(BUSY_TABS),
    ),
  );
  await tabs.be(0);
  return {
    measures: [
      measureOf('console', firstTab, '% of a core', idle, slack),
      measureOf('console', idleTab, '% of a core', idle, slack),
      measureOf('console', calls, '/s', busy, slack),
    ],
    rounds: [...idle, ...busy],
  };
}

/** Bytes by gzip of the first script with the scripts that it imports at once, built as a release has them. */
async function scriptBytes(directory: string): Promise<number> {
  const { writeConsole } = (await import(new URL('../../scripts/build/console.mjs', import.meta.url).href)) as {
    readonly writeConsole: (into: string) => Promise<unknown>;
  };
  await writeConsole(directory);
  const folder = join(directory, 'console');
  const { entry } = JSON.parse(await readFile(join(folder, 'files.json'), 'utf8')) as { readonly entry: string };
  const names = new Set([entry]);
  let bytes = 0;
  // A set gives those, too, that are added meanwhile.
  for (const name of names) {
    bytes += (await stat(join(folder, `${name}.gz`))).size;
    const text = await readFile(join(folder, name), 'utf8');
    for (const [, imported = ''] of text.matchAll(/(?:from|import)"\.\/([^"]+)"/g)) names.add(imported);
  }
  return bytes;
}
