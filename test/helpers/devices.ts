// Devices of a machine as the agent's room of devices has them.
import type { Device } from '../../agent/devices/device-table.ts';
import { HEALTHY } from '../../agent/devices/health.ts';
import type { DeviceHealth } from '../../agent/devices/health.ts';
import { gpuUuid } from './gpus.ts';

export function aDevice(index: number, changes: Partial<Device> = {}, health: Partial<DeviceHealth> = {}): Device {
  return {
    uuid: gpuUuid(index),
    model: 'H100',
    memoryBytes: 80e9,
    busId: `0000:0${index}:00.0`,
    index,
    numaNode: 0,
    parentUuid: '',
    health: { ...HEALTHY, ...health },
    excluded: false,
    lastDockerIds: [],
    sample: undefined,
    usedMib: undefined,
    ...changes,
  };
}
