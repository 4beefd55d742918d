// Stubs: immutable recipes, made once per distinct request. Called by the stub operations.
// Invariant: the same request gives the same stub (unless forced), and a stub never changes after it was made, but for
// the schedule of one that was made without (later-schedule.ts).
import type { CheckStubRequest, GetOrCreateStubRequest } from '#shared/api/stubs.ts';
import { isUuid, newId, sha256Hex } from '#shared/domain/ids.ts';
import type { AppId, ObjectId, StubId, WorkspaceId } from '#shared/domain/ids.ts';
import type { VolumeDriverName } from '#shared/domain/volume-drivers.ts';
import type { Caller } from '../identity/caller.ts';
import type { Db } from '../../stores/store/db.ts';
import { ownObjectsOf } from '../../stores/objects/service.ts';
import { appById, appsNamed, getOrCreateApp } from '../../stores/store/queries/apps.ts';
import { hasStubs, insertStub, reuseStub, stubById } from '../../stores/store/queries/stubs.ts';
import { lockCounts } from '../../stores/store/queries/workspaces.ts';
import type { StubRow } from '../../stores/store/queries/stubs.ts';
import { withinOwnStub } from './container-stubs.ts';
import type { Limited } from './container-stubs.ts';
import { gpuSupply, modelsHereText } from './gpu-supply.ts';
import type { GpuMachine, GpuSupply } from './gpu-supply.ts';
import { normaliseStub } from './normalise.ts';
import { configForRow, storedConfig } from '../../domain/stub-config.ts';
import type { StubConfig, StubVolumeMount } from '../../domain/stub-config.ts';
import type { Objects } from '../../stores/objects/service.ts';
import type { EventWriter } from '../events/writer.ts';
import { ran, served } from './deployment-events.ts';
import { checkStub } from './stub-check.ts';
import type { CheckedStub } from './stub-check.ts';
import { callbackRefusal, missingSecrets, supplyLack } from './stub-needs.ts';
import type { StubNeedsParts } from './stub-needs.ts';
import type { Volumes } from './volumes.ts';
import { poolNameOf } from '../../domain/pools.ts';
import { DEFAULT_LIMITS } from './stub-limits.ts';
import type { StubLimits } from './stub-limits.ts';

export type StubOutcome =
  | {
      readonly kind: 'stub';
      readonly stub: StubRow;
      readonly warnMsg: string;
      readonly unsupportedGpus: readonly string[];
      /** Supply of the GPUs that it asks for; absent: it asks for none. */
      readonly supply?: GpuSupply;
    }
  | { readonly kind: 'refused'; readonly errMsg: string; readonly warnMsg?: string };

export interface StubsParts extends StubNeedsParts {
  readonly db: Db;
  readonly events: Pick<EventWriter, 'transaction'>;
  readonly nowMs: () => number;
  readonly volumes: Pick<Volumes, 'drivers'>;
  readonly objects: Pick<Objects, 'use'>;
  readonly limitsOf?: (caller: Caller) => StubLimits | Promise<StubLimits>;
  /** Why a stub of the workspace cannot have that image; undefined: it can. */
  readonly imageProblem: (workspaceId: WorkspaceId, imageId: string) => Promise<string | undefined>;
  /** Machines that a workspace's containers may run on. */
  readonly gpuMachines: (workspaceId: WorkspaceId) => Promise<readonly GpuMachine[]>;
}

/** Whether stubs of that type run without a deployment, once. */
const isOneOff = (type: string): boolean => !type.endsWith('/deployment') && !type.endsWith('/serve');

/**
 * Whether the caller may make stubs. A restricted token finds those of others alone: code that it brought would run
 * with the secrets and volumes that it names. Source: decision 0303.
 */
const mayMake = ({ type }: Caller): boolean => type !== 'workspace_restricted';
const NOT_THERE = Symbol('there is no such stub');
const MAKES_NONE =
  'a token of type workspace_restricted makes no stubs: deploy with another token once, and this one finds what was made';

/** The workspace has as many stubs as it may. Thrown, so that the transaction also undoes a new app. */
class NoRoom extends Error {}

export class Stubs {
  readonly #parts: StubsParts;

  constructor(parts: StubsParts) {
    this.#parts = parts;
  }

