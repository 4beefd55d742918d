// Explains the state of a task, a container or a deployment. This file gathers facts from rows, the queue and the
// leader; the pure files beside it make the sentences. Reads only.
// Invariant: things of another workspace are not found.
import { nearestTexts } from '#shared/domain/gpu-terms.ts';
import type { NearGpu } from '#shared/domain/gpu-terms.ts';
import { labelTexts } from '#shared/domain/labels.ts';
import type { Labels } from '#shared/domain/labels.ts';
import type { ExplainedGrowth, ExplainedScaling, ExplainedServer, Explanation } from '#shared/api/explain.ts';
import type { ContainerId, MachineId, QueueName, WorkspaceId } from '#shared/domain/ids.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { isBuiltImage } from '#shared/domain/built-images.ts';
import { isUuid, queueNameOf } from '#shared/domain/ids.ts';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { Clock } from '#shared/clock.ts';
import type { Autoscaler, QueueScaling } from '../../control/autoscaler/loop.ts';
import { scaleFacts } from '../../control/autoscaler/scale-input-reader.ts';
import { rejectionsOf } from '../../fleet/containers/container-entry.ts';
import type { ContainerEntry } from '../../fleet/containers/container-entry.ts';
import type { ContainerRegistry } from '../../fleet/containers/container-registry.ts';
import { fellBackFrom } from '../../fleet/containers/spec.ts';
import { startTimeoutMsOf } from '../../domain/start-timeout.ts';
import type { StoredSpec } from '../../fleet/containers/spec.ts';
import type { StubConfig, Target } from '../../domain/stub-config.ts';
import type { Targets } from '../../workspaces/deployments/targets.ts';
import type { SlotTable } from '../../tasks/dispatch/slots.ts';
import { gpuFactsOf, gpusOf } from '../../fleet/capacity.ts';
import { blockingConditions, conditionWordsOf, labelsOf } from '../../fleet/machine.ts';
import type { ContainerUsage, Usage } from '../../fleet/usage.ts';
import type { Machine } from '../../fleet/machine.ts';
import type { Machines } from '../../fleet/machines.ts';
import type { Placer } from '../../control/placement/placer.ts';
import type { FeasibilityCheck } from '../../control/placement/feasibility-check.ts';
import { readNamedPool } from '../../control/placement/named-pool-reader.ts';
import type { ProvisioningLoop } from '../../control/provisioning/loop.ts';
import { DEFERRED_CALLS_QUEUE } from '../../domain/inference.ts';
import { NO_POOL } from '../../domain/named-pool.ts';
import type { NamedPool } from '../../domain/named-pool.ts';
import type { JobPlace, TaskQueues } from '../../stores/queues/task-queues.ts';
import { totalOf } from '../../stores/queues/task-queues.ts';
import type { Loads } from '../../cluster/loads.ts';
import { Ticks } from '../../domain/ticks.ts';
import type { Queryable } from '../../stores/store/db.ts';
import { containerByEnd, newestOfStubName } from '../../stores/store/queries/containers.ts';
import type { ContainerRow } from '../../stores/store/queries/containers.ts';
import { adminWorkspaceId } from '../../stores/store/queries/workspaces.ts';
import { deliveriesOfSubject } from '../../stores/store/queries/deliveries.ts';
import { deploymentById, deploymentByName, lastDeleted } from '../../stores/store/queries/deployments.ts';
import { highestDeployment, servingDeployment } from '../../stores/store/queries/rollouts.ts';
import { imageById, imagePlaces } from '../../stores/store/queries/images.ts';
import type { DeploymentRow } from '../../stores/store/queries/deployments.ts';
import type { TaskRecord } from '../../tasks/records/task-record.ts';
import type { TaskReads } from '../../tasks/records/reads.ts';
import type { EventReads } from '../../workspaces/events/reads.ts';
import type { Limits } from '../../workspaces/identity/workspace-limits.ts';
import { useOf } from '../../control/placement/snapshot.ts';
import { recentCalls } from '../../stores/store/queries/recent-calls.ts';
import type { MachineFacts } from './container.ts';
import { explainContainer } from './container.ts';
import { explainDeleted, explainDeployment } from './deployment.ts';
import type { NextTick } from './deployment.ts';
import type { CallsThatEnded } from './failed-calls.ts';
import type { Asked } from './quota.ts';
import { isForQuota, quotaTexts } from './quota.ts';
import type { ContainerPlace } from './scaling.ts';
import { briefScaling, explainScaling } from './scaling.ts';
import { shownGrowth } from './growth.ts';
import { lineTexts } from './line.ts';
import { leavingTexts, reservationText } from './reservation.ts';
import { awaitedImageTexts } from './images.ts';
import { rolloutTexts } from './rollout.ts';
import type { RolloutTexts } from './rollout.ts';
import { lastStart } from './starts.ts';
import type { ContainerStart } from './starts.ts';
import { explainModelCall } from './model-call.ts';
import { explainTask } from './task.ts';
import { conditionTexts, driverTexts, gpuTexts, isForDevices } from './texts.ts';
import { lacksChoice } from '../../domain/worker-choice.ts';
import { poolNameOf } from '../../domain/pools.ts';

