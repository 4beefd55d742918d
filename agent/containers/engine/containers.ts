import type Docker from 'dockerode';
import { messageOf } from '#shared/errors.ts';
import { upperDirOf } from '../root-path.ts';
import type { ContainerRuntime, CreateContainer, RuntimeContainer } from '../runtime.ts';
import { EngineError, LABELS } from '../runtime.ts';
import type { EngineClient } from './client.ts';
import { statusOf, translate } from './errors.ts';
import type { EngineFacts } from './info.ts';
import { labelsOver, ownLabelsOf, withoutBlank } from './own-labels.ts';
import { createOptions, gpusInUse, gpusOfRequest, isByCdi, rootLimitTrial } from './options.ts';

export interface ContainerCalls extends Pick<
  ContainerRuntime,
  | 'list'
  | 'inspect'
  | 'pidOf'
  | 'rootPath'
  | 'imageVolumes'
  | 'writtenBytes'
  | 'canLimitRoots'
  | 'environment'
  | 'create'
  | 'start'
  | 'signal'
  | 'remove'
> {
  /** Running containers that may use GPUs, of every owner. */
  gpuContainers(): Promise<
    { readonly dockerId: string; readonly name: string; readonly uuids: readonly string[] | 'all' }[]
  >;
}

/** States of the engine in which a container does not run; in all others (`paused`, …) it does. */
const NOT_RUNNING: Readonly<Record<string, 'created' | 'exited' | undefined>> = {
  created: 'created',
  exited: 'exited',
  dead: 'exited',
  removing: 'exited',
};

