// Every notification between the agent's parts: who is told of what. All parts exist before the first line here runs,
// and none of them has started. Listeners of one notification run in the order of their lines.
import { isBuiltImage } from '#shared/domain/built-images.ts';
import { imageOf, isBaseImage } from '../config.ts';
import type { Journal } from '../reconcile/journal.ts';
import { overDiskText } from '../telemetry/container-disks.ts';
import type { Host } from './host.ts';
import type { Parts } from './parts.ts';

/** Time for a container that must end at once. */
const END_GRACE_MS = 1000;

/** Steps of the composition root at events of the link. */
export interface LinkEvents {
  readonly onSession: () => void;
  readonly onDisconnected: () => void;
  readonly onFirstConnected: () => void;
  readonly onRevoked: () => void;
}

export function wire(host: Host, journal: Journal, parts: Parts, root: LinkEvents): void {
  wireRunners(host, journal, parts);
  wireContainers(host, parts);
  wireMachine(host, parts);
  wireLink(host, parts, root);
}

/** Containers as their runner processes and calls describe them. */
function wireRunners(
  { log }: Host,
  journal: Journal,
  { slots, gateway, supervisors, changes, executor, logs, loop, agentState, link }: Parts,
): void {
  slots.onReady((containerId, ready) => executor.ready(containerId, ready));
  slots.onStarting((containerId, phase) => {
    if (phase === 'hello') executor.greeted(containerId);
    log.debug({ containerId, phase }, 'runner starting');
  });
  slots.onFailed((containerId, message) => executor.failed(containerId, message));
  slots.onLog((record) => logs.add(record.containerId, { ...record, atMs: Date.now() }));
  slots.onMustStop((containerId, reason) => executor.end(containerId, reason, END_GRACE_MS));
  slots.onSuspect((containerId) => {
    const dockerId = journal.get(containerId)?.dockerId;
    if (dockerId !== undefined)
      loop.check(dockerId).catch((error: unknown) => log.info({ err: error, containerId }, 'inspection failed'));
  });
  slots.onViolation((containerId, rule, text) => executor.violated(containerId, rule, text));
  slots.onSlots((containerId, change) => agentState.noteSlots(containerId, change));
  link.onChangeContainer((order) => changes.take(order));
  link.onServeContainer((order) => supervisors.serve(order));
  // The next agent process listens for it again.
  supervisors.onAdded((containerId) => {
    journal
      .change(containerId, { hasSupervisor: true })
      .catch((error: unknown) => log.error({ err: error }, 'journal write failed'));
  });
  gateway.onViolation((containerId, rule, text) => executor.violated(containerId, rule, text));
}

/** Tells a container's runner processes whether it leaves for another one. */
function tellNotice({ agentState, slots }: Pick<Parts, 'agentState' | 'slots'>, containerId: string): void {
  const noticeMs = agentState.noticeMsOf(containerId);
  if (noticeMs !== undefined) slots.get(containerId)?.interrupt(noticeMs);
}

/** Containers as the engine sees them, and what they use. */
function wireContainers({ config }: Host, parts: Parts): void {
  const { agentState, loop, link, executor, pauseContainers, slots, engineTrials, compiler, containerDisks, caches } =
    parts;
  const { changes } = parts;
  agentState.onChange((containerId) => {
    link.changed(containerId);
    loop.wake();
    changes.follow(containerId);
    tellNotice(parts, containerId);
  });
  loop.onOom((containerId) => slots.get(containerId)?.noteOom());
  loop.onListed((containers) => pauseContainers.tidy(containers));
  loop.onPauseContainerEnded((dockerId) => pauseContainers.ended(dockerId));
  pauseContainers.onFailed((error) => void engineTrials.blamed(error));
  pauseContainers.onLost((containerId) => executor.end(containerId, 'lost', END_GRACE_MS));
  containerDisks.onOver(({ containerId, ...charge }) =>
    executor.overDisk(containerId, overDiskText(charge, containerDisks.limitBytes)),
  );
  parts.helperMounts.onLost((containerId, why) => executor.mountLost(containerId, why));
  caches.onExcess((dockerId, message) => {
    const container = agentState.running().find((one) => one.dockerId === dockerId);
    if (container !== undefined) executor.overDisk(container.containerId, message);
  });
  // The Python of a base image compiles the runner for every container; a tenant's image never may.
  executor.onImageUsed((image, pythonVersion) => {
    if (isBaseImage(config, image)) compiler.want(image);
    // An image that was built here from a definition has the Python of a base image.
    else if (isBuiltImage(image)) compiler.want(imageOf(config, '', pythonVersion));
  });
}

/** The machine's devices, disks and conditions. */
function wireMachine(
  { conditions, log }: Host,
  { gpus, executor, logs, link, disks, cache, caches, volumeFiles, volumeUse }: Parts,
): void {
  conditions.onChange(() => link.heartbeatNow());
  gpus.onChange(() => link.devicesChanged());
  link.onExpectedGpus((count) => gpus.poolExpects(count));
  gpus.onFault((containerId, message) => executor.fault(containerId, message));
  gpus.onNote((containerId, message) => logs.say(containerId, message));
  executor.onLeaseRefused(() => {
    link.devicesChanged();
    link.reportAll();
  });
  // Cache volumes can be had again from where they came; a built image cannot.
  disks.onLow(async () => {
    await caches
      .look()
      .catch((error: unknown) => log.warn({ err: error }, 'cache volumes could not be looked through'));
    await cache.collect(false);
  });
  volumeFiles.onEnded(({ workspaceId, driver }) => {
    if (driver === 'local') volumeUse.changed(workspaceId);
  });
}

/** Messages to the scheduler, and messages from it. */
function wireLink({ log }: Host, parts: Parts, root: LinkEvents): void {
  const { link, logs, hostDrain, preparer, orders, changes, volumeFiles, imageBuilds, caches, volumes } = parts;
  const { helperMounts, agentState } = parts;
  helperMounts.onOffered(() => link.send({ volumeDrivers: { names: [...volumes.offered] } }));
  logs.onWaiting(() => link.logsWaiting());
  hostDrain.onMessage((message) => link.send({ hostDrain: message }));
  link.onPrepareImage((order) => {
    preparer.take(order).catch((error: unknown) => log.warn({ err: error, image: order.image }, 'image not prepared'));
  });
  link.onServeVolume((order) => volumeFiles.serve(order));
  link.onBuildImage((order) => imageBuilds.take(order));
  link.onRemoveImages((images) => {
    imageBuilds.remove(images).catch((error: unknown) => log.info({ err: error, images }, 'images were not removed'));
  });
  link.onRemoveCaches((volumeIds) => {
    caches.remove(volumeIds).catch((error: unknown) => log.warn({ err: error }, 'cache volumes were not removed'));
  });
  link.onSession(() => caches.tellAgain());
  link.onDesired((desired) => orders.desired(desired));
  link.onDesired(() => changes.desired());
  link.onDesired(() => {
    for (const { containerId } of agentState.journal.all()) tellNotice(parts, containerId);
  });
  link.onProceed((assignmentId, permission) => orders.proceed(assignmentId, permission));
  link.onSession(root.onSession);
  link.onSession(() => orders.newSession());
  link.onDisconnected(root.onDisconnected);
  link.onFirstConnected(root.onFirstConnected);
  link.onRevoked(root.onRevoked);
}
