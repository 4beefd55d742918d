// Many forbidden bodies at once, while a neighbour calls: the
// scheduler's memory stays bounded, and the neighbour notices nothing.
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { Replica, SimulatedDeployment } from '../helpers/replicas.ts';
import { aPostgres, aRedis } from '../helpers/services.ts';

const ATTACKER = join(import.meta.dirname, '../helpers/body-attack.mjs');
const ROUNDS = 5;
const CALLS_PER_ROUND = 150;
/** Differences below this are noise of a machine that others use, too. */
const FLOOR_MS = 15;
/** Longest that senders may take to be refused. */
const REFUSED_MS = 20_000;

const stopping: (() => Promise<unknown>)[] = [];
const attackers: ChildProcess[] = [];
let set: ReplicaSet;
let replica: Replica;
let neighbour: SimulatedDeployment;
let publicOne: SimulatedDeployment;

beforeAll(async () => {
  const [postgres, redis] = await Promise.all([aPostgres(), aRedis()]);
  set = new ReplicaSet(postgres, redis);
  stopping.push(
    () => set.stop(),
    () => postgres.stop(),
    () => redis.stop(),
  );
  replica = await set.add();
  await set.agent();
  neighbour = await set.deploy(replica, 'neighbour');
  publicOne = await set.deploy(replica, 'open', { authorized: false });
  for (let count = 0; count < 200; count++) await call();
}, 120_000);
afterAll(async () => {
  for (const attacker of attackers) attacker.kill('SIGKILL');
  for (const stop of stopping) await stop();
}, 60_000);

async function call(): Promise<number> {
  const from = performance.now();
  const answer = await set.call(replica, neighbour.path, { body: {} });
  expect(answer.status).toBe(200);
  return performance.now() - from;
}

/** The 95th percentile of a round, in milliseconds. The round goes on until `isComplete`. */
async function roundOfCalls(isComplete = (): boolean => true): Promise<number> {
  const times: number[] = [];
  const untilMs = performance.now() + REFUSED_MS;
  while (times.length < CALLS_PER_ROUND || (!isComplete() && performance.now() < untilMs)) times.push(await call());
  return sorted(times)[Math.floor(times.length * 0.95)] ?? Number.NaN;
}

type Statuses = Readonly<Record<string, number>>;
type Message = { readonly kind: 'begun' | 'met' | 'over'; readonly status?: string; readonly statuses?: Statuses };

/** A process that attacks until it is told to stop. */
interface Attack {
  hasMet(status: string): boolean;
  /** @returns how often it met each status */
  stop(): Promise<Statuses>;
}

async function attack(kind: string, path: string): Promise<Attack> {
  const child = fork(ATTACKER, [kind, new URL(replica.url).port, path], { stdio: 'inherit' });
  attackers.push(child);
  const met = new Set<string | undefined>();
  let statuses: Statuses = {};
  child.on('message', (message: Message) => {
    if (message.kind === 'met') met.add(message.status);
    if (message.kind === 'over') statuses = message.statuses ?? {};
  });
  await once(child, 'message');
  return {
    hasMet: (status) => met.has(status),
    stop: async () => {
      const ended = once(child, 'exit');
      child.send('stop');
      await ended;
      return statuses;
    },
  };
}

const residentMib = (): number =>
  Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${replica.daemon.pid}/status`, 'utf8'))?.[1]) / 1024;

const sorted = (times: readonly number[]): number[] => times.toSorted((a, b) => a - b);
const median = (times: readonly number[]): number => sorted(times)[Math.floor(times.length / 2)] ?? Number.NaN;

test.each([
  // Columns: attack, path of the attacked deployment, expected answer, and MiB by which the scheduler may grow.
  ['150 connections without a token that send 12 MiB slowly', 'slow', () => neighbour.path, '401', 128],
  // The budget of public bodies is 64 MiB, and a chunk of each connection is on its way.
  ['150 connections to a public deployment that send 12 MiB slowly', 'slow', () => publicPath(), '503', 256],
  ['bodies of 8 MiB with a bad token', 'bad-token', () => neighbour.path, '401', 128],
] as const)(
  '%s cost bounded memory, and a neighbour notices nothing',
  async (_, kind, path, status, mostMib) => {
    const alone: number[] = [];
    const attacked: number[] = [];
    const before = residentMib();
    let peak = before;
    let met = 0;
    const watch = setInterval(() => (peak = Math.max(peak, residentMib())), 100);
    try {
      for (let round = 0; round < ROUNDS; round++) {
        alone.push(await roundOfCalls());
        const attacker = await attack(kind, path());
        attacked.push(await roundOfCalls(() => attacker.hasMet(status)));
        met += (await attacker.stop())[status] ?? 0;
      }
    } finally {
      clearInterval(watch);
    }
    process.stdout.write(
      `${kind}: p95 alone ${median(alone).toFixed(1)} ms, attacked ${median(attacked).toFixed(1)} ms; resident ${before.toFixed(0)} to ${peak.toFixed(0)} MiB; ${met} × ${status}\n`,
    );
    expect(met).toBeGreaterThan(0);
    expect(peak - before).toBeLessThan(mostMib);
    expect(median(attacked)).toBeLessThanOrEqual(Math.max(1.5 * median(alone), median(alone) + FLOOR_MS));
  },
  300_000,
);

const publicPath = (): string => `/endpoint/public/${publicOne.stubId}`;
