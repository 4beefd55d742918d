// `streams`: calls of a web application whose bytes pass through scheduler, agent and runner. The baseline is a direct
// connection to a container that serves the same application. Both sides have one caller, this process, on the same
// cores.
import { sleep } from '#shared/backoff.ts';
import type { Figures, Round } from '../measure.ts';
import { measureOf } from '../measure.ts';
import { pacedDownload, pacedUpload } from '../paced-bodies.ts';
import type { Product } from '../product.ts';
import { inTurn } from '../rounds.ts';
import { percentile } from '../stats.ts';
import { EchoSocket, WebClient } from '../streams-client.ts';
import type { EventStream, WebTarget } from '../streams-client.ts';
import { DAEMONS, MIB, growthDuring, residentMib, stopAll, streamedApp, withoutBaseline } from './streamed-app.ts';
import type { Daemon } from './streamed-app.ts';
import type { Check, SuiteContext, SuiteResult } from './suite.ts';

const SIZES = {
  full: { calls: 1000, echoMs: 4000, loadMs: 10_000, idleMs: 300_000 },
  quick: { calls: 300, echoMs: 200, loadMs: 8000, idleMs: 100 },
} as const;
type Sizes = (typeof SIZES)[keyof typeof SIZES];

const WARM_UP_CALLS = 100;
/** Bodies each way: the code that passes them is compiled, and buffers have their sizes. */
const WARM_UP_BYTES = 512 * MIB;
const MESSAGE = Buffer.alloc(1024, 'm');
const SOCKETS = [1, 64] as const;
const IDLE = { sockets: 500, events: 200, atOnce: 20, settleMs: 3000, steadyTimes: 5, mostTries: 40 } as const;
/** Calls of the endpoint beside bodies: per second, and how many may be under way. */
const CALLS = { perSecond: 50, connections: 32, body: '{"name":"bench"}' } as const;
/** Bytes per second of the bodies beside the calls: half of them down, half up. */
const BESIDE_BYTES = 20_000_000;
/** Share of the bytes due that has to pass: with less, the calls had less beside them. */
const LEAST_SHARE = 0.9;
/** Larger than anything that is read of it. */
const UNREAD_BYTES = 1024 * MIB;

interface Bench {
  readonly context: SuiteContext;
  readonly sizes: Sizes;
  readonly product: Product;
  /** The application by way of Longshore. */
  readonly ours: WebTarget;
  /** The endpoint that is called beside it. */
  readonly calls: WebTarget;
}

export async function streams(context: SuiteContext): Promise<SuiteResult> {
  const { slack } = context;
  const sizes = context.isQuick ? SIZES.quick : SIZES.full;
  const { product, app, headers, ours, direct } = await streamedApp(context, warmUp);
  const endpoint = await product.deploy('bench/apps/streams/app.py:call');
  const bench: Bench = { context, sizes, product, ours, calls: { url: endpoint.url, headers } };

  // First, because memory that a load has left behind hides the memory of streams.
  const idle = await idleStreams(bench);
  const beside = await context.runRounds(
    'streams',
    inTurn(
      () => measured(bench, direct),
      () => measured(bench, ours),
    ),
  );
  const calls = await callsBeside(bench);
  const stalled = await besideUnread(bench);
  await stopAll(product, [app, endpoint]);
  return {
    measures: [
      ...['first byte p50', 'first byte p99', 'first chunk p50', 'first chunk p99'].map((name) =>
        measureOf('streams', name, 'ms', beside, slack),
      ),
      ...SOCKETS.flatMap((count) => [
        measureOf('streams', `echo ${count} p50`, 'ms', beside, slack),
        measureOf('streams', `echo ${count} rate`, '/s', beside, slack),
      ]),
      ...DAEMONS.map((daemon) => measureOf('streams', `idle ${daemon}`, 'KiB a stream', [idle.round], slack)),
      measureOf('streams', 'calls p95', 'ms', calls, slack),
      measureOf('streams', 'unread p95', 'ms', stalled, slack),
      ...DAEMONS.map((daemon) =>
        measureOf('streams', `unread ${daemon} grows`, 'MiB', withoutBaseline(stalled), slack),
      ),
    ],
    rounds: beside,
    checks: [idle.check],
  };
}

async function warmUp(target: WebTarget): Promise<void> {
  const client = new WebClient(target);
  try {
    await client.firstBytes('/small', { calls: WARM_UP_CALLS });
    await client.firstBytes('/streamed', { calls: WARM_UP_CALLS });
    await client.download(WARM_UP_BYTES);
    await client.upload(WARM_UP_BYTES);
  } finally {
    client.close();
  }
  const socket = await EchoSocket.open(target);
  for (let call = 0; call < WARM_UP_CALLS; call += 1) await socket.roundTrip(MESSAGE);
  socket.close();
}

/** Everything that both sides do, on one of them. */
async function measured({ context, sizes }: Bench, target: WebTarget): Promise<Figures> {
  const { signal } = context.place;
  const figures: Record<string, number> = {};
  const client = new WebClient(target);
  try {
    for (const [name, path] of [
      ['first byte', '/small'],
      ['first chunk', '/streamed'],
    ] as const) {
      signal.throwIfAborted();
      const took = await client.firstBytes(path, { calls: sizes.calls });
      figures[`${name} p50`] = percentile(took, 50);
      figures[`${name} p99`] = percentile(took, 99);
    }
  } finally {
    client.close();
  }
  for (const count of SOCKETS) {
    signal.throwIfAborted();
    const { p50 = 0, rate = 0 } = await echo(target, count, sizes.echoMs);
    figures[`echo ${count} p50`] = p50;
    figures[`echo ${count} rate`] = rate;
  }
  return figures;
}

