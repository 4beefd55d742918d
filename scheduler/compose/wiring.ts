// Notifications between parts: who is told of what, and in which order. All parts exist before the first line
// here runs, and none of them has started. Listeners of one notification run in the order of their lines, behind those
// that a part got where it was built (compose/README.md).
import type { QueueName, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import { queueNameOf } from '#shared/domain/ids.ts';
import type { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import type { Drains } from '../fleet/drains.ts';
import type { Machines } from '../fleet/machines.ts';
import type { Workers } from '../fleet/workers.ts';
import { readRevoke } from '../replicas/outcome-messages.ts';
import { lookAtWaiting } from '../api/explain/waiting.ts';
import type { ProvisioningLoop } from '../control/provisioning/loop.ts';
import { offersOf } from '../control/provisioning/offers.ts';
import type { FeasibilityCheck } from '../control/placement/feasibility-check.ts';
import type { Placer } from '../control/placement/placer.ts';
import type { CapacityChanges } from '../domain/provisioning.ts';
import type { PoolDirectory } from '../fleet/pool-directory.ts';
import type { Dispatcher } from '../tasks/dispatch/dispatcher.ts';
import type { Replies } from '../tasks/dispatch/replies.ts';
import type { Lines } from '../tasks/lines/lines.ts';
import type { DueTimes } from '../stores/queues/due.ts';
import type { TaskQueues } from '../stores/queues/task-queues.ts';
import type { Callers } from '../tasks/admission/callers.ts';
import type { Sender } from '../tasks/dispatch/sending.ts';
import type { Targets } from '../workspaces/deployments/targets.ts';
import type { Scaling } from './scaling.ts';
import type { Wired } from './wired.ts';
import {
  wireBuilds,
  wireCaches,
  wireChanges,
  wireContainers,
  wireEnds,
  wireLinks,
  wireOrderedStreams,
} from './wiring-links.ts';

export function wire(parts: Wired): void {
  const { clusterState, lineParts, taskParts, scaling, targets, workers, drains } = parts;
  const { containers, machines, agentReports, feasibility } = clusterState;
  wireTasks({ ...taskParts, ...lineParts });
  machines.onChange((machine) => parts.gauges.fleet.machineChanged(machine));
  machines.onChange((machine) => agentReports.machineChanged(machine));
  machines.onChange(() => feasibility.machineChanged());
  machines.onWritten(() => feasibility.machineChanged());
  wireScaling({ containers, machines, targets, ...scaling });
  wireProvisioning({
    directory: parts.poolParts.poolDirectory,
    containers,
    machines,
    feasibility,
    provisioning: parts.provisioning,
    placer: scaling.placer,
    changes: parts.provisioned,
  });
  clusterState.leader.onChange(({ kind }) => void (kind === 'leading' && parts.provisioning.leads()));
  parts.identity.limits.onChange(() => parts.provisioning.limitsChanged());
  wireLinks(parts);
  parts.linkParts.links.onContainerCall((machineId, call) => parts.containerCalls.serve(machineId, call));
  taskParts.streams.onElsewhere((replica, taskId, bytes) => parts.streamRelay.carry(replica, taskId, bytes));
  parts.linkParts.links.onSampled((machineId, samples) => {
    parts.seriesParts.containerSamples.heard(machineId, samples);
    parts.seriesParts.poolSamples.heard(machineId, samples.machine);
  });
  parts.seriesParts.containerSamples.onSampled((entry, sample) =>
    parts.seriesParts.sampleEvents.sampled(entry, sample),
  );
  wireOrderedStreams(parts);
  wireBuilds(parts);
  wireCaches(parts);
  wireGivenUp(containers, taskParts.callers);
  wireContainers(parts);
  wireEnds(parts);
  containers.onChange((change) => parts.podParts.containerWaits.containerChanged(change));
  containers.onChange((change) => parts.podParts.containerUses.containerChanged(change));
  wireChanges(parts);
  wireReplicas(parts);
  wireEvents(parts);
  wireWorkers({ containers, machines, workers, drains });
  const { provisioned: provisioner } = parts;
  machines.onChange(({ row }) => provisioner.machineChanged(row.id));
  clusterState.leader.onChange(({ kind }) => void (kind === 'leading' && provisioner.tick()));
  clusterState.leader.onChange(({ kind }) => void (kind === 'leading' && parts.deletionRounds.wake()));
  wireUpkeep(parts);
  wireDecisions(parts);
  wireDeployments(parts);
  wireServes(parts);
  wireTimes(parts);
  parts.deferredCalls.onWaiting(() => parts.deferredExecutor.wake());
  parts.deferredCalls.onEnded((taskId) => parts.deferredExecutor.endedElsewhere(taskId));
  parts.relay.onAsked((queue) => parts.explain.scalingOf(queue));
  parts.relay.onAskedOfAll((queues) => parts.explain.scalingsOf(queues));
  parts.relay.onAskedOfPool((poolId, isAdmin) => parts.explain.growthOfPool(poolId, isAdmin));
  parts.relay.onAskedToRecord((request) => scaling.recordings.answer(request));
  parts.relay.onAskedOfShares((workspaceId) => scaling.placer.shareReport(workspaceId));
  parts.relay.onAskedOfReservations(() => scaling.placer.reservations());
  const waitingParts = { ...clusterState, ...parts.infrastructure, ...scaling, provisioning: parts.provisioning };
  parts.relay.onAskedOfWaiting((workspaceId) => lookAtWaiting(waitingParts, workspaceId));
  parts.settingParts.sharing.onChange((sharing) => scaling.placer.setSharing(sharing));
  clusterState.leader.onChange(({ kind }) => void scaling.recordings.leads(kind === 'leading'));
}

/** The way of a task on this replica: queued, fetched, sent, answered. */
export function wireTasks({
  queues,
  lines,
  replies,
  dispatcher,
  due,
  sender,
  callers,
}: {
  readonly queues: Pick<TaskQueues, 'onReleased' | 'onDelayed'>;
  readonly lines: Pick<Lines, 'onWaiting'>;
  readonly replies: Replies;
  readonly dispatcher: Dispatcher;
  readonly due: DueTimes;
  readonly sender: Pick<Sender, 'begin'>;
  readonly callers: Pick<Callers, 'waitLimitReached'>;
}): void {
  lines.onWaiting((queue) => dispatcher.wakeLine(queue));
  dispatcher.onClaimed((claim) => sender.begin(claim));
  dispatcher.onDelayed((queue, dueMs) => due.add(queue, dueMs));
  due.onDue((queue) => dispatcher.wake(queue));
  queues.onReleased((queue, taskId) => dispatcher.wake(queue, taskId));
  queues.onDelayed((queue, dueMs) => due.add(queue, dueMs));
  replies.onWaitLimit((waiting) => callers.waitLimitReached(waiting));
}

/** Scaling and placement follow containers and machines. */
export function wireScaling({
  containers,
  machines,
  targets,
  autoscaler,
  placer,
}: Pick<Scaling, 'autoscaler' | 'placer'> & {
  readonly containers: ContainerRegistry;
  readonly machines: Machines;
  readonly targets: Pick<Targets, 'onChange'>;
}): void {
  containers.onChange((change) => autoscaler.containerChanged(change));
  targets.onChange((change) => autoscaler.targetChanged(change));
  containers.onChange((change) => placer.containerChanged(change));
  machines.onChange((machine) => placer.machineChanged(machine));
  // Idle containers there end now, if they are kept for their warmth only.
  placer.onReserved((machineId) => {
    for (const { spec } of containers.ofMachine(machineId)) autoscaler.wake(spec.queue);
  });
}

/** Pools grow and shrink with containers, machines and settings; placement and calls count machines that may come. */
export function wireProvisioning({
  containers,
  machines,
  directory,
  provisioning,
  placer,
  feasibility,
  changes,
}: {
  readonly containers: Pick<ContainerRegistry, 'onChange'>;
  readonly machines: Pick<Machines, 'onChange'>;
  readonly directory: PoolDirectory;
  readonly provisioning: ProvisioningLoop;
  readonly placer: Pick<Placer, 'growsBy'>;
  readonly feasibility: Pick<FeasibilityCheck, 'countsAlso' | 'machineChanged'>;
  readonly changes: Pick<CapacityChanges, 'knows'>;
}): void {
  containers.onChange((change) => provisioning.containerChanged(change));
  machines.onChange((machine) => provisioning.machineChanged(machine));
  directory.onChange((poolId) => provisioning.settingsChanged(poolId));
  directory.onChange(() => feasibility.machineChanged());
  feasibility.countsAlso(() => offersOf(directory.all(), (provider) => changes.knows(provider)));
  placer.growsBy({
    isAwaited: (id) => provisioning.isAwaited(id),
    isLimited: (id) => provisioning.isLimited(id),
  });
}

/**
 * Tells callers at this replica when a container found no place and failed, unless another container serves the queue.
 */
export function wireGivenUp(
  containers: Pick<ContainerRegistry, 'onChange' | 'ofQueue'>,
  callers: Pick<Callers, 'failWaiting'>,
): void {
  containers.onChange(({ entry, from, to }) => {
    if (from !== 'PENDING' || to !== 'FAILED') return;
    const { queue } = entry.spec;
    for (const { row } of containers.ofQueue(queue)) if (row.state === 'RUNNING') return;
    const notPlaced = entry.row.reason ?? 'no_capacity';
    void callers.failWaiting(queue, entry.row.message ?? notPlaced, { notPlaced });
  });
}

/** Machines and containers of other replicas, and wake-ups that cross. */
function wireReplicas({
  infrastructure,
  clusterState,
  linkParts,
  taskParts,
  scaling,
  replicas,
  cancellation,
}: Wired): void {
  const { instance, keys } = infrastructure;
  const { bus, containers, machines, isLeader } = clusterState;
  const { reports, dispatcher } = taskParts;
  clusterState.takeOver.onSuperseded((machineId) => linkParts.links.superseded(machineId));
  replicas.sharedState.onSuperseded((machineId) => {
    linkParts.links.superseded(machineId);
    reports.machineMoved(machineId);
  });
  machines.onChange(({ row, health, sessionId }) => {
    const isElsewhere = sessionId === undefined && row.replica !== null && row.replica !== instance;
    if (isElsewhere && (health === 'RECONCILING' || health === 'READY')) reports.machineMoved(row.id);
  });
  const { crossing, others } = taskParts.peers;
  others.onGrown((queue) => scaling.autoscaler.wake(queue));
  clusterState.loads.onTold((replica) => crossing.loadsTold(replica));
  // A container that runs elsewhere, or a machine's new link there, may have slots for what waits here.
  containers.onChange(({ entry }) => crossing.offerWaiting(entry.spec.queue));
  machines.onChange(({ row }) => {
    for (const { spec } of containers.ofMachine(row.id)) crossing.offerWaiting(spec.queue);
  });
  containers.onChange((change) => replicas.wakes.containerChanged(change));
  machines.onChange((machine) => replicas.wakes.machineChanged(machine));
  dispatcher.onNoRoom((queue, taskId) => replicas.wakes.noRoom(queue, taskId));
  bus.on(keys.revokeChannel, (message) => {
    cancellation.revokedElsewhere(...readRevoke(message));
  });
  containers.onChange((change) => replicas.stopWhenDrained.containerChanged(change));
  machines.onChange((machine) => {
    // The leader decides this; every replica ends the attempts that it sent to the machine.
    if (machine.health === 'LOST' && !isLeader()) void reports.machineLost(machine.row.id);
  });
}

/** Live readers of events and log lines, the leader's pump of webhooks, and exports, here and at other replicas. */
function wireEvents({
  infrastructure: { keys, instance },
  clusterState: { bus },
  events,
  liveLogs,
  linkParts,
  exporters,
  eventWebhooks: { pump },
}: Wired): void {
  const ways = [
    ['events', events.writer, events.hub, keys.eventsChannel],
    ['logs', linkParts.logs, liveLogs.hub, keys.logsChannel],
  ] as const;
  for (const [kind, writer, hub, channel] of ways) {
    const heard = (workspaceId: WorkspaceId, lastSeq: number): void => {
      hub.wake(workspaceId, lastSeq);
      if (kind === 'events') pump.wake(workspaceId, lastSeq);
      for (const exporter of exporters) exporter.wake(kind, workspaceId);
    };
    writer.onWritten(heard);
    writer.onWritten((workspaceId, lastSeq) => bus.publish(channel, [workspaceId, lastSeq]));
    bus.on(channel, (message) => {
      const [workspaceId, lastSeq] = message as readonly unknown[];
      if (typeof workspaceId === 'string' && typeof lastSeq === 'number') heard(workspaceId as WorkspaceId, lastSeq);
    });
    bus.onGap(() => hub.wakeAll());
  }
  const { passing } = events;
  passing.join({ instance, publish: (message) => bus.publish(keys.passingChannel, message) });
  bus.on(keys.passingChannel, (message) => passing.heard(message));
  bus.onGap(() => passing.tellAgain());
}

/** Drains follow containers and machines. */
export function wireWorkers({
  containers,
  machines,
  workers,
  drains,
}: {
  readonly containers: Pick<ContainerRegistry, 'onChange'>;
  readonly machines: Pick<Machines, 'onChange'>;
  readonly workers: Workers;
  readonly drains: Drains;
}): void {
  machines.onChange((machine) => drains.machineChanged(machine));
  containers.onChange((change) => drains.containerChanged(change));
  containers.onChange((change) => workers.containerChanged(change));
  machines.onChange((machine) => workers.machineChanged(machine));
}

/** Jobs that came back to their queues: a container here may take them, or a new one is wanted. */
function wireUpkeep({
  clusterState,
  lineParts: { queues },
  taskParts: { dispatcher },
  scaling: { autoscaler },
  maintenance,
  replicas,
}: Wired): void {
  const wake = (queue: QueueName): void => {
    dispatcher.wake(queue);
    autoscaler.wake(queue);
  };
  maintenance.sweep.onReturned(wake);
  maintenance.missing.onReturned(wake);
  maintenance.foreign.onQueueChanged(wake);
  queues.onReleased((queue) => autoscaler.wake(queue));
  replicas.deadReplicas.onReturned(wake);
  maintenance.rebuild.onRebuilt(() => {
    for (const queue of clusterState.slots.queues()) dispatcher.wake(queue);
    autoscaler.sweep();
  });
}

/** Causes of a new scaling decision, and its effects on callers. */
function wireDecisions({
  identity,
  clusterState,
  taskParts,
  scaling,
  maintenance,
  deploymentStops,
  replicas,
  drains,
  podParts,
}: Wired): void {
  const { autoscaler, placer, quotas } = scaling;
  const { submissions, asynchronous, completion, callers, dispatcher, due } = taskParts;
  const wanted = (queue: QueueName): void => replicas.decisionRequests.request(queue);
  asynchronous.onAccepted(({ taskId, deadlineMs }, queue) =>
    maintenance.deadlines.accepted({ taskId, queue, deadlineMs }),
  );
  for (const grown of [submissions, asynchronous])
    grown.onDepth((target, depth) => autoscaler.depthSeen(target, depth, wanted));
  clusterState.reservedTokens.onGrown((queue) => autoscaler.wake(queue));
  podParts.engines.onStuck(wanted);
  completion.onAttemptEnded((queue, containerId) => autoscaler.attemptEnded(queue, containerId));
  completion.onAttemptEnded((_queue, containerId) => replicas.stopWhenDrained.check(containerId));
  dispatcher.onIdle(({ queue, containerId }) => autoscaler.attemptEnded(queue, containerId));
  due.onDue(wanted);
  deploymentStops.onQueueChanged(wanted);
  drains.onPicked((queue) => autoscaler.wake(queue));
  autoscaler.leaveOut((containerId) => drains.isReplaced(containerId));
  autoscaler.onStartFailed((queue, lastLines, containerId) => {
    void callers.failWaiting(queue, lastLines, { containerId });
  });
  clusterState.loads.onIdle((containerId) => {
    const entry = clusterState.containers.get(containerId);
    if (entry !== undefined) autoscaler.attemptEnded(entry.spec.queue, containerId);
  });
  identity.limits.onChange((workspaceId) => {
    quotas.forget(workspaceId);
    placer.limitsChanged(workspaceId);
    autoscaler.sweep();
  });
  // Wake-ups that came while another (perhaps a dead) replica held the lease had no effect.
  clusterState.leader.onChange((now) => {
    if (now.kind !== 'leading') return;
    autoscaler.leads();
    scaling.rollouts.wake();
    placer.wake();
  });
}

/** Deployments that change: their code, their images, their rollouts, and the callers of one that stops. */
function wireDeployments({
  objects,
  targets,
  clusterState,
  scaling,
  linkParts,
  taskParts,
  cancellation,
  deploymentStops,
  lineParts: { queues },
  infrastructure: { log },
}: Wired): void {
  objects.onReplaced((objectId) => targets.codeChanged(objectId));
  clusterState.containers.onChange((change) => scaling.rollouts.containerChanged(change));
  targets.onChange((change) => scaling.rollouts.targetChanged(change));
  targets.onChange(({ deploymentId, target }) => {
    if (target?.active === true) linkParts.images.prepare(target);
    else void deploymentStops.answerStopped(queueNameOf(deploymentId, '' as StubId));
  });
  const controlled = new Set<QueueName>();
  targets.onChange(({ target }) => {
    if (target === undefined || (target.queueControl === undefined && !controlled.delete(target.queue))) return;
    const { queue, queueControl = { paused: false, limit: null } } = target;
    if (target.queueControl !== undefined) controlled.add(queue);
    queues.control(queue, queueControl).then(
      () => {
        taskParts.dispatcher.wake(queue);
        scaling.autoscaler.wake(queue);
      },
      (error: unknown) => log.info({ err: error, queue }, 'a queue is not paused or bounded yet'),
    );
  });
  taskParts.callers.onReaderLeft((taskId, ending) => cancellation.cancel(taskId, ending));
}

/** Development servers: a container while the lease lives, and none after it. */
function wireServes({
  serves,
  scaling: { autoscaler },
  deploymentStops,
  infrastructure: { log },
  replicas,
}: Wired): void {
  serves.onChange((queue) => replicas.decisionRequests.request(queue));
  serves.onChange((queue) => autoscaler.wake(queue));
  serves.onOver((queue, stubId) => {
    deploymentStops.stopped(queue).catch((error: unknown) => {
      log.warn({ err: error, stubId }, 'containers of a development server that ended are stopped by the scaling loop');
    });
  });
}

/** Changes that schedules follow. */
function wireTimes({ scheduleParts, targets, clusterState }: Wired): void {
  const { schedules } = scheduleParts;
  targets.onChange((change) => schedules.changed(change));
  clusterState.leader.onChange(({ kind }) => schedules.leads(kind === 'leading'));
}
