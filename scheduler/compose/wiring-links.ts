// Notifications around the links of agents: orders of images, streams, builds, changes and containers.
import { readSteps } from '#shared/domain/dockerfile/read.ts';
import { imagesIn } from '#shared/domain/dockerfile/stages.ts';
import type { ContainerId, WorkspaceId } from '#shared/domain/ids.ts';
import { endLineOf } from '../tasks/records/end-line.ts';
import type { Wired, WiredLinks } from './wired.ts';

/** Links, logs and images follow containers and machines. */
export function wireLinks({ clusterState, linkParts, taskParts, podParts }: WiredLinks): void {
  const { links, logs, images, pages } = linkParts;
  clusterState.containers.onChange((change) => logs.containerChanged(change));
  clusterState.machines.onChange((machine) => links.machineChanged(machine));
  images.onOrder((machineId, order) => links.order(machineId, { prepareImage: order }));
  pages.onOrder((machineId, requestId) => links.order(machineId, { fetchMetrics: { requestId } }));
  const { attempts, streams } = taskParts;
  links.onStream((machineId, taskId, token, bytes) => {
    const attempt = attempts.find(taskId, token);
    // The attempt has ended meanwhile, or is another machine's.
    if (attempt === undefined || attempt.machineId !== machineId || attempt.ending !== undefined)
      return void bytes.destroy();
    const { containerId } = attempt;
    // A container made by hand is in use while a call lasts.
    if (clusterState.containers.get(containerId)?.spec.byHand === true)
      bytes.once('close', podParts.containerUses.hold(containerId));
    streams.arrived(attempt.job, bytes);
  });
  links.onQueuesReady((queues) => {
    for (const queue of queues) taskParts.dispatcher.wake(queue);
  });
}

/** Streams that were ordered from agents: files of volumes, programs in containers, events of builds. */
export function wireOrderedStreams(parts: Wired): void {
  const { linkParts, volumeStreams, podParts, buildStreams, clusterState } = parts;
  const { links, images } = linkParts;
  const { containerStreams } = podParts;
  for (const streams of [containerStreams, volumeStreams, buildStreams])
    clusterState.machines.onChange((machine) => streams.machineChanged(machine));
  containerStreams.onOrder((machineId, order) => links.order(machineId, { serveContainer: order }));
  volumeStreams.onOrder((machineId, order) => links.order(machineId, { serveVolume: order }));
  buildStreams.onOrder((machineId, order) => {
    // The machine asks for credentials of its bases here, where it is linked.
    const workspaceId = order.workspaceId as WorkspaceId;
    images.expect(machineId, workspaceId, basesOf(order.steps ?? []));
    return links.order(machineId, { buildImage: order });
  });
  links.onOrderedStream((machineId, streamId, bytes) =>
    ([buildStreams, containerStreams].find((streams) => streams.has(streamId)) ?? volumeStreams).arrived(
      machineId,
      streamId,
      bytes,
    ),
  );
}

function basesOf(steps: readonly { readonly text?: string }[]): readonly string[] {
  const read = readSteps(steps.map(({ text = '' }) => text));
  return read.kind === 'steps' ? imagesIn(read.sources) : [];
}

/** Changes of containers, which their agents carry out. */
export function wireChanges({ clusterState: { machines }, linkParts: { links }, podParts }: Wired): void {
  const { containerChanges, snapshots } = podParts;
  snapshots.onUnwanted((machineId, images) => void links.order(machineId, { removeImages: { images: [...images] } }));
  containerChanges.onOrder((machineId, order) => links.order(machineId, { changeContainer: order }));
  links.onContainerChanged((machineId, changed) => containerChanges.changed(machineId, changed));
  machines.onChange((machine) => containerChanges.machineChanged(machine));
}

/** Cache volumes that were deleted. */
export function wireCaches({ clusterState: { agentReports }, linkParts: { links }, cacheVolumes }: Wired): void {
  cacheVolumes.onRemove((machineId, volumeIds) =>
    links.order(machineId, { removeCaches: { volumeIds: [...volumeIds] } }),
  );
  agentReports.onCaches((machineId, volumeIds) => cacheVolumes.told(machineId, volumeIds));
}

/** Built images: those that are unused, those that a machine has, and those that are wanted where they are not. */
export function wireBuilds(parts: Wired): void {
  const { linkParts, scaling, imageCollector, rebuilds, registryParts } = parts;
  const { links } = linkParts;
  const { machines } = parts.clusterState;
  const { builtRegistry } = registryParts;
  links.onRegistry((machineId, bytes) => {
    if (builtRegistry === undefined) bytes.destroy();
    else builtRegistry.proxy.accept(machineId, bytes);
  });
  scaling.placer.onImageAway(({ row, spec }, homes) => {
    const work = { workspaceId: row.workspaceId, poolName: spec.poolName, gpu: spec.gpuCount > 0 ? spec.gpu : [] };
    rebuilds.wanted({ image: spec.wire.image ?? '', work, homes: [...homes] });
  });
  rebuilds.onBuilt(() => scaling.placer.imagesChanged());
  imageCollector.onRemove((machineId, images) => links.order(machineId, { removeImages: { images: [...images] } }));
  machines.onChange((machine) => imageCollector.machineChanged(machine));
}

/** Logs of tasks say how the scheduler ended them. */
export function wireEnds({ linkParts: { logs }, taskParts: { changes } }: WiredLinks): void {
  changes.onChange((record) => {
    const line = endLineOf(record);
    if (line === undefined) return;
    const { workspaceId, stubId, deploymentId, containerId, taskId, endedAtMs, past } = record;
    logs.note({
      ...{ workspaceId, stubId, deploymentId, taskId, line },
      // A task that only waited was in no container.
      containerId: containerId ?? ((past?.at(-1)?.containerId ?? '') as ContainerId),
      stream: 'stderr',
      atMs: endedAtMs ?? Date.now(),
    });
  });
}

/** Orders, slots, loads and attempts follow the containers. */
export function wireContainers({ clusterState, linkParts, taskParts }: WiredLinks): void {
  const { containers, slots, loads } = clusterState;
  containers.onChange((change) => {
    const { entry, from, to } = change;
    linkParts.links.containerMoved(change);
    if (to === 'STOPPING' || to === 'DRAINING') slots.leave(entry.row.id);
    if (from === 'DRAINING' && to === 'RUNNING') {
      slots.stay(entry.row.id);
      taskParts.dispatcher.wake(entry.spec.queue);
    }
    if (to === 'STOPPING' || to === 'DRAINING') taskParts.drainCutoff.lookAt(entry.row.id);
    if (to === 'STOPPED' || to === 'FAILED' || to === 'LOST' || to === 'PENDING') {
      entry.served = loads.of(entry.row.id)?.served ?? false;
      loads.tellLast(entry.row.id);
      slots.remove(entry.row.id);
      loads.forget(entry.row.id);
      void taskParts.reports.containerGone(entry.row.id);
    }
  });
}
