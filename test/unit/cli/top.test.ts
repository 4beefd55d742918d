import { describe, expect, test } from 'vitest';
import { snapshotOf, topLines } from '#cli/commands/top-view.ts';
import type { Snapshot } from '#cli/commands/top-view.ts';

const NOW_MS = Date.parse('2030-01-01T12:00:00Z');
const long = 'a-name-that-is-much-longer-than-any-column-of-a-terminal-is-wide';

const aSnapshot = (said: Partial<Snapshot> = {}): Snapshot => ({
  url: 'http://127.0.0.1:1994',
  machines: [
    {
      id: 'aaaaaaaa-bbbb-cccc-dddd-eeeeffff0001',
      pool: 'default',
      status: 'available',
      cpuMillicores: 2000,
      cpuPct: 12.4,
      memoryMib: 8192,
      memoryPct: 43,
      gpu: 'H100',
      gpuCount: 2,
      freeGpuCount: 1,
      containers: 3,
    },
  ],
  queues: [
    {
      name: 'hello/v3',
      kind: 'endpoint',
      waiting: 4,
      running: 1,
      containers: 1,
      oldestWaiting: '2030-01-01T11:59:30Z',
      bound: '',
    },
  ],
  containers: [
    {
      id: 'endpoint-0001-12345678',
      deployment: 'hello/v3',
      status: 'RUNNING',
      machineId: 'aaaaaaaa-bbbb-cccc-dddd-eeeeffff0001',
      since: '2030-01-01T11:58:00Z',
      cpuMillicores: 150,
      memoryBytes: 64 * 1024 * 1024,
      gpuPct: null,
    },
  ],
  isCut: false,
  ...said,
});

describe('top', () => {
  test('shows machines, queues and containers', () => {
    expect(topLines(aSnapshot(), { columns: 80 }, NOW_MS)).toEqual([
      '12:00:00  1 machine  1 container  4 tasks waiting, 1 running',
      '',
      'MACHINE       POOL     STATUS     CPU       MEMORY        GPU FREE     RUNS',
      'eeeeffff0001  default  available  12% of 2  43% of 8 GiB  1 of 2 H100  3',
      '',
      'QUEUE     KIND      WAIT  RUN  OLDEST  CONTAINERS',
      'hello/v3  endpoint  4     1    30s     1',
      '',
      'CONTAINER  OF        STATUS   MACHINE   CPU   MEMORY    GPU  AGE',
      '12345678   hello/v3  RUNNING  ffff0001  0.15  64.0 MiB  -    2m',
    ]);
    const none = topLines(aSnapshot({ machines: null, isCut: true }), { columns: 80 }, NOW_MS);
    expect(none.join('\n')).not.toContain('MACHINE    ');
    expect(none[0]).toBe('12:00:00  1 container  4 tasks+ waiting, 1+ running');
  });

  test('stays within 80 columns and its rows, whatever the names and however many', () => {
    const { machines, queues, containers } = aSnapshot();
    const many = <T>(one: T | undefined, more: Partial<T>): T[] =>
      Array.from({ length: 50 }, () => ({ ...(one as T), ...more }));
    const wide = aSnapshot({
      machines: many(machines?.[0], { pool: long, status: `disabled (${long})`, gpu: long, cpuMillicores: 128_000 }),
      queues: many(queues[0], { name: long, kind: 'taskqueue', waiting: 100_000, running: 100_000 }),
      containers: many(containers[0], { deployment: long, status: 'CONTAINER_CREATING', gpuPct: 100 }),
    });
    for (const rows of [8, 12, 24, 60]) {
      const lines = topLines(wide, { columns: 80, rows }, NOW_MS);
      expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80);
      if (rows >= 12) expect(lines.length).toBeLessThanOrEqual(rows);
      expect(lines.at(-1)).toMatch(/^… \d+ more$/);
    }
    expect(topLines(wide, { columns: 80 }, NOW_MS)).toHaveLength(1 + 3 * 52);
  });

  test('names the bound at which the tasks of a queue wait', () => {
    const bound = aSnapshot({ queues: aSnapshot().queues.map((queue) => ({ ...queue, bound: 'max_containers 1' })) });
    const lines = topLines(bound, { columns: 120 }, NOW_MS).filter((line) => /QUEUE|hello/.test(line));
    expect(lines.slice(0, 2)).toEqual([
      'QUEUE     KIND      WAIT  RUN  OLDEST  CONTAINERS  BOUND',
      expect.stringMatching(/^hello\/v3 +endpoint +4 +1 +30s +1 +max_containers 1$/),
    ]);
  });

  test('counts open tasks by stub, and names stubs without a deployment by their tasks', () => {
    const { queues, containers, machines } = snapshotOf(
      'http://x',
      {
        machines: [
          { id: 'm', poolName: 'p', status: 'pending', conditions: ['DiskPressure'], cpu: '2000', memory: '4096' },
        ],
        deployments: [{ name: 'hello', version: 2, stubId: 's1', stubType: 'taskqueue/deployment' }],
        containers: [
          { containerId: 'c', stubId: 's1', status: 'RUNNING', usage: null },
          { containerId: 'sandbox-0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11-abcdef01', stubId: 's2', status: 'RUNNING' },
        ],
        tasks: [
          { stubId: 's2', stubName: 'once', status: 'RUNNING' },
          { stubId: 's1', status: 'RETRY', createdAt: '2030-01-01T00:00:02Z' },
          { stubId: 's1', status: 'PENDING', createdAt: '2030-01-01T00:00:01Z' },
          { stubId: 's1', status: 'RUNNING' },
        ],
        bounds: new Map([['s1', 'max_containers 3']]),
      },
      1000,
    );
    expect(queues).toEqual([
      {
        name: 'hello/v2',
        kind: 'taskqueue',
        waiting: 2,
        running: 1,
        containers: 1,
        oldestWaiting: '2030-01-01T00:00:01Z',
        bound: 'max_containers 3',
      },
      { name: 'once', kind: 'sandbox', waiting: 0, running: 1, containers: 1, oldestWaiting: '', bound: '' },
    ]);
    expect(containers).toMatchObject([
      { id: 'c', deployment: 'hello/v2', cpuMillicores: null, gpuPct: null },
      { deployment: 'sandbox' },
    ]);
    expect(machines).toMatchObject([{ status: 'pending (DiskPressure)', cpuMillicores: 2000, cpuPct: null }]);
  });

  test('sandboxes are one queue of their kind, and containers of an unknown kind go by their stub', () => {
    const sandbox = (end: string, stubId: string) => ({
      containerId: `sandbox-0f6b2a1e-6f0a-4b8e-9a51-6a6d1c0a9f11-${end}`,
      stubId,
      status: 'RUNNING',
    });
    const { queues } = snapshotOf(
      'http://x',
      {
        machines: null,
        deployments: [],
        containers: [sandbox('abcdef01', 's1'), sandbox('abcdef02', 's2'), { containerId: 'c', stubId: 's3' }],
        tasks: [],
      },
      1000,
    );
    const idle = { waiting: 0, running: 0, oldestWaiting: '', bound: '' };
    expect(queues).toEqual([
      { name: 's3', kind: '', containers: 1, ...idle },
      { name: 'sandbox', kind: 'sandbox', containers: 2, ...idle },
    ]);
  });
});
