// Published output of drivers, of every kind, and the values parsed from it.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { DeviceTable } from '../../../agent/devices/device-table.ts';
import { NO_SLICES } from '../../../agent/devices/nvidia-smi.ts';
import type { Listing, ToolOutput } from '../../../agent/devices/parse.ts';
import {
  GPU_FIELDS,
  busIdOf,
  hasLostAccess,
  parseInstances,
  parseListing,
  parseProcesses,
  parseSlices,
} from '../../../agent/devices/parse.ts';

const said = (stdout: string, exitCode = 0, stderr = ''): ToolOutput => ({ exitCode, stdout, stderr });
/** Fields of the rows below; the later fields report the fabric and clocks. */
const FIELDS = GPU_FIELDS.slice(0, GPU_FIELDS.indexOf('gpu_recovery_action') + 1);
const read = (stdout: string, exitCode = 0, stderr = ''): Listing =>
  parseListing(FIELDS, said(stdout, exitCode, stderr));
/** Fields that an older driver is asked for. */
const OLD_FIELDS = FIELDS.filter((field) => field !== 'gpu_recovery_action' && field !== 'mig.mode.current');

const H100 =
  '0, GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01, NVIDIA H100 80GB HBM3, 81559, 1, 0, 31, 68.52, 580.126.09, Disabled, 00000000:1B:00.0, None';
const A10G =
  '1, GPU-0a0b0c0d-1111-2222-3333-444455556666, NVIDIA A10G, 23028, 1, 0, 28, 15.11, 580.126.09, [N/A], 00000000:00:1E.0, None';
const MIG =
  '3, GPU-12121212-3434-5656-7878-909090909090, NVIDIA H100 80GB HBM3, 81559, 87, [N/A], 40, 101.00, 580.126.09, Enabled, 00000000:43:00.0, None';
const SHARED =
  '4, GPU-77777777-8888-9999-aaaa-bbbbbbbbbbbb, NVIDIA GB10, [N/A], [N/A], 0, 45, [N/A], 580.126.09, [N/A], 0000000F:01:00.0, [N/A]';

/** Answer of driver 580.159.04 on a machine with an H100, but for the device's UUID. */
const SEEN =
  '0, GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01, NVIDIA H100 80GB HBM3, 81559, 0, 0, 37, 77.28, 580.159.04, Disabled, 00000000:00:06.0, None, N/A, Not Active, Not Active, 9.0';

