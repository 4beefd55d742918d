// The fleet's targets for Prometheus, the transport of machines' pages, and the pace at which machines are asked.
import { describe, expect, test } from 'vitest';
import type { MachineId } from '#shared/domain/ids.ts';
import type { Machine } from '#scheduler/fleet/machine.ts';
import { MachinePages } from '#scheduler/fleet/machine-pages.ts';
import { SESSION_SETTINGS, paced } from '#scheduler/fleet/session-settings.ts';
import { targetsOf } from '#scheduler/api/http/ops/discovery.ts';
import { reachableAt } from '#scheduler/api/ops/host-address.ts';
import type { Bus } from '#scheduler/cluster/bus.ts';

const aMachine = (id: string, health = 'READY'): Machine =>
  ({ row: { id, poolName: 'gpu', hostname: `host-${id}` }, health }) as unknown as Machine;

describe('targets for http_sd', () => {
  const machines = [aMachine('m1'), aMachine('m2', 'LOST'), aMachine('m3', 'PENDING'), aMachine('m4', 'EXPIRED')];

  test('are the scheduler as it was reached, and every machine that has joined, through it', () => {
    const [scheduler, ...rest] = targetsOf('https://api.example.com', [], machines);
    expect(scheduler).toEqual({
      targets: ['api.example.com'],
      labels: { job: 'longshore-scheduler', __scheme__: 'https' },
    });
    expect(rest.map(({ labels }) => labels['instance'])).toEqual(['m1', 'm2']);
    expect(rest[0]).toEqual({
      targets: ['api.example.com'],
      labels: {
        job: 'longshore-agent',
        instance: 'm1',
        __scheme__: 'https',
        __metrics_path__: '/metrics/machines/m1',
        __meta_longshore_pool: 'gpu',
        __meta_longshore_hostname: 'host-m1',
      },
    });
  });

  test('several schedulers are each a target of their own', () => {
    const [schedulers] = targetsOf('https://api.example.com', ['10.0.0.1:1994', '10.0.0.2:1994'], machines);
    expect(schedulers).toEqual({
      targets: ['10.0.0.1:1994', '10.0.0.2:1994'],
      labels: { job: 'longshore-scheduler', __scheme__: 'http' },
    });
  });

  test('one that listens everywhere is reached at an address of its host', () => {
    expect(reachableAt('0.0.0.0:1994', '10.0.0.1')).toBe('10.0.0.1:1994');
    expect(reachableAt('[::]:1994', '10.0.0.1')).toBe('10.0.0.1:1994');
    expect(reachableAt('127.0.0.1:1994', '10.0.0.1')).toBe('127.0.0.1:1994');
  });
});

describe("machines' pages", () => {
  /** Two schedulers on one bus; the second has the link. */
  const aFleet = (answer: (requestId: string) => string | undefined, deadlineMs = 1_000) => {
    const handlers: ((message: unknown) => void)[] = [];
    const bus: Bus = {
      on: (_channel, handler) => void handlers.push(handler),
      onGap: () => undefined,
      publish: (_channel, message) => queueMicrotask(() => handlers.forEach((handler) => handler(message))),
      isLive: true,
    };
    const machines = {
      get: (id: MachineId) => (id.startsWith('m') ? aMachine(id, id === 'm9' ? 'LOST' : 'READY') : undefined),
    };
    const common = { bus, channel: 'pages', machines, deadlineMs };
    const asked = new MachinePages(common);
    const linked = new MachinePages(common);
    linked.onOrder((machineId, requestId) => {
      queueMicrotask(() => {
        const page = answer(requestId);
        if (page !== undefined) linked.delivered(machineId, requestId, Buffer.from(page));
      });
      return true;
    });
    return { asked, linked };
  };

  test('come from whichever scheduler has the link', async () => {
    const { asked, linked } = aFleet(() => 'a 1\n');
    expect(await linked.page('m1')).toBe('a 1\n');
    expect(await asked.page('m1')).toBe('a 1\n');
  });

  test('say what is wrong: no such machine, not connected, silent, too large', async () => {
    const { asked } = aFleet(() => undefined, 20);
    await expect(asked.page('x')).rejects.toMatchObject({ code: 'machine_not_found' });
    await expect(asked.page('m9')).rejects.toMatchObject({ code: 'machine_away' });
    await expect(asked.page('m1')).rejects.toMatchObject({ code: 'machine_silent' });
    await expect(aFleet(() => '').linked.page('m1')).rejects.toMatchObject({ code: 'machine_away' });
  });

  test('count only from the machine that was asked, and only once', async () => {
    let first = '';
    const { linked } = aFleet((requestId) => {
      first = requestId;
      expect(linked.delivered('m2' as MachineId, requestId, Buffer.from('forged'))).toBe(false);
      return 'own';
    });
    expect(await linked.page('m1')).toBe('own');
    expect(linked.delivered('m1' as MachineId, first, Buffer.from('again'))).toBe(false);
  });

  test('more than can be fetched at once are refused', async () => {
    const { linked } = aFleet(() => undefined, 50);
    const many = Array.from({ length: 300 }, () => linked.page('m1').catch((error: { code: string }) => error.code));
    const codes = await Promise.all(many);
    expect(codes.filter((code) => code === 'too_many_pages')).toHaveLength(44);
    expect(codes.filter((code) => code === 'machine_silent')).toHaveLength(256);
  });
});

test.each([
  [1, 2_000, 10_000],
  [500, 2_000, 10_000],
  [1_000, 2_000, 20_000],
  [5_000, 10_000, 100_000],
])('of %i machines each is pinged every %i ms and says its heartbeat every %i ms', (machines, ping, heartbeat) => {
  expect(paced(SESSION_SETTINGS, machines)).toMatchObject({ pingIntervalMs: ping, heartbeatIntervalMs: heartbeat });
});