/** Round trips on so many WebSockets at a time. */
async function echo(target: WebTarget, count: number, ms: number): Promise<Figures> {
  const sockets = await Promise.all(Array.from({ length: count }, () => EchoSocket.open(target)));
  const took: number[] = [];
  const startedMs = performance.now();
  await Promise.all(
    sockets.map(async (socket) => {
      while (performance.now() - startedMs < ms) took.push(await socket.roundTrip(MESSAGE));
    }),
  );
  const seconds = (performance.now() - startedMs) / 1000;
  for (const socket of sockets) socket.close();
  return { p50: percentile(took, 50), rate: took.length / seconds };
}

/** Memory of the daemons once it changes no more: a scheduler gives that of its start back some seconds later. */
async function settled(product: Product, signal: AbortSignal): Promise<Record<Daemon, number>> {
  let before = residentMib(product);
  for (let steady = 0, tries = 0; steady < IDLE.steadyTimes && tries < IDLE.mostTries; tries += 1) {
    await sleep(IDLE.settleMs, signal);
    const now = residentMib(product);
    steady = DAEMONS.every((daemon) => Math.abs(now[daemon] - before[daemon]) < 1) ? steady + 1 : 0;
    before = now;
  }
  return before;
}

/** Memory of streams on which next to nothing happens, and whether all of them last. */
async function idleStreams({ context, sizes, product, ours }: Bench): Promise<{ round: Round; check: Check }> {
  const { signal } = context.place;
  const before = await settled(product, signal);
  const client = new WebClient(ours, Infinity);
  const sockets: EchoSocket[] = [];
  const events: EventStream[] = [];
  try {
    while (sockets.length < IDLE.sockets)
      sockets.push(...(await Promise.all(Array.from({ length: IDLE.atOnce }, () => EchoSocket.open(ours)))));
    while (events.length < IDLE.events)
      events.push(...(await Promise.all(Array.from({ length: IDLE.atOnce }, () => client.events('/events')))));
    await sleep(sizes.idleMs, signal);
    const after = residentMib(product);
    const counted = events.map((one) => one.count());
    // Half of the events that are due, for a machine that is slow.
    const due = Math.floor(sizes.idleMs / 5000 / 2);
    const echoed = await Promise.allSettled(sockets.map((socket) => socket.roundTrip(MESSAGE)));
    const alive =
      sockets.filter((socket, at) => socket.isAlive && echoed[at]?.status === 'fulfilled').length +
      events.filter((one, at) => one.isAlive() && (counted[at] ?? 0) >= due).length;
    const all = sockets.length + events.length;
    const figures: Record<string, number> = {};
    for (const daemon of DAEMONS) figures[`idle ${daemon}`] = ((after[daemon] - before[daemon]) * 1024) / all;
    const text = `${alive} of ${all} after ${sizes.idleMs / 1000} s`;
    return {
      round: { number: 1, baseline: undefined, product: figures, outside: 0, isKept: true },
      check: { suite: 'streams', name: 'idle streams are alive', isRight: alive === all, text },
    };
  } finally {
    for (const one of [...sockets, ...events]) one.close();
    client.close();
  }
}

/** Calls of an endpoint at a fixed rate: without bodies beside them, and with. */
async function callsBeside({ context, sizes, ours, calls }: Bench): Promise<readonly Round[]> {
  const client = new WebClient(calls, CALLS.connections);
  const offered = async (ms: number): Promise<Figures> => ({
    'calls p95': percentile(await client.offered(CALLS, ms, context.place.signal), 95),
  });
  await offered(sizes.loadMs / 4);
  const rounds = await context.runRounds(
    'streams',
    inTurn(
      () => offered(sizes.loadMs),
      () => besideBodies(ours, () => offered(sizes.loadMs)),
    ),
  );
  client.close();
  return rounds;
}

/** Runs work while bodies flow at a fixed rate. @throws Error when they end before the work, or fall behind */
async function besideBodies<T>(target: WebTarget, work: () => Promise<T>): Promise<T> {
  const over = new AbortController();
  const perSecond = BESIDE_BYTES / 2;
  const pace = { bytes: UNREAD_BYTES, perSecond };
  const startedMs = performance.now();
  const flow = Promise.all([pacedDownload(target, pace, over.signal), pacedUpload(target, pace, over.signal)]);
  const broken = flow.then(() => Promise.reject(new Error('bodies ended too soon')));
  broken.catch(() => undefined);
  try {
    const value = await Promise.race([work(), broken]);
    const due = (perSecond * (performance.now() - startedMs)) / 1000;
    over.abort();
    const passed = await flow;
    if (passed.some((bytes) => bytes < LEAST_SHARE * due))
      throw new Error(`bodies of ${passed.join(' and ')} bytes passed, of ${Math.round(due)} each`);
    return value;
  } finally {
    over.abort();
  }
}

/** First bytes of other calls: alone, and beside a caller who reads nothing of a download. */
async function besideUnread({ context, sizes, product, ours }: Bench): Promise<readonly Round[]> {
  const client = new WebClient(ours);
  const first = async (): Promise<Figures> => {
    context.place.signal.throwIfAborted();
    return { 'unread p95': percentile(await client.firstBytes('/small', { calls: sizes.calls }), 95) };
  };
  await first();
  const rounds = await context.runRounds(
    'streams',
    inTurn(first, async () => {
      const reader = new WebClient(ours);
      const { value, grown } = await growthDuring(product, async () => {
        const end = await reader.stalled(`/download?${UNREAD_BYTES}`);
        const figures = await first();
        end();
        return figures;
      });
      reader.close();
      return { ...value, 'unread scheduler grows': grown.scheduler, 'unread agent grows': grown.agent };
    }),
  );
  client.close();
  return rounds;
}
