// The agent's report on its machine: the kernel's files of both layouts, the clock, and the right to read the page.
import { describe, expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import {
  addressSpaceBytes,
  cgroupFiles,
  cgroupNumbers,
  hostCpu,
  hostMemory,
  networkNumbers,
  processIds,
} from '#agent/telemetry/cgroup.ts';
import { ClockWatch } from '#agent/telemetry/clock.ts';
import { Conditions } from '#agent/telemetry/conditions.ts';
import { AgentMetrics } from '#agent/telemetry/metrics.ts';
import { MetricsPage } from '#agent/telemetry/page.ts';
import { loadAgentConfig } from '#agent/config.ts';

const V1 = `12:memory:/docker/abc
7:pids:/docker/abc
5:cpu,cpuacct:/docker/abc
3:blkio:/docker/abc
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
      io: ['_recursive', ''].map((end) => `/sys/fs/cgroup/blkio/docker/abc/blkio.throttle.io_service_bytes${end}`),
      swap: null,
      ids: '/sys/fs/cgroup/memory/docker/abc/cgroup.procs',
    });
    expect(cgroupFiles(V1.replace('3:blkio:/docker/abc\n', ''))?.io).toEqual([]);
  });

  test('v2: one tree, also under the systemd driver', () => {
    expect(cgroupFiles('0::/system.slice/docker-abc.scope\n', '/cg')).toEqual({
      version: 2,
      cpu: '/cg/system.slice/docker-abc.scope/cpu.stat',
      memory: '/cg/system.slice/docker-abc.scope/memory.current',
      memoryStat: '/cg/system.slice/docker-abc.scope/memory.stat',
      processes: '/cg/system.slice/docker-abc.scope/pids.current',
      io: ['/cg/system.slice/docker-abc.scope/io.stat'],
      swap: '/cg/system.slice/docker-abc.scope/memory.swap.current',
      ids: '/cg/system.slice/docker-abc.scope/cgroup.procs',
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
        memoryStat:
          'inactive_file 1\nrss 2\ntotal_cache 9\ntotal_rss 4096\ntotal_shmem 100\ntotal_swap 512\ntotal_inactive_file 12582912\ntotal_active_file 5\n',
        processes: '7\n',
        io: '8:0 Read 4096\n8:0 Write 100\n8:0 Total 4196\n259:1 Read 4\nTotal 4200\n',
        swap: '',
      }),
    ).toEqual({
      cpuMicroseconds: 184_467_441,
      memoryBytes: 39_845_888,
      rssBytes: 4196,
      swapBytes: 512,
      processes: 7,
      readBytes: 4100,
      writtenBytes: 100,
    });
    expect(
      cgroupNumbers(2, {
        cpu: 'usage_usec 123456\nuser_usec 100000\nsystem_usec 23456\n',
        memory: '52428800\n',
        memoryStat: 'anon 100\nfile 200\nshmem 30\nworkingset_inactive_file 7\ninactive_file 12582912\n',
        processes: '7\n',
        io: '8:0 rbytes=4096 wbytes=100 rios=1 wios=2 dbytes=9 dios=1\n259:1 rbytes=4 wbytes=0 rios=1 wios=0\n',
        swap: '512\n',
      }),
    ).toEqual({
      cpuMicroseconds: 123_456,
      memoryBytes: 39_845_888,
      rssBytes: 130,
      swapBytes: 512,
      processes: 7,
      readBytes: 4100,
      writtenBytes: 100,
    });
  });

  test('what is missing or cut off counts as nothing, and never below', () => {
    const texts = { cpu: '', memory: '5\n', memoryStat: 'inactive_file 10', processes: 'max\n', io: '', swap: '' };
    expect(new Set(Object.values(cgroupNumbers(2, texts)))).toEqual(new Set([0]));
    expect(hostCpu('')).toBeUndefined();
    expect(hostMemory('MemFree: 1 kB\n')).toBeUndefined();
  });

  test('the network is all interfaces but loopback', () => {
    const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0:  123456     100    0    0    0     0          0         0     7890      50    0    0    0     0       0          0
  eth1:1       1    0    0    0     0          0         0     2       1    0    0    0     0       0          0
`;
    expect(networkNumbers(text)).toEqual({
      receivedBytes: 123_457,
      receivedPackets: 101,
      sentBytes: 7892,
      sentPackets: 51,
    });
  });

  test('the address space of a process stands behind a name that may hold anything', () => {
    const before = '1 (a) b (c) R 1 1 1 0 -1 4194560 100 0 0 0 10 5 0 0 20 0 1 0 100 ';
    expect(addressSpaceBytes(`${before}8392704 250 18446744073709551615\n`)).toBe(8_392_704);
    expect(addressSpaceBytes('')).toBe(0);
    expect(processIds('7\n8\n9\n', 2)).toEqual([7, 8]);
    expect(processIds('', 2)).toEqual([]);
  });
});

describe('the use of the machine', () => {
  test('counts busy ticks without waiting for disks, and guests once', () => {
    expect(hostCpu('cpu  100 20 30 400 50 6 4 10 90 5\ncpu0 1 1 1 1 1 1 1 1 0 0\n')).toEqual({ busy: 170, total: 620 });
  });

  test('memory that the kernel can give at once is not used', () => {
    expect(hostMemory('MemTotal:    8000 kB\nMemFree:  100 kB\nMemAvailable:   6000 kB\n')).toEqual({
      usedBytes: 2000 * 1024,
      totalBytes: 8000 * 1024,
    });
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
