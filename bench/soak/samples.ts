// An installation's resources at a moment: memory and descriptors of its processes, keys of its Redis, containers and
// volumes, bytes on disk. Read from /proc, Redis and Docker; nothing is asked of the product itself.
import { execFile } from 'node:child_process';
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { sleep } from '#shared/backoff.ts';
import { socketPathIn } from '#shared/socket-path.ts';
import type { BenchEngine } from '../engine.ts';
import type { Product } from '../product.ts';
import { median } from '../stats.ts';
import { TASK_KEYS } from './growth.ts';
import type { Sample } from './growth.ts';

const PROCESS_READS = 9;
const READ_EVERY_MS = 500;
const SCAN_COUNT = 1_000;

/** An idle moment: of memory the median of a few seconds, because garbage comes and goes. */
export async function takeSample(product: Product, engine: BenchEngine): Promise<Sample> {
  const client = new Redis({
    path: socketPathIn(join(product.dataDir, 'redis'), 'redis.sock'),
    commandTimeout: 10_000,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  client.on('error', () => undefined);
  try {
    const pids = { ...product.pids, redis: Number(/process_id:(\d+)/.exec(await client.info('server'))?.[1]) };
    const memory: Record<string, number> = {};
    const descriptors: Record<string, number> = {};
    const reads: Record<string, number[]> = { scheduler: [], agent: [], redis: [] };
    for (let read = 0; read < PROCESS_READS; read += 1) {
      for (const [name, pid] of Object.entries(pids)) reads[name]?.push(residentBytes(pid));
      await sleep(READ_EVERY_MS);
    }
    for (const [name, pid] of Object.entries(pids)) {
      memory[name] = median(reads[name] ?? []);
      descriptors[name] = readdirSync(`/proc/${pid}/fd`).length;
    }
    const databaseFiles = openBelow(product.pids.scheduler, join(product.dataDir, 'pglite'));
    descriptors['scheduler'] = (descriptors['scheduler'] ?? 0) - databaseFiles;
    const { keys, tasksWithoutEnd } = await countKeys(client);
    const own = await engine.countOwn();
    return {
      atMs: Date.now(),
      memory,
      descriptors,
      databaseFiles,
      keys,
      tasksWithoutEnd,
      redisUsedBytes: Number(/used_memory:(\d+)/.exec(await client.info('memory'))?.[1]),
      ...own,
      diskBytes: await diskBytes(product.dataDir),
    };
  } finally {
    client.disconnect();
  }
}

/** Resident bytes by process at this moment, for the trend. */
export function memoryNow(product: Product): Readonly<Record<string, number>> {
  return { scheduler: residentBytes(product.pids.scheduler), agent: residentBytes(product.pids.agent) };
}

function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024;
}

function openBelow(pid: number, directory: string): number {
  return readdirSync(`/proc/${pid}/fd`).filter((descriptor) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${descriptor}`).startsWith(directory);
    } catch {
      // The descriptor was closed since it was listed.
      return false;
    }
  }).length;
}

/** Counts keys by purpose: `ls:lease:<id>` is `ls:lease`, `ls:tq-<id>:meta` is `ls:tq meta`. */
async function countKeys(
  client: Redis,
): Promise<{ readonly keys: Readonly<Record<string, number>>; readonly tasksWithoutEnd: number }> {
  const keys: Record<string, number> = {};
  let tasksWithoutEnd = 0;
  let cursor = '0';
  do {
    const [next, found] = await client.scan(cursor, 'COUNT', SCAN_COUNT);
    cursor = next;
    for (const key of found) {
      const group = groupOf(key);
      keys[group] = (keys[group] ?? 0) + 1;
    }
    const tasks = found.filter((key) => TASK_KEYS.includes(groupOf(key)));
    if (tasks.length === 0) continue;
    const pipeline = client.pipeline();
    for (const key of tasks) pipeline.ttl(key);
    for (const [, ttl] of (await pipeline.exec()) ?? []) if (ttl === -1) tasksWithoutEnd += 1;
  } while (cursor !== '0');
  return { keys, tasksWithoutEnd };
}

export function groupOf(key: string): string {
  const [prefix = '', name = '', part = ''] = key.split(':');
  if (!name.startsWith('tq-')) return `${prefix}:${name}`;
  return `${prefix}:tq ${/^[0-9a-f]{8}-/.test(part) ? 'job' : part}`;
}

async function diskBytes(directory: string): Promise<number> {
  const { stdout } = await promisify(execFile)('du', ['-sk', directory], { timeout: 30_000 }).catch(
    // A file that went while it was counted makes du end with 1.
    (error: unknown) => error as { readonly stdout: string },
  );
  return Number(/^\d+/.exec(stdout)?.[0] ?? 0) * 1024;
}