describe('a listing', () => {
  test('of all fields, as a real H100 without switches answers', () => {
    expect(parseListing(GPU_FIELDS, said(`${SEEN}\n`))).toEqual({
      kind: 'listed',
      broken: [],
      unreadable: 0,
      rows: [
        {
          index: 0,
          uuid: 'GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01',
          name: 'NVIDIA H100 80GB HBM3',
          memoryMib: 81_559,
          memoryUsedMib: 0,
          utilizationPct: 0,
          temperatureCelsius: 37,
          powerWatts: 77.28,
          driver: '580.159.04',
          migEnabled: false,
          busId: '0000:00:06.0',
          recovery: 'None',
          fabric: '',
          slowed: false,
          computeCap: '9.0',
        },
      ],
    });
  });

  test('of a current driver is read whole, with what a device does not say left out', () => {
    const listing = read(`${H100}\n${A10G}\n${MIG}\n${SHARED}\n`);
    expect(listing).toMatchObject({ kind: 'listed', broken: [], unreadable: 0 });
    const rows = listing.kind === 'listed' ? listing.rows : [];
    expect(rows.map((row) => [row.uuid.slice(0, 12), row.memoryMib, row.migEnabled, row.busId])).toEqual([
      ['GPU-7c3a1d52', 81_559, false, '0000:1b:00.0'],
      ['GPU-0a0b0c0d', 23_028, false, '0000:00:1e.0'],
      ['GPU-12121212', 81_559, true, '0000:43:00.0'],
      ['GPU-77777777', undefined, false, '000f:01:00.0'],
    ]);
    expect(rows[0]).toMatchObject({ utilizationPct: 0, temperatureCelsius: 31, powerWatts: 68.52, recovery: 'None' });
    expect(rows[3]).toMatchObject({ recovery: undefined, powerWatts: undefined });
  });

  test('of an older driver, with fewer fields, units and [Not Supported]', () => {
    const line =
      '0, GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee, Tesla T4, 15109 MiB, 0 MiB, [Not Supported], 44, 9.80 W, 418.87.01, 00000000:00:04.0';
    expect(parseListing(OLD_FIELDS, said(`${line}\n`))).toMatchObject({
      kind: 'listed',
      rows: [{ memoryMib: 15_109, utilizationPct: undefined, powerWatts: 9.8, driver: '418.87.01', migEnabled: false }],
    });
  });

  test('names the field that a driver does not know, so that it is asked again without', () => {
    expect(read('Field "gpu_recovery_action" is not a valid field to query.\n\n', 2)).toEqual({
      kind: 'unknown_field',
      field: 'gpu_recovery_action',
    });
    expect(read('Field "uuid" is not a valid field to query.\n', 2)).toMatchObject({ kind: 'failed', reason: 'error' });
  });

  test.each([
    [
      "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n",
      9,
      'no_driver',
    ],
    [
      'Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54\n',
      18,
      'driver_mismatch',
    ],
    [
      "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly installed.\n",
      12,
      'no_driver',
    ],
    ['Failed to initialize NVML: Insufficient Permissions\n', 4, 'permission'],
    ['Failed to initialize NVML: Unknown Error\n', 255, 'error'],
    [
      'Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU\n',
      15,
      'off_bus',
    ],
    ['', 0, 'unparsable'],
    ['<html>no</html>\n', 1, 'error'],
  ])('that fails with %j says why', (text, exitCode, reason) => {
    expect(read(text, exitCode)).toMatchObject({ kind: 'failed', reason });
  });

  test('of no devices is an answer, not a failure', () => {
    expect(read('No devices were found\n', 6)).toEqual({ kind: 'listed', rows: [], broken: [], unreadable: 0 });
    expect(read('No devices were found\n', 0)).toEqual({ kind: 'listed', rows: [], broken: [], unreadable: 0 });
  });

  test('with one device that does not answer still has the others', () => {
    const broken = 'Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error';
    for (const exitCode of [0, 14, 255])
      expect(read(`${H100}\n${broken}\n${A10G}\n`, exitCode)).toMatchObject({
        kind: 'listed',
        rows: [{ index: 0 }, { index: 1 }],
        broken: ['0000:3b:00.0'],
      });
    expect(read(`${broken}\n`, 255)).toMatchObject({ kind: 'failed', broken: ['0000:3b:00.0'] });
  });

  test.each(['[Unknown Error]', '[GPU is lost]', 'ERR!'])(
    'with %s where its name should be has a broken one',
    (word) => {
      const line = `2, ${word}, ${word}, ${word}, ${word}, ${word}, ${word}, ${word}, 580.126.09, [N/A], 00000000:01:00.0, [N/A]`;
      expect(read(`${H100}\n${line}\n`)).toMatchObject({
        rows: [{ index: 0 }],
        broken: ['0000:01:00.0'],
        unreadable: 0,
      });
    },
  );

  test('that is cut off says so: what is missing is not gone', () => {
    const whole = `${H100}\n${A10G}\n`;
    for (let length = H100.length + 5; length < H100.length + A10G.length - 30; length += 1)
      expect(read(whole.slice(0, length))).toMatchObject({ kind: 'listed', rows: [{ index: 0 }], unreadable: 1 });
  });

  test('of anything at all throws nothing and invents no device', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 400 }), fc.integer({ min: 0, max: 255 }), (text, exitCode) => {
        const listing = read(text, exitCode);
        expect(listing.kind === 'listed' ? listing.rows : []).toEqual([]);
        parseSlices(text);
        parseProcesses(said(text, exitCode));
      }),
      { numRuns: 500 },
    );
    const mutated = fc
      .tuple(fc.nat({ max: H100.length }), fc.string({ maxLength: 6 }))
      .map(([at, text]) => H100.slice(0, at) + text + H100.slice(at + text.length));
    fc.assert(
      fc.property(mutated, (line) => {
        const listing = read(`${line}\n`);
        for (const row of listing.kind === 'listed' ? listing.rows : [])
          expect(row).toMatchObject({
            uuid: expect.stringMatching(/^(GPU|MIG)-/),
            busId: expect.stringMatching(/^[0-9a-f]{4,8}:/),
          });
      }),
      { numRuns: 500 },
    );
  });
});

