import type { BindMount, ContainerRuntime } from '../runtime.ts';
import type { EngineClient } from './client.ts';
import { statusOf, translate } from './errors.ts';

export function volumeCalls(
  engine: EngineClient,
): Pick<ContainerRuntime, 'removeVolume' | 'listVolumes' | 'bindMounts'> {
  return {
    async removeVolume(name: string): Promise<void> {
      try {
        await engine.call('remove_volume', (abortSignal) => engine.docker.getVolume(name).remove({ abortSignal }));
      } catch (error) {
        if (statusOf(error) !== 404) throw translate(error, `cannot remove volume ${name}`);
      }
    },

    async listVolumes(labels: Readonly<Record<string, string>>): Promise<string[]> {
      const filters = { label: Object.entries(labels).map(([name, value]) => `${name}=${value}`) };
      const found = await engine.call('list_volumes', () =>
        engine.docker.listVolumes({ filters: JSON.stringify(filters) }),
      );
      return (found.Volumes ?? []).map((volume) => volume.Name);
    },

    async bindMounts(): Promise<readonly BindMount[]> {
      const found = await engine.call('list', () => engine.docker.listContainers({ all: true }));
      return found.flatMap(({ Id, Mounts, State }) =>
        // An exited container has its mounts still, and uses none of them.
        State === 'exited' || State === 'dead'
          ? []
          : Mounts.filter(({ Type }) => Type === 'bind').map(({ Source, Destination }) => ({
              dockerId: Id,
              source: Source,
              target: Destination,
            })),
      );
    },
  };
}
