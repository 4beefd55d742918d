// The agent's report on its machine: the kernel's files of both layouts, the clock, and the right to read the page.
import { describe, expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import { cgroupFiles, cgroupNumbers, networkBytes } from '#agent/telemetry/cgroup.ts';
import { ClockWatch } from '#agent/telemetry/clock.ts';
import { Conditions } from '#agent/telemetry/conditions.ts';
import { AgentMetrics } from '#agent/telemetry/metrics.ts';
import { MetricsPage } from '#agent/telemetry/page.ts';
import { loadAgentConfig } from '#agent/config.ts';

const V1 = `12:memory:/docker/abc
7:pids:/docker/abc
5:cpu,cpuacct:/docker/abc
1:name=systemd:/docker/abc
0::/system.slice/docker.service
`;

describe("a container's control group", () => {
  test('v1: a tree for each controller', () => {
    expect(cgroupFiles(V1)).toEqual({
      version: 1,
      cpu: '/sys/fs/cgroup/cpuacct/docker/abc/cpuacct.usage',
      memory: '/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes',
      memoryStat: '/sys/fs/cgroup/memory/docker/abc/memory.stat',
      processes: '/sys/fs/cgroup/pids/docker/abc/pids.current',
    });
  });

  test('v2: one tree, also under the systemd driver', () => {
    expect(cgroupFiles('0::/system.slice/docker-abc.scope\n', '/cg')).toEqual({
      version: 2,
      cpu: '/cg/system.slice/docker-abc.scope/cpu.stat',
      memory: '/cg/system.slice/docker-abc.scope/memory.current',
      memoryStat: '/cg/system.slice/docker-abc.scope/memory.stat',
      processes: '/cg/system.slice/docker-abc.scope/pids.current',
    });
  });

  test('one that shares the control group of the machine has no numbers of its own', () => {
    for (const text of ['0::/\n', '4:memory:/\n3:cpu,cpuacct:/\n2:pids:/\n0::/\n', '', 'nonsense'])
      expect(cgroupFiles(text), text).toBeUndefined();
  });

  test('numbers of v1 are nanoseconds and totals, of v2 microseconds; file pages that can go do not count', () => {
    expect(
      cgroupNumbers(1, {
        cpu: '184467440737\n',
        memory: '52428800\n',
        memoryStat: 'inactive_file 1\ntotal_cache 9\ntotal_inactive_file 12582912\ntotal_active_file 5\n',
        processes: '7\n',
      }),
    ).toEqual({ cpuMicroseconds: 184_467_441, memoryBytes: 39_845_888, processes: 7 });
    expect(
      cgroupNumbers(2, {
        cpu: 'usage_usec 123456\nuser_usec 100000\nsystem_usec 23456\n',
        memory: '52428800\n',
        memoryStat: 'anon 100\nfile 200\nworkingset_inactive_file 7\ninactive_file 12582912\n',
        processes: '7\n',
      }),
    ).toEqual({ cpuMicroseconds: 123_456, memoryBytes: 39_845_888, processes: 7 });
  });

  test('what is missing or cut off counts as nothing, and never below', () => {
    const texts = { cpu: '', memory: '5\n', memoryStat: 'inactive_file 10', processes: 'max\n' };
    expect(cgroupNumbers(2, texts)).toEqual({ cpuMicroseconds: 0, memoryBytes: 0, processes: 0 });
  });

  test('the network is all interfaces but loopback', () => {
    const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0:  123456     100    0    0    0     0          0         0     7890      50    0    0    0     0       0          0
  eth1:1       1    0    0    0     0          0         0     2       1    0    0    0     0       0          0
`;
    expect(networkBytes(text)).toEqual({ received: 123_457, sent: 7892 });
  });
});

describe("this machine's clock", () => {
  const watched = () => {
    const metrics = new AgentMetrics();
    const conditions = new Conditions();
    const log = createLog({ name: 'test', level: 'silent' });
    const skew = async () => (await metrics.clockSkew.get()).values[0]?.value;
    return { clock: new ClockWatch({ metrics, conditions, log }), conditions, skew };
  };

  test('is compared at the middle of the way; more than 30 s keeps containers away until it is right', async () => {
    const { clock, conditions, skew } = watched();
    clock.heard(1_000_000, 400, 1_000_200);
    expect(await skew()).toBe(0);
    clock.heard(1_000_000, 0, 1_030_001);
    expect(await skew()).toBeCloseTo(30.001);
    expect(conditions.names).toEqual(['ClockSkew']);
    clock.heard(1_000_000, 0, 994_000);
    expect(await skew()).toBe(-6);
    expect(conditions.names).toEqual([]);
    clock.told(1_000_000, 900_000);
    expect(conditions.names).toEqual(['ClockSkew']);
  });

  test('an answer that was long on its way, or a scheduler that says no time, changes nothing', async () => {
    const { clock, conditions, skew } = watched();
    clock.heard(1_000_000, 60_000, 1_060_000);
    clock.heard(0, 10, 1_000_000);
    clock.told(0, 1_000_000);
    expect(await skew()).toBe(0);
    expect(conditions.names).toEqual([]);
  });
});

describe('the metrics page', () => {
  const config = (settings: Record<string, string>) =>
    loadAgentConfig({ LONGSHORE_DATA_DIR: '/tmp/none', ...settings });

  test('on an address that others reach asks for a token or a certificate', () => {
    const open = { LONGSHORE_AGENT_METRICS_ADDRESS: '0.0.0.0:9464' };
    expect(() => config(open)).toThrow(/0\.0\.0\.0:9464 is reached from elsewhere; set LONGSHORE_AGENT_METRICS_TOKEN/);
    expect(() => config({ ...open, LONGSHORE_AGENT_METRICS_TLS_CERT: '/c' })).toThrow(/give both, or none/);
    config({ ...open, LONGSHORE_AGENT_METRICS_TOKEN: 'a-token-of-sixteen' });
    config({ ...open, LONGSHORE_AGENT_METRICS_TLS_CERT: '/c', LONGSHORE_AGENT_METRICS_TLS_KEY: '/k' });
    for (const host of ['127.0.0.1', 'localhost', '[::1]']) config({ LONGSHORE_AGENT_METRICS_ADDRESS: `${host}:0` });
  });

  test('with a token is shown to whoever has it, and to nobody else', async () => {
    const token = 'a-token-of-sixteen';
    const page = new MetricsPage(
      { LONGSHORE_AGENT_METRICS_ADDRESS: '127.0.0.1:0', LONGSHORE_AGENT_METRICS_TOKEN: token },
      new AgentMetrics(),
    );
    await page.start();
    try {
      const status = async (authorization?: string): Promise<number> =>
        (
          await fetch(`http://${page.address}/metrics`, {
            headers: authorization === undefined ? {} : { authorization },
          })
        ).status;
      expect(await status()).toBe(401);
      expect(await status('Bearer another-token-of-it')).toBe(401);
      expect(await status(token)).toBe(401);
      expect(await status(`Bearer ${token}`)).toBe(200);
    } finally {
      await page.stop();
    }
  });
});
