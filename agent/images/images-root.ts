// The directory of images and of containers' writes to their roots: the disk that fills. Source: decision 0098.
import { readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { EngineInfo } from '../containers/runtime.ts';

/** Defaults of a containerd that the engine does not start itself. */
const SYSTEM_CONTAINERD = { config: '/etc/containerd/config.toml', root: '/var/lib/containerd' } as const;

/** `root` of a containerd's settings; undefined: not set there. Pure. */
export function containerdRootIn(toml: string): string | undefined {
  const [ofAll = ''] = toml.split(/^\s*\[/m);
  const [, double, single] = /^\s*root\s*=\s*(?:"([^"]*)"|'([^']*)')/m.exec(ofAll) ?? [];
  return double || single || undefined;
}

/**
 * The engine's own directory, or containerd's where the engine keeps images there (a fresh Docker 29, for any
 * `data-root`).
 * @returns the engine's own directory when containerd's is not visible from here
 */
export async function imagesRoot(
  { rootDir, containerd }: Pick<EngineInfo, 'rootDir' | 'containerd'>,
  system: { readonly config: string; readonly root: string } = SYSTEM_CONTAINERD,
): Promise<string> {
  if (!containerd.hasImages) return rootDir;
  const found = await containerdRoot(rootDir, containerd.address, system);
  return await stat(found).then(
    () => found,
    () => rootDir,
  );
}

async function containerdRoot(
  rootDir: string,
  address: string,
  system: { readonly config: string; readonly root: string },
): Promise<string> {
  // This containerd is inside the engine's own process.
  if (address === '') return join(rootDir, 'containerd', 'daemon');
  // A containerd that the engine starts has its settings beside its socket.
  const beside = join(dirname(address.replace(/^unix:\/\//, '')), 'containerd.toml');
  for (const path of [beside, system.config]) {
    const text = await readFile(path, 'utf8').catch(() => undefined);
    const root = text === undefined ? undefined : containerdRootIn(text);
    if (root !== undefined) return root;
  }
  return system.root;
}
