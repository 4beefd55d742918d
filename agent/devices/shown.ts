// How devices are shown: to the scheduler, on the metrics page, and as conditions of the machine. Pure.
import type { Gpu } from '#shared/protocol/generated/messages.ts';
import type { AgentMetrics } from '../telemetry/metrics.ts';
import { EXCLUDED } from './device-table.ts';
import type { Device } from './device-table.ts';
import { isSilent } from './health.ts';
import type { LeaseOwner } from './leases.ts';

/** With this many broken devices somebody should look at the machine. Placement goes on: programs cause some errors. */
const BROKEN_TO_SUSPECT_HOST = 2;
/** Bound on device names in a condition's text. */
const MOST_NAMED = 4;

type Shown = Parameters<AgentMetrics['setGpus']>[0][number];

/** The devices as reported to the scheduler. @param inBuild - devices of builds */
export const reportOf = (devices: readonly Device[], inBuild: ReadonlySet<string>): Gpu[] =>
  devices.map((device) => ({
    uuid: device.uuid,
    model: device.model,
    memoryBytes: device.memoryBytes,
    numaNode: device.numaNode,
    ...shownState(device, inBuild.has(device.uuid)),
    pciBusId: device.busId,
    index: device.index,
    parentUuid: device.parentUuid,
    computeCap: device.computeCap ?? '',
    nvlinkIsland: device.nvlinkIsland ?? 0,
  }));

/** The devices as the metrics page has them. @param memoryUnknownBytes - memory in use by nobody known */
export function metricsOf(
  devices: readonly Device[],
  owners: Iterable<LeaseOwner>,
  memoryUnknownBytes: (uuid: string) => Shown['memoryUnknownBytes'],
): Shown[] {
  const held = new Map(
    [...owners].flatMap(({ gpuUuids, deploymentId }) => gpuUuids.map((uuid) => [uuid, deploymentId ?? ''] as const)),
  );
  return devices.map((device) => ({
    uuid: device.uuid,
    model: device.model,
    healthy: device.health.state === 'healthy' && !device.excluded,
    state: shownState(device, false).state,
    missing: device.health.state === 'lost',
    leased: held.has(device.uuid),
    deploymentId: held.get(device.uuid) ?? '',
    wholeUuid: device.parentUuid === '' ? device.uuid : device.parentUuid,
    instance: device.instance === undefined ? '' : String(device.instance),
    memoryBytes: device.memoryBytes,
    memoryUnknownBytes: memoryUnknownBytes(device.uuid),
    sample: device.sample,
  }));
}

/**
 * Words of the condition GpuDegraded; empty: it does not hold.
 * @param missing - faults of GPUs that are not among the devices
 */
export function degradedWords(devices: readonly Device[], missing: readonly string[]): string {
  const isDegraded = ({ excluded, health }: Device): boolean =>
    !excluded && (health.occupied || isSilent(health) || (health.state !== 'healthy' && health.state !== 'unprobed'));
  const faults = [...missing, ...degradedGpus(devices.filter(isDegraded))];
  const more = faults.length > MOST_NAMED ? [`and ${faults.length - MOST_NAMED} more`] : [];
  return [...faults.slice(0, MOST_NAMED), ...more].join('; ');
}

/** Whether so many devices are broken that the machine itself may be at fault. */
export function isHostSuspect(devices: readonly Device[]): boolean {
  const broken = devices.filter(({ health, excluded }) => health.state === 'unhealthy' && !excluded);
  return new Set(broken.map(({ busId }) => busId)).size >= BROKEN_TO_SUSPECT_HOST;
}

/** A text for each GPU, so that the slices of one do not hide another. */
function degradedGpus(degraded: readonly Device[]): readonly string[] {
  const byWhole = Map.groupBy(degraded, ({ uuid, parentUuid }) => parentUuid || uuid);
  return [...byWhole].flatMap(([whole, [first, ...others]]) => {
    if (first === undefined) return [];
    const { uuid, health } = first;
    const name = uuid === whole ? uuid : `${uuid} of ${whole}`;
    const more = others.length > 0 ? ` (and ${others.length} more of its slices)` : '';
    return [`${name} is ${health.state}: ${health.why.slice(0, 100)}${more}`];
  });
}

/** Whether a device is offered, and why not. Placement knows of no build: a device of one is not offered. */
function shownState(
  { excluded, health: { state, why } }: Device,
  inBuild: boolean,
): { readonly unhealthy: boolean; readonly state: string; readonly why: string } {
  if (excluded)
    return {
      unhealthy: true,
      state: 'excluded',
      why: state === 'healthy' ? EXCLUDED : `${EXCLUDED}; ${state}: ${why}`,
    };
  if (inBuild && state === 'healthy') return { unhealthy: true, state: 'in_build', why: 'an image is built with it' };
  return { unhealthy: state !== 'healthy', state, why };
}
