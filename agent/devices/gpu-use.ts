/** GPU use of one container, and of each device, from the tool's last sample of each device. Pure. */
import type { DeviceSample, GpuUse } from '#shared/protocol/generated/messages.ts';
import type { Device } from './device-table.ts';

/**
 * Utilization is the mean over the container's devices; memory and power are sums. A value is absent unless every
 * device has it: a partial sum would look like less use. A MIG slice has only a value for memory. Source: decision
 * 0111.
 * @param devices - undefined entries are devices without a current sample
 * @returns undefined when the container has no devices
 */
export function gpuUseOf(devices: readonly (Device | undefined)[]): GpuUse | undefined {
  if (devices.length === 0) return undefined;
  const utilization = sumOf(devices, ({ sample }) => sample?.utilizationRatio);
  const memoryUsedBytes = sumOf(devices, ({ sample }) => sample?.memoryUsedBytes);
  const powerWatts = sumOf(devices, ({ sample }) => sample?.powerWatts);
  return {
    devices: devices.length,
    ...(utilization === undefined ? {} : { utilizationPct: Math.round((utilization / devices.length) * 1000) / 10 }),
    ...(memoryUsedBytes === undefined ? {} : { memoryUsedBytes }),
    memoryTotalBytes: sumOf(devices, ({ memoryBytes }) => (memoryBytes > 0 ? memoryBytes : undefined)) ?? 0,
    ...(powerWatts === undefined ? {} : { powerWatts }),
  };
}

/** Samples of devices, for the scheduler. A MIG slice has its memory at the most. */
export const deviceSamples = (devices: readonly Device[]): DeviceSample[] =>
  devices.map(({ uuid, sample, usedMib }) => {
    const { utilizationRatio, memoryUsedBytes, powerWatts, temperatureCelsius } = sample ?? {};
    const used = memoryUsedBytes ?? (usedMib === undefined ? undefined : usedMib * 1024 * 1024);
    return {
      uuid,
      ...(utilizationRatio === undefined ? {} : { utilizationPermille: Math.round(utilizationRatio * 1000) }),
      ...(used === undefined ? {} : { memoryUsedBytes: used }),
      ...(powerWatts === undefined ? {} : { powerWatts: Math.round(powerWatts) }),
      ...(temperatureCelsius === undefined ? {} : { temperatureCelsius: Math.round(temperatureCelsius) }),
    };
  });

function sumOf(
  devices: readonly (Device | undefined)[],
  read: (device: Device) => number | undefined,
): number | undefined {
  let sum = 0;
  for (const device of devices) {
    const value = device === undefined ? undefined : read(device);
    if (value === undefined) return undefined;
    sum += value;
  }
  return sum;
}
