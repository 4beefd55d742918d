import type { ContainerRuntime } from '../runtime.ts';
import type { EngineClient } from './client.ts';
import { statusOf, translate } from './errors.ts';

export function volumeCalls(engine: EngineClient): Pick<ContainerRuntime, 'removeVolume' | 'listVolumes'> {
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
  };
}