test('slices are listed with the device they are part of', () => {
  const text = `GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01)
GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-12121212-3434-5656-7878-909090909090)
  MIG 1g.10gb     Device  0: (UUID: MIG-a686709d-6dc2-542a-8851-0d2508448c10)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-11111111-6dc2-542a-8851-0d2508448c10)
  MIG 3g.40gb     Device  2: (UUID: MIG-GPU-12121212-3434-5656-7878-909090909090/2/0)
`;
  const parentUuid = 'GPU-12121212-3434-5656-7878-909090909090';
  expect(parseSlices(text).slices).toEqual([
    { uuid: 'MIG-a686709d-6dc2-542a-8851-0d2508448c10', parentUuid, profile: '1g.10gb', memoryMib: 10_240, index: 0 },
    {
      uuid: 'MIG-11111111-6dc2-542a-8851-0d2508448c10',
      parentUuid,
      profile: '1g.10gb+me',
      memoryMib: 10_240,
      index: 1,
    },
    {
      uuid: 'MIG-GPU-12121212-3434-5656-7878-909090909090/2/0',
      parentUuid,
      profile: '3g.40gb',
      memoryMib: 40_960,
      index: 2,
      instance: 2,
    },
  ]);
  // The other listing tells which GPU instance of the kernel's log
  // each slice is; a device's UUID comes after its slices there.
  const xml = `<nvidia_smi_log>
  <gpu id="00000000:1B:00.0"><mig_devices>None</mig_devices><uuid>GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01</uuid></gpu>
  <gpu id="00000000:43:00.0">
    <mig_devices>
      <mig_device>
        <index>0</index>
        <gpu_instance_id>7</gpu_instance_id>
        <compute_instance_id>0</compute_instance_id>
      </mig_device>
      <mig_device>
        <index>1</index>
        <gpu_instance_id>11</gpu_instance_id>
      </mig_device>
    </mig_devices>
    <uuid>${parentUuid}</uuid>
    <processes><process_info><gpu_instance_id>N/A</gpu_instance_id></process_info></processes>
  </gpu>
</nvidia_smi_log>`;
  expect(Object.fromEntries(parseInstances(xml))).toEqual({ [`${parentUuid}/0`]: 7, [`${parentUuid}/1`]: 11 });
  expect(parseInstances('NVIDIA-SMI has failed').size).toBe(0);
});

test('compute processes are read, and a driver that tells of none has none', () => {
  expect(parseProcesses(said('GPU-a-1, 4711\nGPU-b-2, 12\n'))).toEqual([
    { uuid: 'GPU-a-1', pid: 4711 },
    { uuid: 'GPU-b-2', pid: 12 },
  ]);
  expect(parseProcesses(said(''))).toEqual([]);
  expect(parseProcesses(said('[Not Supported], [Not Supported]\n'))).toEqual([]);
  expect(parseProcesses(said('GPU-a-1, [Unknown Error]\n'))).toBeUndefined();
  expect(parseProcesses(said('GPU-a-1, 4711\n', 15))).toBeUndefined();
});

test('the fabric and what holds clocks down are read where the driver tells them', () => {
  const row = (tail: string): unknown => {
    const listing = parseListing(GPU_FIELDS, said(`${H100}, ${tail}\n`));
    return listing.kind === 'listed' ? listing.rows[0] : listing;
  };
  expect(row('Completed, Not Active, Not Active, 9.0')).toMatchObject({ fabric: 'Completed', slowed: false });
  expect(row('N/A, Not Active, Active, 9.0')).toMatchObject({ fabric: '', slowed: true });
  expect(row('[N/A], [N/A], [N/A], [N/A]')).toMatchObject({ fabric: '', slowed: undefined, computeCap: '' });
});

test('bus ids are those of /sys, whatever the spelling', () => {
  expect(busIdOf('00000000:3B:00.0')).toBe('0000:3b:00.0');
  expect(busIdOf('0000:3b:00')).toBe('0000:3b:00.0');
  // Behind Intel's VMD, and on large hosts of Arm, domains have more than four digits.
  expect(busIdOf('00010000:E1:00.0')).toBe('10000:e1:00.0');
  expect(busIdOf('10000:E1:00.0')).toBe('10000:e1:00.0');
  expect(busIdOf('3b:00.0')).toBe('');
});

test('only the one text means that a container has lost its devices', () => {
  expect(hasLostAccess('Failed to initialize NVML: Unknown Error\n')).toBe(true);
  expect(hasLostAccess('Failed to initialize NVML: Driver/library version mismatch\n')).toBe(false);
  expect(hasLostAccess('GPU 0: NVIDIA A10G (UUID: GPU-1)\n')).toBe(false);
});

