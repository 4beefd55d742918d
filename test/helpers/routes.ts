import { PAUSE_IMAGE } from '../../agent/containers/pause-image.ts';
import type { TestDocker } from './docker.ts';

/**
 * Adds or removes routes that lead IPv4 addresses, and the other one of each pair, to this machine's listeners; by a
 * container, because the test need not run as root.
 */
export async function routeHere(docker: TestDocker, verb: 'add' | 'del', addresses: readonly string[]): Promise<void> {
  const ranges = new Set(addresses.map((address) => address.replace(/\d+$/, (last) => `${Number(last) & ~1}/31`)));
  const commands = [...ranges].map((range) => `busybox ip route ${verb} local ${range} dev lo`);
  const container = await docker.run({
    Image: PAUSE_IMAGE,
    Entrypoint: ['sh', '-c', commands.join(' && ')],
    HostConfig: { NetworkMode: 'host', CapDrop: ['ALL'], CapAdd: ['NET_ADMIN'] },
  });
  const { StatusCode } = (await container.wait()) as { StatusCode: number };
  if (StatusCode !== 0) throw new Error(`routes could not be changed: ${StatusCode}`);
  await container.remove({ force: true });
}