export interface ExplainParts {
  readonly db: Queryable;
  readonly containers: ContainerRegistry;
  readonly slots: SlotTable;
  readonly loads: Pick<Loads, 'of'>;
  readonly machines: Pick<Machines, 'get' | 'all'>;
  readonly feasibility: Pick<FeasibilityCheck, 'isMakeable'>;
  readonly placer: Pick<Placer, 'waitOf' | 'placeOf' | 'reservations' | 'leavingFor'>;
  readonly autoscaler: Pick<Autoscaler, 'explain' | 'explainAll'>;
  /** Growth of pools, as the leader decides it; absent: no pool grows. */
  readonly provisioning?: Pick<ProvisioningLoop, 'explain' | 'explainPool'>;
  readonly targets: Targets;
  readonly queues: Pick<TaskQueues, 'read' | 'placeOf' | 'depth'>;
  readonly tasks: Pick<TaskReads, 'read' | 'resultText' | 'caughtUp'>;
  readonly events: Pick<EventReads, 'latest'>;
  readonly clock: Clock;
  readonly limits: Pick<Limits, 'of'>;
  readonly usage: Pick<Usage, 'of'>;
  /** Why its calls are refused: no machine can ever serve them; undefined: they are not refused. */
  readonly refusalOf: (target: Target) => string | undefined;
  /** Whether the installation has a registry for built images. */
  readonly hasRegistry: boolean;
  /** The leader's facts about a queue; null: the leader did not answer. */
  readonly scaling: (queue: QueueName) => Promise<ExplainedScaling | null>;
}

/** End of a container's id, as lists and logs show it. */
const END_OF_ID = /^[0-9a-f]{4,8}$/;
const MAX_SERVERS = 100;
const MOST_GPU_TEXTS = 5;
const MOST_DRIVERS = 5;
const LONGEST_DRIVER = 32;
const MOST_DEVICES = 64;
const MAX_CALLBACKS = 4;
/** Age of calls that a deployment's explanation counts. */
export const RECENT_MS = 24 * 3600_000;
/** Events of starts that are read: those of a few starts of one container. */
const MOST_STEPS = 50;

export class Explain {
  readonly #parts: ExplainParts;

  constructor(parts: ExplainParts) {
    this.#parts = parts;
  }