  async getOrCreate(caller: Caller, asked: GetOrCreateStubRequest): Promise<StubOutcome> {
    const { db } = this.#parts;
    const limited = await this.#limited(caller, asked);
    if (limited.kind === 'refused') return { kind: 'refused', errMsg: 'Unauthorized Access', warnMsg: limited.why };
    const { request } = limited;
    const limits = await this.#parts.limitsOf?.(caller);
    const normalised = normaliseStub(request, limits);
    if (normalised.kind === 'refused') return normalised;
    const { unsupportedGpus } = normalised;
    let { config, warnMsg } = normalised;
    const callback = callbackRefusal(this.#parts, config);
    if (callback !== undefined) return { kind: 'refused', errMsg: callback };
    const supply = await this.#supply(caller, config);
    if (supply !== undefined && supply.status !== 'available') {
      const asked = config.gpu.join(', ');
      // A development server is needed now; every other stub may wait.
      if (config.stubType.endsWith('/serve')) {
        return { kind: 'refused', errMsg: `There is currently no GPU capacity for ${asked}.` };
      }
      if (supply.status === 'low') warnMsg = `${warnMsg} GPU capacity for ${asked} is currently low.`.trim();
    }
    if (supply !== undefined && unsupportedGpus.length > 0)
      warnMsg = `${warnMsg} It will wait: ${modelsHereText(supply.models)}.`;
    const lack = await supplyLack(this.#parts, caller.workspaceId, config.extra, config);
    warnMsg = `${warnMsg} ${lack?.text ?? ''}`.trim();
    const [missing] = await missingSecrets(this.#parts, caller.workspaceId, config.secrets, config);
    if (missing !== undefined) {
      return { kind: 'refused', errMsg: `Secret ${JSON.stringify(missing)} does not exist in this workspace.` };
    }
    const imageProblem =
      this.#parts.pythonProblem(caller.workspaceId, config) ??
      (await this.#parts.imageProblem(caller.workspaceId, config.imageId));
    if (imageProblem !== undefined) return { kind: 'refused', errMsg: imageProblem };
    const volumeIds = config.volumes.map((volume) => volume.volumeId);
    const drivers = await this.#parts.volumes.drivers(caller, volumeIds);
    const index = config.volumes.findIndex(({ volumeId, bucket }) => bucket === undefined && !drivers.has(volumeId));
    const unknownVolume = volumeIds[index];
    if (unknownVolume !== undefined) {
      const errMsg = `volumes[${index}].id ${JSON.stringify(unknownVolume.slice(0, 60))} is not a volume of this workspace`;
      return { kind: 'refused', errMsg };
    }
    config = { ...config, volumes: config.volumes.map((volume) => withDriver(volume, drivers.get(volume.volumeId))) };
    const object = await this.#object(caller, request.objectId);
    if (object.kind === 'refused') return object;
    const name = request.name === '' ? `${request.stubType}/${request.handler}` : request.name;
    const row = configForRow(config);
    const configHash = sha256Hex(canonicalJson(row));
    const { maxStubs } = limits ?? DEFAULT_LIMITS;
    const { events, nowMs } = this.#parts;
    const appName = request.appName || name;
    const making = events.transaction(db, async (tx, emit) => {
      const appId = mayMake(caller)
        ? (await getOrCreateApp(tx, caller.workspaceId, appName, newId<AppId>())).id
        : (await appsNamed(tx, caller.workspaceId, [appName]))[0]?.id;
      if (appId === undefined) return NOT_THERE;
      const key = {
        workspaceId: caller.workspaceId,
        appId,
        name,
        type: config.stubType,
        objectId: object.objectId,
        configHash,
        public: !config.authorized,
      };
      const known = request.forceCreate && mayMake(caller) ? undefined : await reuseStub(tx, key);
      if (known === undefined && !mayMake(caller)) return NOT_THERE;
      if (known === undefined) {
        await lockCounts(tx, caller.workspaceId);
        if (await hasStubs(tx, caller.workspaceId, maxStubs)) throw new NoRoom();
      }
      const stub = known ?? (await insertStub(tx, { ...key, id: newId<StubId>(), config: row }));
      // A container asks for the stub at each call of another function.
      if (isOneOff(stub.type) && caller.container === undefined) emit(ran(stub, nowMs()));
      return stub;
    });
    const stub = await making.catch((error: unknown) => {
      if (error instanceof NoRoom) return undefined;
      throw error;
    });
    if (stub === undefined) {
      const errMsg = `This workspace has its ${maxStubs} stubs: deploy what it has, or have an administrator raise its limit counts.stubs (\`longshore workspace limits\`).`;
      return { kind: 'refused', errMsg };
    }
    if (stub === NOT_THERE) return { kind: 'refused', errMsg: 'Unauthorized Access', warnMsg: MAKES_NONE };
    const unsupported = [...new Set([...unsupportedGpus, ...(supply?.missing ?? [])])];
    return {
      kind: 'stub',
      stub,
      warnMsg,
      unsupportedGpus: unsupported,
      ...(supply === undefined ? {} : { supply }),
    };
  }

  /** As `getOrCreate`, with everything that is wrong, and nothing made. */
  async check(caller: Caller, request: CheckStubRequest): Promise<CheckedStub> {
    return checkStub(this.#parts, caller, request, await this.#parts.limitsOf?.(caller));
  }

  /** Limits a container's request to the properties of its own stub. */
  async #limited(caller: Caller, request: GetOrCreateStubRequest): Promise<Limited> {
    if (caller.container === undefined) return { kind: 'request', request };
    const { db } = this.#parts;
    const { stubId } = caller.container;
    const stub = await stubById(db, stubId);
    const app = stub === undefined ? undefined : await appById(db, caller.workspaceId, stub.appId);
    if (stub === undefined || app === undefined) return { kind: 'refused', why: 'the app of this container is gone' };
    const { objectId } = request;
    if (objectId !== '' && objectId.toLowerCase() !== stub.objectId) {
      const object = isUuid(objectId) ? await this.#parts.objects.use(objectId.toLowerCase()) : undefined;
      const isOwn = object?.workspaceId === caller.workspaceId && object.hash.startsWith(ownObjectsOf(stubId));
      if (!isOwn) return { kind: 'refused', why: 'objectId is not of an object of this container' };
    }
    return withinOwnStub({ appName: app.name, config: storedConfig(stub.config) }, request);
  }

  async #supply(caller: Caller, config: StubConfig): Promise<GpuSupply | undefined> {
    if (config.gpuCount === 0) return undefined;
    const machines = await this.#parts.gpuMachines(caller.workspaceId);
    return gpuSupply(config.gpu, config.gpuCount, machines, poolNameOf(config.extra));
  }

  /** Tells that a development server of the stub began. */
  async began(stub: StubRow): Promise<void> {
    const { db, events, nowMs } = this.#parts;
    await events.transaction(db, async (_tx, emit) => emit(served(stub, nowMs())));
  }

  /** Why no machine can run the stub in the base image of its Python; undefined: one can. */
  pythonProblem({ workspaceId }: Pick<Caller, 'workspaceId'>, stub: StubRow): string | undefined {
    return this.#parts.pythonProblem(workspaceId, storedConfig(stub.config));
  }

  /** A stub that this caller may name: one of its own workspace. */
  async find(caller: Pick<Caller, 'workspaceId'>, stubId: string): Promise<StubRow | undefined> {
    if (!isUuid(stubId)) return undefined;
    const stub = await stubById(this.#parts.db, stubId.toLowerCase());
    return stub?.workspaceId === caller.workspaceId ? stub : undefined;
  }

  /** A stub as `find` gives it, or a public one of another workspace. */
  async findAccessible(caller: Caller, stubId: string): Promise<StubRow | undefined> {
    if (!isUuid(stubId)) return undefined;
    const stub = await stubById(this.#parts.db, stubId.toLowerCase());
    return stub !== undefined && (stub.workspaceId === caller.workspaceId || stub.public) ? stub : undefined;
  }

  async #object(
    caller: Caller,
    objectId: string,
  ): Promise<
    | { readonly kind: 'object'; readonly objectId: ObjectId | null }
    | { readonly kind: 'refused'; readonly errMsg: string }
  > {
    // No object means the canonical empty archive.
    if (objectId === '') return { kind: 'object', objectId: null };
    const row = isUuid(objectId) ? await this.#parts.objects.use(objectId.toLowerCase()) : undefined;
    if (row?.workspaceId !== caller.workspaceId) {
      return {
        kind: 'refused',
        errMsg: `objectId ${JSON.stringify(objectId.slice(0, 60))} is not an object of this workspace`,
      };
    }
    if (row.sha256 === null) {
      return { kind: 'refused', errMsg: `object ${row.id} has no content yet: upload it first` };
    }
    return { kind: 'object', objectId: row.id };
  }
}

/** The mount with its driver; an absent one means local. */
const withDriver = (volume: StubVolumeMount, driver: VolumeDriverName | undefined): StubVolumeMount =>
  driver === undefined || driver === 'local' ? volume : { ...volume, driver };

/** JSON with sorted keys, so that the order in which fields were sent makes no difference. */
export function canonicalJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  const entries = Object.entries(value)
    .filter(([, item]) => item !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonicalJson(item)}`).join(',')}}`;
}