describe('the table of devices', () => {
  const none: ReadonlySet<string> = new Set();
  const table = (...excluded: string[]): DeviceTable => new DeviceTable(excluded, () => 0);
  /** States once every due probe has passed. */
  const states = (devices: DeviceTable): Record<string, string> => {
    for (const { uuid, health } of devices.all())
      if (health.state === 'unprobed') devices.event(uuid, { kind: 'probed', why: '' });
    return Object.fromEntries(devices.all().map(({ uuid, health }) => [uuid.slice(0, 12), health.state]));
  };

  test('offers slices in place of the device that is divided', () => {
    const devices = table();
    const { slices } = parseSlices(
      'GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-12121212-3434-5656-7878-909090909090)\n  MIG 3g.40gb     Device  0: (UUID: MIG-53864714-0a66-5df2-9007-9268e30d9a72)\n',
    );
    devices.take(read(`${H100}\n${MIG}\n`), { found: slices, silent: none }, none);
    expect(devices.all().map(({ model, memoryBytes }) => [model, memoryBytes / 1024 ** 2])).toEqual([
      ['H100', 81_559],
      ['H100-MIG-3g.40gb', 40_960],
    ]);
    // The operator switches MIG off, and free slices are no devices any more.
    devices.take(read(`${H100}\n${MIG.replace('Enabled', 'Disabled')}\n`), NO_SLICES, none);
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'healthy', 'GPU-12121212': 'healthy' });
  });

  test('leaves out what is excluded, by UUID or bus id', () => {
    const devices = table('GPU-7C3A1D52-0f4e-4d0b-9a55-1c6f5a1e9b01', '00000000:00:1E.0');
    devices.take(read(`${H100}\n${A10G}\n${SHARED}\n`), NO_SLICES, none);
    expect(devices.all().map(({ model }) => model)).toEqual(['GB10']);
  });

  test('calls a device suspect after two probes without an answer, never lost, and healthy with the next answer', () => {
    const devices = table();
    devices.take(read(`${H100}\n`), NO_SLICES, none);
    const silence: Listing = { kind: 'failed', reason: 'timeout', text: 'no answer', broken: [] };
    for (const state of ['healthy', 'suspect', 'suspect', 'suspect']) {
      expect(devices.take(silence, NO_SLICES, none)).toEqual([]);
      expect(states(devices)).toEqual({ 'GPU-7c3a1d52': state });
    }
    devices.take(read(`${H100}\n`), NO_SLICES, none);
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'healthy' });
  });

  test('calls lost what the driver lists no more or cannot reach, and nothing else', () => {
    const devices = table();
    devices.take(read(`${H100}\n${A10G}\n`), NO_SLICES, none);
    expect(devices.take(read(`${A10G}\n`), NO_SLICES, none).map(({ model }) => model)).toEqual(['H100']);
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'lost', 'GPU-0a0b0c0d': 'healthy' });
    const broken = 'Unable to determine the device handle for GPU0000:00:1E.0: Unknown Error';
    devices.take(read(`${H100}\n${broken}\n`), NO_SLICES, none);
    // A listing does not say whether its last container is gone.
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'quarantined', 'GPU-0a0b0c0d': 'lost' });
    devices.event('GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01', { kind: 'proved_free' });
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'healthy', 'GPU-0a0b0c0d': 'lost' });
    devices.take(read(`${H100}\n${A10G.slice(0, 40)}`), NO_SLICES, none);
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'healthy', 'GPU-0a0b0c0d': 'lost' });
    devices.take(read('No devices were found\n', 6), NO_SLICES, none);
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'lost', 'GPU-0a0b0c0d': 'lost' });
  });

  test('keeps what is broken out until the driver, having asked for a reset, asks no more, or the host has booted', () => {
    const devices = table();
    const uuid = 'GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01';
    devices.take(read(`${H100}\n`), NO_SLICES, none);
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'healthy' });
    devices.event(uuid, { kind: 'broken', why: 'Xid 79' });
    devices.take(read(`${H100}\n`), NO_SLICES, none);
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'unhealthy' });
    const again = table();
    again.restore(JSON.parse(JSON.stringify(devices.stored())) as ReturnType<DeviceTable['stored']>, false, '580');
    expect(states(again)).toEqual({ 'GPU-7c3a1d52': 'unhealthy' });
    devices.take(read(`${H100.replace(/None$/, 'Reset')}\n`), NO_SLICES, none);
    devices.take(read(`${H100}\n`), NO_SLICES, none);
    expect(states(devices)).toEqual({ 'GPU-7c3a1d52': 'healthy' });
    const booted = table();
    booted.restore(again.stored(), true, '580');
    expect(states(booted)).toEqual({ 'GPU-7c3a1d52': 'healthy' });
  });
});
