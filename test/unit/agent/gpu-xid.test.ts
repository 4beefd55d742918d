// Error numbers of the driver: how they are read off the kernel's log, and their meaning.
import { describe, expect, test } from 'vitest';
import { meaningOf, parseSxid, parseXid } from '../../../agent/devices/xid.ts';

describe('an error number of the driver', () => {
  test.each([
    [
      "[ 1234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
      '0000:3b:00.0',
      79,
    ],
    ['NVRM: Xid (PCI:0000:C1:00): 31, pid=2345, name=python3, Ch 00000010, intr 00000000.', '0000:c1:00.0', 31],
    [
      'NVRM: Xid (PCI:0000:00:06): 31, pid=654, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x0_beef0000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE',
      '0000:00:06.0',
      31,
    ],
    ['NVRM: Xid (0000:03:00): 13, Graphics Exception', '0000:03:00.0', 13],
    [
      'NVRM: Xid (PCI:0000:3b:00 GPU-I:07): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No',
      '0000:3b:00.0',
      94,
      7,
    ],
    ['NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 13, pid=9, name=a, Graphics Exception', '0000:3b:00.0', 13, 5],
    ['NVRM: Xid (PCI:0000:3b:00.0): 119 pid=1, name=x, Timeout waiting for RPC from GSP', '0000:3b:00.0', 119],
  ])('is read off %j', (line, busId, xid, instance?: number) => {
    expect(parseXid(line)).toMatchObject({ busId, xid, instance });
  });

  test.each([
    'usb 1-1: new device',
    'NVRM: GPU at PCI:0000:00:06: GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01',
    'NVRM: GPU Board Serial Number: 1234567890123',
    'NVRM: loading NVIDIA UNIX x86_64 Kernel Module',
    'NVRM: Xid (PCI:zz): 79',
    "process '/NVRM: Xid (PCI:0000:3b:00): 79, x' started with executable stack",
    'x: NVRM: Xid (PCI:0000:3b:00): 79, pid=1',
    'audit: comm="NVRM: Xid (PCI:0000:3b:00): 79, x"',
    '[x] NVRM: Xid (PCI:0000:3b:00): 79, pid=1',
    "process 'a\nNVRM: Xid (PCI:0000:3b:00): 79, x' started with executable stack",
  ])('is not in %j', (line) => {
    expect(parseXid(line)).toBeUndefined();
  });

  test('of a switch is read at the beginning of a line alone, which programs cannot write', () => {
    const line = 'nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up';
    for (const begin of ['', '[ 1234.5] ', '[    7.123456] [  T123] '])
      expect(parseSxid(`${begin}${line}`)).toEqual({ sxid: 20_034, severity: 'fatal' });
    for (const begin of ["process '", '[x] ', 'a\n']) expect(parseSxid(`${begin}${line}`)).toBeUndefined();
  });

  const each: readonly (readonly [xid: number, before: number, meaning: string])[] = [
    ...[46, 48, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 158].map(
      (xid) => [xid, 0, 'fatal'] as const,
    ),
    [156, 0, 'drain'],
    [74, 0, 'warn'],
    [74, 1, 'fatal'],
    [94, 0, 'container'],
    ...[63, 92, 121, 149, 157].map((xid) => [xid, 5, 'warn'] as const),
    ...[13, 31, 43, 45, 68, 137].map((xid) => [xid, 9, 'note'] as const),
  ];
  test.each(each)('%i, seen %i times before, is %s', (xid, before, meaning) => {
    expect(meaningOf(xid, before, 'pid=1')).toBe(meaning);
  });

  test.each([
    ['0x0 (None) to 0x1 (GPU Reset Required)', 'fatal'],
    ['0x0 (None) to 0x2 (Node Reboot Required)', 'fatal'],
    ['0x0 (None) to 0x2 (OS Reboot)', 'fatal'],
    ['0x0 (None) to 0x1 (PF FLR)', 'fatal'],
    ['0x0 (None) to 0x3 (Drain P2P)', 'drain'],
    ['0x0 (None) to 0x4 (Drain and Reset)', 'drain'],
    ['0x0 (None) to 0x9 (Something New)', 'drain'],
    ['0x1 (GPU Reset Required) to 0x0 (None)', 'note'],
    ['0x0 (None) to 0x5 (Recover IMEX Domain)', 'note'],
    ['something else', 'warn'],
  ])('154 is what it changes to: %s is %s', (change, meaning) => {
    expect(meaningOf(154, 3, `GPU recovery action changed from ${change}`)).toBe(meaning);
  });
});