  /**
   * Explains a thing of the workspace.
   * @param reference - a task's or deployment's id, a container's id, a deployment's
   * name (the version that serves it), or name and version (`hello/v3`). Else the last 4 to
   * 8 characters of a container's id, if only one of the workspace's newest ends so; else a deleted deployment, unless
   * its name also means a container that lives, or that was made later
   * @returns undefined: the workspace has nothing with this id or name
   */
  async explain(workspaceId: WorkspaceId, reference: string): Promise<Explanation | undefined> {
    if (reference.includes('\0') || !reference.isWellFormed()) return undefined;
    const id = reference.toLowerCase();
    if (isUuid(id)) {
      const task = await this.#parts.tasks.read(workspaceId, id);
      if (task !== undefined) return await this.#task(task);
      const deployment = await deploymentById(this.#parts.db, id);
      if (deployment?.workspaceId === workspaceId) return await this.#deployment(deployment);
      const gone = await lastDeleted(this.#parts.db, workspaceId, { id });
      return gone === undefined ? undefined : explainDeleted(gone);
    }
    const container = await this.#parts.containers.rowOf(id as ContainerId);
    if (container?.workspaceId === workspaceId) return await this.#container(container);
    const [, name = reference, version] = /^(.+)\/v([1-9]\d{0,8})$/.exec(reference) ?? [];
    const wanted = version === undefined ? null : Number(version);
    const named = await deploymentByName(this.#parts.db, workspaceId, null, name, wanted);
    if (named !== undefined) return await this.#deployment(named);
    const ended = END_OF_ID.test(id) ? await containerByEnd(this.#parts.db, workspaceId, id) : undefined;
    // Containers that CreatePod made have no deployment: their stub's name means the newest one.
    const meant = ended ?? (await newestOfStubName(this.#parts.db, workspaceId, reference));
    const deleted = await lastDeleted(this.#parts.db, workspaceId, { name, version: wanted });
    // A container that ended before tells nothing of the deployment that had the name last.
    const isOld = ended === undefined && (meant?.endedAtMs ?? null) !== null;
    if (deleted !== undefined && (meant === undefined || (isOld && meant.createdAtMs < (deleted.deletedAtMs ?? 0))))
      return explainDeleted(deleted);
    return meant === undefined ? undefined : await this.#container(meant);
  }

  /** Explains a queue on the leader, for this replica or another. */
  async scalingOf(queue: QueueName): Promise<ExplainedScaling> {
    return await this.#shownScaling(queue, await this.#parts.autoscaler.explain(queue));
  }

  /** As scalingOf, of several queues, without what a list of deployments leaves out. */
  async scalingsOf(queues: readonly QueueName[]): Promise<readonly ExplainedScaling[]> {
    const found = await this.#parts.autoscaler.explainAll(queues);
    return await Promise.all(
      found.map(async (queueScaling, at) => briefScaling(await this.#shownScaling(queues[at]!, queueScaling))),
    );
  }

  async #shownScaling(queue: QueueName, queueScaling: QueueScaling): Promise<ExplainedScaling> {
    const nowMs = this.#parts.clock.nowMs();
    const lastWanted = queueScaling.history?.decisions.findLast((made) => made.decision.wanted !== undefined)?.decision
      .wanted;
    const facts = scaleFacts(queueScaling.input, lastWanted ?? 0, nowMs);
    return explainScaling(queueScaling, facts, (id) => this.#placeOf(id), nowMs, await this.#waitingOf(queue));
  }

  /** For the container of the queue that has waited longest: its place in line, and pools that could grow for it. */
  async #waitingOf(
    queue: QueueName,
  ): Promise<{ readonly growth: readonly ExplainedGrowth[]; readonly line: readonly string[] }> {
    const { containers, placer } = this.#parts;
    const [oldest] = [...containers.ofQueue(queue)]
      .filter(({ row }) => row.state === 'PENDING')
      .toSorted((a, b) => a.row.createdAtMs - b.row.createdAtMs);
    if (oldest === undefined) return { growth: [], line: [] };
    const place = placer.placeOf(oldest.row.id);
    const reserved = await this.#reservedFor(queue, oldest);
    return {
      growth: await this.#growthFor(oldest),
      line: [
        ...(place === undefined ? [] : lineTexts(place)),
        ...reserved,
        ...leavingTexts(placer.leavingFor(oldest.row.id)),
      ],
    };
  }

  /** The machine that is kept for a container of the queue. */
  async #reservedFor(queue: QueueName, oldest: ContainerEntry): Promise<readonly string[]> {
    const { containers, placer, targets, db } = this.#parts;
    const row = placer.reservations().find(({ containerId }) => containers.get(containerId)?.spec.queue === queue);
    if (row === undefined) return [];
    const named = await Promise.all(
      row.heldBy.map(async ({ containerId }) => {
        const holder = containers.get(containerId);
        const name = holder && (await targets.byQueue(holder.spec.queue))?.deploymentName;
        return [containerId, name || containerId] as const;
      }),
    );
    const names = new Map(named);
    const whom = row.containerId === oldest.row.id ? 'it' : `container ${row.containerId}`;
    const { workspaceId } = oldest.row;
    const reader = { workspaceId, isAdmin: workspaceId === (await adminWorkspaceId(db)) };
    return [reservationText(row, whom, reader, (holder) => names.get(holder.containerId) ?? holder.containerId)];
  }

  async #growthFor(oldest: ContainerEntry): Promise<readonly ExplainedGrowth[]> {
    const { provisioning, db } = this.#parts;
    if (provisioning === undefined) return [];
    const views = provisioning.explain(oldest.row.id);
    if (views.length === 0) return [];
    const isWhole = oldest.row.workspaceId === (await adminWorkspaceId(db));
    return views.map((view) => shownGrowth(view, isWhole));
  }

  /** The leader's explanation of a pool, for an administrator or its owner; null: it has no provider. */
  growthOfPool(poolId: number, isAdmin: boolean): ExplainedGrowth | null {
    const view = this.#parts.provisioning?.explainPool(poolId);
    return view === undefined ? null : shownGrowth(view, isAdmin);
  }

  #placeOf(id: ContainerId): ContainerPlace | undefined {
    const { containers, loads, placer } = this.#parts;
    const entry = containers.get(id);
    if (entry === undefined) return undefined;
    return {
      machineId: entry.row.machineId ?? '',
      slots: entry.row.slots,
      isKnown: loads.of(id) !== undefined,
      wait: placer.waitOf(id),
    };
  }

  async #deployment(row: DeploymentRow): Promise<Explanation> {
    const queue = queueNameOf(row.id, row.stubId);
    const [target, scaling] = await Promise.all([this.#parts.targets.byQueue(queue), this.#parts.scaling(queue)]);
    const refusal = target === undefined ? undefined : this.#parts.refusalOf(target);
    const keepWarmSeconds = target?.config.keepWarmSeconds ?? 0;
    const quota = await this.#quotaOf(row.workspaceId, scaling?.containers ?? [], target?.config);
    const kept = [
      ...quota,
      ...(await this.#imageTexts(row.workspaceId, scaling?.containers ?? [], target?.config.imageId ?? '')),
      ...this.#conditionTexts(row.workspaceId, scaling?.containers ?? [], target?.config),
    ];
    const oneWorker = oneWorkerInsteadOf(this.#parts.containers, queue, target);
    const calls = {
      refusal: refusal ?? '',
      pool: await this.#poolOf(target),
      quota: kept,
      rollout: await this.#rolloutOf(row, target),
      queueControl: target?.queueControl,
      ended: await this.#callsOf(row, queue),
      ...(oneWorker === undefined ? {} : { oneWorkerInsteadOf: oneWorker }),
    };
    return explainDeployment(row, keepWarmSeconds, scaling, calls, nextTickOf(target, this.#parts.clock.nowMs()));
  }

  async #rolloutOf(row: DeploymentRow, target: Target | undefined): Promise<RolloutTexts> {
    const { db } = this.#parts;
    const [serving, highest] = await Promise.all([servingDeployment(db, row), highestDeployment(db, row)]);
    return rolloutTexts({ row, serving, highest, limitMs: startTimeoutMsOf(target?.config) });
  }

  async #callsOf({ id, stubId, workspaceId }: DeploymentRow, queue: QueueName): Promise<CallsThatEnded> {
    const { clock, db, tasks } = this.#parts;
    await tasks.caughtUp();
    const calls = await recentCalls(db, { stubId, deploymentId: id, queue }, clock.nowMs() - RECENT_MS);
    const record = calls.last === undefined ? undefined : await tasks.read(workspaceId, calls.last.taskId);
    if (record === undefined) return { calls, last: undefined };
    // An object that cannot be read leaves the error out.
    const result = await tasks.resultText(record).catch(() => undefined);
    return { calls, last: { record, result } };
  }

  async #poolOf(target: Target | undefined): Promise<NamedPool> {
    return target === undefined
      ? NO_POOL
      : await readNamedPool(this.#parts, target.workspaceId, poolNameOf(target.config.extra));
  }

  /** Limits that containers of such a size wait for; none unless a machine's rejection names them. */
  async #quotaOf(
    workspaceId: WorkspaceId,
    waiting: Parameters<typeof isForQuota>[0],
    asked: Asked | undefined,
  ): Promise<readonly string[]> {
    const { containers, limits, loads } = this.#parts;
    if (asked === undefined || !isForQuota(waiting)) return [];
    const { concurrency } = await limits.of(workspaceId);
    let idle = 0;
    for (const { row } of containers.all()) {
      if (row.workspaceId === workspaceId && row.state === 'RUNNING' && loads.of(row.id)?.inFlight === 0) idle += 1;
    }
    return quotaTexts({ limits: concurrency, used: useOf(containers, workspaceId), idle }, asked);
  }

  async #container(row: ContainerRow): Promise<Explanation> {
    const entry = this.#parts.containers.get(row.id);
    const queue = queueNameOf(row.deploymentId, row.stubId);
    const ended = entry === undefined;
    const poolName = row.state === 'PENDING' ? ((row.spec as Partial<StoredSpec>).poolName ?? '') : '';
    const [scaling, deploymentName, pool] = await Promise.all([
      ended ? null : this.#parts.scaling(queue),
      this.#nameOf(row.deploymentId),
      readNamedPool(this.#parts, row.workspaceId, poolName),
    ]);
    const own = scaling?.containers.find((one) => one.container_id === row.id);
    const rejections = own?.rejections ?? (entry && rejectionsOf(entry)) ?? row.rejections ?? {};
    const image = (row.spec as StoredSpec).wire?.image ?? '';
    const quota =
      row.state === 'PENDING'
        ? [
            ...(await this.#quotaOf(row.workspaceId, [{ rejections }], askedBy(entry))),
            ...(await this.#imageTexts(row.workspaceId, [{ rejections }], image)),
          ]
        : [];
    return explainContainer({
      row,
      pool,
      quota,
      rejections: entry === undefined ? null : rejectionsOf(entry),
      ...this.#conditionsFor(row.workspaceId),
      progress: entry?.start?.text ?? '',
      machineHealth: this.#healthOf(row.machineId),
      machineSilentSinceMs: this.#machine(row.machineId)?.suspectSinceMs ?? null,
      usage: await this.#usageOf(row),
      start: await this.#startOf(row),
      deploymentName,
      scaling,
      leaderAnswered: ended || scaling !== null,
    });
  }

  /** The steps of a container's start, as its events have them. */
  async #startOf(row: ContainerRow): Promise<ContainerStart | undefined> {
    const { id, workspaceId, startedAtMs } = row;
    if (startedAtMs === null) return undefined;
    const filter = { containerId: id, types: ['container.lifecycle'] };
    const [{ events }, target] = await Promise.all([
      this.#parts.events.latest(workspaceId, filter, MOST_STEPS),
      this.#parts.targets.byQueue(queueNameOf(row.deploymentId, row.stubId)),
    ]);
    return lastStart(events, (target?.config.onStart ?? '') !== '');
  }

  async #usageOf({ id, machineId }: ContainerRow): Promise<ContainerUsage | null> {
    if (machineId === null) return null;
    return (await this.#parts.usage.of([machineId])).get(id) ?? null;
  }

  async #task(record: TaskRecord): Promise<Explanation> {
    if (record.queue === DEFERRED_CALLS_QUEUE) return explainModelCall(record);
    const { queues, targets } = this.#parts;
    const { queue, taskId } = record;
    const ended = isTerminalTask(record.status);
    const gone: JobPlace = { kind: 'gone' };
    const [job, place, depth, target, scaling, deploymentName, callbacks] = await Promise.all([
      ended ? undefined : queues.read(queue, taskId),
      ended ? gone : queues.placeOf(queue, taskId),
      ended ? undefined : queues.depth(queue),
      targets.byQueue(queue),
      ended ? null : this.#parts.scaling(queue),
      this.#nameOf(record.deploymentId),
      ended ? deliveriesOfSubject(this.#parts.db, record.workspaceId, taskId, MAX_CALLBACKS) : [],
    ]);
    const container = record.containerId === null ? undefined : await this.#parts.containers.rowOf(record.containerId);
    const hasWaited = container !== undefined && (container.startedAtMs ?? 0) >= record.createdAtMs;
    return explainTask({
      callbacks,
      record,
      job,
      place,
      queueDepth: depth === undefined ? null : totalOf(depth),
      retries: job?.retries ?? (record.sync ? 0 : (target?.config.retries ?? 0)),
      timeoutMs: job?.timeoutMs ?? (target?.config.timeoutSeconds ?? 0) * 1000,
      container,
      start: hasWaited ? await this.#startOf(container) : undefined,
      deploymentName,
      queueControl: target?.queueControl,
      servers: ended ? [] : this.#servers(queue),
      scaling,
      pool: ended ? NO_POOL : await this.#poolOf(target),
      quota: [
        ...(await this.#quotaOf(record.workspaceId, scaling?.containers ?? [], target?.config)),
        ...(await this.#imageTexts(record.workspaceId, scaling?.containers ?? [], target?.config.imageId ?? '')),
        ...this.#conditionTexts(record.workspaceId, scaling?.containers ?? [], target?.config),
      ],
      leaderAnswered: ended || scaling !== null,
    });
  }

  /** Every container of the queue, and why it would refuse a task now. */
  #servers(queue: QueueName): readonly ExplainedServer[] {
    const servers: ExplainedServer[] = [];
    for (const { row } of this.#parts.containers.ofQueue(queue)) {
      if (servers.length >= MAX_SERVERS) break;
      const whyNot = this.#whyNot(row);
      servers.push({
        container_id: row.id,
        state: row.state,
        machine_id: row.machineId ?? '',
        takes: whyNot === '',
        why_not: whyNot,
      });
    }
    return servers;
  }

  #whyNot(row: ContainerRow): string {
    if (row.state === 'PENDING') return 'it has no machine yet';
    if (row.state !== 'RUNNING') return `it is ${row.state}`;
    const health = this.#healthOf(row.machineId);
    if (health !== 'READY') return `its machine is ${health === '' ? 'gone' : health}`;
    const container = this.#parts.slots.get(row.id);
    const load = this.#parts.loads.of(row.id);
    if (container?.leaving === true) return 'it is leaving';
    if (load !== undefined && load.inFlight >= row.slots) {
      return row.slots === 1 ? 'its only slot is taken' : `all of its ${row.slots} slots are taken`;
    }
    // A container linked to another replica is known by its load alone.
    return container?.link === undefined || container.accepting ? '' : 'its agent refused a task a moment ago';
  }

  #machine(machineId: MachineId | null): Machine | undefined {
    return machineId === null ? undefined : this.#parts.machines.get(machineId);
  }

  /** Where the image of the containers is, if that is a cause of their waiting. */
  async #imageTexts(
    workspaceId: WorkspaceId,
    waiting: Parameters<typeof isForQuota>[0],
    imageId: string,
  ): Promise<readonly string[]> {
    if (!isBuiltImage(imageId)) return [];
    if (!waiting.some(({ rejections }) => (rejections['image_unavailable'] ?? 0) > 0)) return [];
    const { db, hasRegistry } = this.#parts;
    const row = await imageById(db, workspaceId, imageId);
    if (row === undefined) return awaitedImageTexts(undefined);
    const machines = (await imagePlaces(db, [imageId])).map(({ machineId }) => ({
      id: machineId,
      health: this.#healthOf(machineId),
    }));
    const { id, state, error, pushError, digest } = row;
    return awaitedImageTexts({ id, state, error, isInRegistry: digest !== '', pushError, machines, hasRegistry });
  }

  /** Conditions of machines that kept the containers away, and the states of these machines' GPUs. */
  #conditionTexts(
    workspaceId: WorkspaceId,
    waiting: Parameters<typeof isForQuota>[0],
    config?: Pick<StubConfig, 'gpu' | 'minCuda' | 'labels'>,
  ): readonly string[] {
    const isFor = (reason: string): boolean => waiting.some(({ rejections }) => (rejections[reason] ?? 0) > 0);
    const isAbout = waiting.some(({ rejections }) => isForDevices(rejections));
    if (!isAbout && !['condition', 'gpu_count', 'gpu_driver', 'label'].some(isFor)) return [];
    const { conditions, conditionWords, gpus, drivers, devices, labels } = this.#conditionsFor(workspaceId);
    return [
      ...(isFor('condition') ? conditionTexts(conditions, conditionWords) : []),
      ...(isFor('gpu_count') ? gpuTexts(gpus) : []),
      ...(isFor('gpu_driver') ? driverTexts(config?.minCuda ?? '', drivers) : []),
      ...(isFor('label') ? labelTexts(config?.labels, labels) : []),
      ...(isAbout ? nearestTexts(config?.gpu ?? [], devices) : []),
    ];
  }

  #conditionsFor(workspaceId: WorkspaceId): MachineFacts {
    const counts: Record<string, number> = {};
    const words: Record<string, string> = {};
    const gpus: Record<string, number> = {};
    const drivers: Record<string, number> = {};
    const devices = new Map<string, NearGpu>();
    const labels: Labels[] = [];
    for (const machine of this.#parts.machines.all()) {
      const owner = machine.row.poolWorkspaceId;
      if (machine.health === 'EXPIRED' || (owner !== null && owner !== workspaceId)) continue;
      const driver = (machine.inventory?.gpuDriver ?? '').slice(0, LONGEST_DRIVER);
      // Labels and devices of machines that are away count, so that no sentence says that nobody has them.
      labels.push(labelsOf(machine));
      for (const gpu of gpusOf(machine)) {
        const device = { ...gpuFactsOf(gpu), driver };
        if (devices.size < MOST_DEVICES) devices.set(Object.values(device).join(' '), device);
      }
      if (machine.health !== 'READY') continue;
      for (const name of blockingConditions(machine)) {
        counts[name] = (counts[name] ?? 0) + 1;
        const said = conditionWordsOf(machine)[name];
        if (said !== undefined) words[name] ??= said;
      }
      if (driver !== '' && (driver in drivers || Object.keys(drivers).length < MOST_DRIVERS))
        drivers[driver] = (drivers[driver] ?? 0) + 1;
      for (const { unhealthy, state, why } of gpusOf(machine)) {
        if (!unhealthy) continue;
        const said = why === '' ? state : `${state}: ${why}`;
        const key = said in gpus || Object.keys(gpus).length < MOST_GPU_TEXTS ? said : 'out for other reasons';
        gpus[key] = (gpus[key] ?? 0) + 1;
      }
    }
    return { conditions: counts, conditionWords: words, gpus, drivers, devices: [...devices.values()], labels };
  }

  #healthOf(machineId: MachineId | null): string {
    return this.#machine(machineId)?.health ?? '';
  }

  async #nameOf(deploymentId: string | null): Promise<string> {
    if (deploymentId === null) return '';
    const row = await deploymentById(this.#parts.db, deploymentId);
    return row === undefined ? '' : `${row.name}/v${row.version}`;
  }
}

/** Workers that its containers have one of instead; undefined: they serve with as many as asked. */
export function oneWorkerInsteadOf(
  containers: Pick<ContainerRegistry, 'ofQueue'>,
  queue: QueueName,
  target: Target | undefined,
): number | undefined {
  if (target !== undefined && lacksChoice(target.config)) return target.config.workers;
  for (const { row } of containers.ofQueue(queue)) {
    const asked = fellBackFrom(row);
    if (asked !== undefined) return asked;
  }
  return undefined;
}

export function nextTickOf(target: Target | undefined, nowMs: number): NextTick | undefined {
  const schedule = target?.config.schedule;
  if (schedule === undefined) return undefined;
  return { ...schedule, nextAt: timestampOf(new Ticks(schedule).next(nowMs) ?? null) };
}

const MIB = 1024 * 1024;
const askedBy = (entry: ContainerEntry | undefined): Asked | undefined =>
  entry === undefined ? undefined : { ...entry.spec, memoryMib: Math.ceil(entry.spec.memoryBytes / MIB) };
