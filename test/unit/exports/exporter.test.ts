import { expect, test } from 'vitest';
import { Registry } from '#shared/metrics.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Leadership } from '#scheduler/cluster/leader.ts';
import { Exporter } from '#scheduler/fleet/exports/exporter.ts';
import type { ExportRecord, ExportSource } from '#scheduler/fleet/exports/exporter.ts';
import { ExportMetrics } from '#scheduler/fleet/exports/metrics.ts';
import { headersOf, logsUrl } from '#scheduler/fleet/exports/otlp-target.ts';
import { createLog } from '#shared/log.ts';

const silent = createLog({ name: 'test', level: 'silent' });
const [A, B] = ['a', 'b'] as [WorkspaceId, WorkspaceId];

/** Numbered rows of two workspaces, a target that can be away, and the positions that outlive an exporter. */
class World {
  readonly tails = new Map<WorkspaceId, number>();
  readonly positions = new Map<WorkspaceId, number>();
  readonly sent: string[] = [];
  isAway = false;
  tries = 0;
  /** Told when the replica begins to lead; one listener at a time. */
  #told: ((now: Leadership) => void) | undefined;
  #leads = true;

  lead(leads: boolean): void {
    this.#leads = leads;
    this.#told?.(leads ? { kind: 'leading', fence: 1 } : { kind: 'following', why: 'resigned' });
  }

  add(workspaceId: WorkspaceId, rows = 1): void {
    this.tails.set(workspaceId, (this.tails.get(workspaceId) ?? 0) + rows);
  }

  exporter(): Exporter {
    const source: ExportSource = {
      kind: 'events',
      tails: () => Promise.resolve(new Map(this.tails)),
      next: (workspaceId, after, limit) => {
        const last = Math.min(this.tails.get(workspaceId) ?? 0, after + limit);
        const records: ExportRecord[] = [];
        for (let at = after + 1; at <= last; at += 1)
          records.push({ kind: 'events', atMs: 0, storedAtMs: 0, record: { name: `${workspaceId}${at}` } });
        return Promise.resolve({ records, last });
      },
    };
    return new Exporter({
      sources: [source],
      target: {
        name: 'here',
        send: (records) => {
          this.tries += 1;
          if (this.isAway) return Promise.reject(new Error('away'));
          this.sent.push(...records.map(({ record }) => String(record['name'])));
          return Promise.resolve();
        },
        close: () => Promise.resolve(),
      },
      positions: {
        load: () => Promise.resolve(new Map(this.positions)),
        store: (_kind, positions) => {
          for (const [id, position] of positions) this.positions.set(id, position);
          return Promise.resolve();
        },
      },
      leader: {
        isLeader: () => this.#leads,
        onChange: (listener) => {
          this.#told = listener;
          return () => (this.#told = undefined);
        },
      },
      log: silent,
      metrics: new ExportMetrics(new Registry()),
      pageRows: 3,
      sweepMs: 20,
      storeMs: 5,
      retryMs: 5,
    });
  }
}

test('an export begins with what comes from now on, and goes on where the one before stopped', async () => {
  const world = new World();
  world.add(A, 5);
  const first = world.exporter();
  first.start();
  await expect.poll(() => world.positions.get(A)).toBe(5);
  world.add(A);
  world.add(B, 2);
  first.wake('events', A);
  await expect.poll(() => world.sent.toSorted()).toEqual(['a6', 'b1', 'b2']);
  await first.stop();
  world.add(A, 7);
  const second = world.exporter();
  second.start();
  await expect
    .poll(() => world.sent.filter((name) => name.startsWith('a')))
    .toEqual([6, 7, 8, 9, 10, 11, 12, 13].map((at) => `a${at}`));
  await second.stop();
});

test('an export of an installation without rows has begun, also for the next leader', async () => {
  const world = new World();
  const first = world.exporter();
  first.start();
  await expect.poll(() => world.positions.size).toBe(1);
  await first.stop();
  world.add(A, 2);
  const second = world.exporter();
  second.start();
  await expect.poll(() => world.sent).toEqual(['a1', 'a2']);
  await second.stop();
});

test('rows wait for a target that is away, and come in order; a page of one workspace comes after those of others', async () => {
  const world = new World();
  const exporter = world.exporter();
  exporter.start();
  await expect.poll(() => world.positions.size).toBe(1);
  world.isAway = true;
  world.add(A, 8);
  world.add(B, 2);
  await expect.poll(() => world.tries).toBeGreaterThan(2);
  expect(world.sent).toEqual([]);
  world.isAway = false;
  await expect.poll(() => world.sent).toEqual(['a1', 'a2', 'a3', 'b1', 'b2', 'a4', 'a5', 'a6', 'a7', 'a8']);
  await exporter.stop();
  expect(world.positions.get(A)).toBe(8);
});

test('only the leader exports', async () => {
  const world = new World();
  world.lead(false);
  const exporter = world.exporter();
  exporter.start();
  world.add(A, 2);
  exporter.wake('events', A);
  expect(world.tries).toBe(0);
  world.lead(true);
  await expect.poll(() => world.positions.get(A)).toBe(2);
  world.add(A);
  await expect.poll(() => world.sent).toEqual(['a3']);
  world.lead(false);
  world.add(A);
  exporter.wake('events', A);
  world.lead(true);
  await expect.poll(() => world.sent).toEqual(['a3', 'a4']);
  await exporter.stop();
});

test('addresses and headers of collectors', () => {
  expect(logsUrl('http://collector:4318')).toBe('http://collector:4318/v1/logs');
  expect(logsUrl('https://example.com/otlp/')).toBe('https://example.com/otlp/v1/logs');
  expect(logsUrl('https://example.com/v1/logs')).toBe('https://example.com/v1/logs');
  expect(headersOf('Authorization=Basic YQ==, tenant=a,')).toEqual({ authorization: 'Basic YQ==', tenant: 'a' });
});
