// Who has which device: containers and builds of images.
import { describe, expect, test } from 'vitest';
import type { Device } from '../../../agent/devices/device-table.ts';
import type { LeaseOwner } from '../../../agent/devices/leases.ts';
import { Owners } from '../../../agent/devices/owners.ts';
import { aDevice } from '../../helpers/devices.ts';
import { gpuUuid } from '../../helpers/gpus.ts';

const [G0, G1, G2] = [0, 1, 2].map(gpuUuid) as [string, string, string];
const container = (containerId: string, ...gpuUuids: string[]): LeaseOwner => ({
  containerId,
  epoch: 1,
  dockerId: undefined,
  gpuUuids,
});

function ownersOf(devices: readonly Device[], ...containers: readonly LeaseOwner[]): Owners {
  const leasable = (uuid: string) => {
    const device = devices.find((one) => one.uuid === uuid);
    return device && { state: device.health.state, why: device.health.why, sharesWith: [] };
  };
  return new Owners({ table: { all: () => [...devices], leasable }, containers: () => containers });
}

describe('a build', () => {
  const devices = [aDevice(0), aDevice(1, { model: 'A100' }, { state: 'unhealthy' }), aDevice(2, { model: 'A100' })];

  test('gets a free and healthy device by its order of models, and keeps it until it ends', () => {
    const owners = ownersOf(devices);
    expect(owners.freeForBuild(['A100', 'H100'])).toEqual([G2, G0]);
    expect(owners.takeForBuild('b1', ['A100', 'H100'])).toEqual({ kind: 'leased', uuid: G2 });
    expect(owners.takeForBuild('b1', ['H100'])).toEqual({ kind: 'leased', uuid: G2 });
    expect(owners.takeForBuild('b2', ['any'])).toEqual({ kind: 'leased', uuid: G0 });
    expect([owners.ofBuild('b1'), owners.inBuild()]).toEqual([[G2], new Set([G2, G0])]);
    owners.buildEnded('b1');
    expect([owners.ofBuild('b1'), owners.inBuild()]).toEqual([[], new Set([G0])]);
  });

  test('waits where no device of its models is free, and gets none where there is none', () => {
    const owners = ownersOf(devices, container('c1', G2));
    expect(owners.takeForBuild('b1', ['A100'])).toEqual({ kind: 'busy' });
    expect(owners.takeForBuild('b1', ['T4'])).toEqual({ kind: 'absent' });
    expect(owners.inBuild()).toEqual(new Set());
  });

  test('and a container never have the same device', () => {
    const owners = ownersOf(devices, container('c1', G0));
    owners.holdForBuild('b1', [G2]);
    const wants = (uuid: string) => owners.refusal({ containerId: 'c2', epoch: 1, gpuUuids: [uuid] })?.reason;
    expect([wants(G0), wants(G1), wants(G2)]).toEqual(['gpu_leased', 'gpu_not_healthy', 'gpu_leased']);
    expect(owners.held()).toEqual(new Set([G0, G2]));
    expect([G0, G1, G2].map((uuid) => owners.of({ uuid }).map(({ containerId }) => containerId))).toEqual([
      ['c1'],
      [],
      ['b1'],
    ]);
  });
});