export function containerCalls(engine: EngineClient, { info, hasSelinux, memoryNodes }: EngineFacts): ContainerCalls {
  const inspected = (nameOrId: string): Promise<Docker.ContainerInspectInfo> =>
    engine.call('inspect', () => engine.questions.getContainer(nameOrId).inspect());

  const ownLabels = ownLabelsOf(async (image) => {
    try {
      const { Config } = await engine.call('inspect_image', () => engine.docker.getImage(image).inspect());
      return Object.keys((Config as { Labels?: Record<string, string> | null } | null)?.Labels ?? {});
    } catch (error) {
      // The call that makes the container says that there is no such image.
      if (statusOf(error) === 404) return undefined;
      throw error;
    }
  });

  const calls: ContainerCalls = {
    async list(labels: Readonly<Record<string, string>>, only?: 'not_running'): Promise<RuntimeContainer[]> {
      const filters = {
        label: Object.entries(labels).map(([name, value]) => `${name}=${value}`),
        ...(only === undefined ? {} : { status: Object.keys(NOT_RUNNING) }),
      };
      const found = await engine.call('list', () => engine.docker.listContainers({ all: true, filters }));
      const all = await Promise.all(
        found.map(async (one): Promise<RuntimeContainer | undefined> => {
          const state = NOT_RUNNING[one.State] ?? 'running';
          if (state !== 'running') return calls.inspect(one.Id);
          return {
            dockerId: one.Id,
            name: (one.Names[0] ?? '').replace(/^\//, ''),
            labels: withoutBlank(one.Labels),
            state,
            network: one.HostConfig.NetworkMode,
            exitCode: 0,
            oomKilled: false,
            startedAtMs: 0,
            finishedAtMs: 0,
            error: '',
            gpuUuids: (one.Labels[LABELS.gpus] ?? '').split(',').filter((uuid) => uuid !== ''),
          };
        }),
      );
      return all.filter((one) => one !== undefined);
    },

    async inspect(nameOrId: string): Promise<RuntimeContainer | undefined> {
      try {
        const facts = await inspected(nameOrId);
        return {
          dockerId: facts.Id,
          name: facts.Name.replace(/^\//, ''),
          labels: withoutBlank(facts.Config.Labels ?? {}),
          state: NOT_RUNNING[facts.State.Status] ?? 'running',
          network: facts.HostConfig.NetworkMode ?? '',
          exitCode: facts.State.ExitCode,
          oomKilled: facts.State.OOMKilled,
          startedAtMs: timeOf(facts.State.StartedAt),
          finishedAtMs: timeOf(facts.State.FinishedAt),
          error: facts.State.Error,
          gpuUuids: (facts.HostConfig.DeviceRequests ?? []).flatMap(gpusOfRequest),
          hasCdi: isByCdi(facts.HostConfig.DeviceRequests ?? []),
        };
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw error;
      }
    },

    async gpuContainers(): Promise<
      { readonly dockerId: string; readonly name: string; readonly uuids: readonly string[] | 'all' }[]
    > {
      const running = await engine.call('list', () => engine.docker.listContainers());
      const found = await Promise.all(
        running.map(async ({ Id }) => {
          try {
            const facts = await inspected(Id);
            return { dockerId: Id, name: facts.Name.replace(/^\//, ''), uuids: gpusInUse(facts) };
          } catch (error) {
            if (statusOf(error) === 404) return { dockerId: Id, name: '', uuids: [] };
            throw translate(error, 'cannot look at a container');
          }
        }),
      );
      return found.filter(({ uuids }) => uuids.length > 0);
    },

    async pidOf(dockerId: string): Promise<number | undefined> {
      try {
        const facts = await inspected(dockerId);
        return facts.State.Pid > 0 ? facts.State.Pid : undefined;
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw error;
      }
    },

    async rootPath(dockerId: string): Promise<string | undefined> {
      try {
        const { GraphDriver, State } = (await inspected(dockerId)) as {
          GraphDriver?: { Data?: Record<string, string | undefined> | null } | null;
          State: { Pid: number };
        };
        return GraphDriver?.Data?.['UpperDir'] ?? (await upperDirOf(State.Pid));
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw translate(error, 'cannot look at a container');
      }
    },

    async imageVolumes(dockerId: string): Promise<readonly string[] | undefined> {
      try {
        const { Mounts, HostConfig } = await inspected(dockerId);
        const asked = new Set((HostConfig.Mounts ?? []).map(({ Target }) => Target));
        return Mounts.flatMap(({ Type, Source, Destination }) =>
          Type === 'volume' && !asked.has(Destination) ? [Source] : [],
        );
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw translate(error, 'cannot look at a container');
      }
    },

    async writtenBytes(dockerId: string): Promise<number | undefined> {
      try {
        const facts = await engine.call('inspect_size', () =>
          engine.questions.getContainer(dockerId).inspect({ size: true } as object),
        );
        return (facts as { SizeRw?: number }).SizeRw ?? 0;
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw translate(error, 'cannot count what a container wrote');
      }
    },

    async canLimitRoots(image: string, labels: Readonly<Record<string, string>>): Promise<boolean> {
      try {
        // With containerd's image store the engine accepts a limit and does not enforce it.
        if ((await info()).containerd.hasImages) return false;
        await calls.remove(await calls.create(rootLimitTrial(image, labels)));
        return true;
      } catch (error) {
        if (error instanceof EngineError && error.failure === 'refused') return false;
        throw error;
      }
    },

    async environment(dockerId: string): Promise<Record<string, string> | undefined> {
      try {
        const { Config } = await inspected(dockerId);
        return Object.fromEntries(
          Config.Env.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)]),
        );
      } catch (error) {
        if (statusOf(error) === 404) return undefined;
        throw translate(error, 'cannot look at a container');
      }
    },

    async create(spec: CreateContainer): Promise<string> {
      try {
        const facts = { selinux: await hasSelinux(), memoryNodes: await memoryNodes() };
        const labels = labelsOver(await ownLabels(spec.image), spec.labels);
        const made = await engine.call('create', (abortSignal) =>
          engine.docker.createContainer({ ...createOptions({ ...spec, labels }, facts), abortSignal }),
        );
        return made.id;
      } catch (error) {
        const image = spec.labels[LABELS.image] ?? spec.image;
        throw translate(error, `cannot create container ${spec.name} of image ${image}`);
      }
    },

    async start(dockerId: string): Promise<void> {
      try {
        await engine.call('start', (abortSignal) => engine.docker.getContainer(dockerId).start({ abortSignal }));
      } catch (error) {
        if (statusOf(error) === 304) return;
        throw translate(error, 'cannot start the container');
      }
    },

    async signal(dockerId: string, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
      try {
        await engine.call('kill', (abortSignal) => engine.docker.getContainer(dockerId).kill({ signal, abortSignal }));
      } catch (error) {
        // 404: no such container; 409: the container does not run. Both are the wanted state.
        if (statusOf(error) !== 404 && statusOf(error) !== 409) throw translate(error, 'cannot signal the container');
      }
    },

    async remove(dockerId: string): Promise<void> {
      try {
        await engine.call('remove', (abortSignal) =>
          engine.docker.getContainer(dockerId).remove({ force: true, v: true, abortSignal }),
        );
      } catch (error) {
        if (statusOf(error) === 404) return;
        if (statusOf(error) === 409 && /already in progress/.test(messageOf(error))) return;
        throw translate(error, 'cannot remove the container');
      }
    },
  };
  return calls;
}

function timeOf(text: string): number {
  const ms = Date.parse(text);
  // The engine writes year 1 for "never".
  return Number.isNaN(ms) || ms < 0 ? 0 : ms;
}
