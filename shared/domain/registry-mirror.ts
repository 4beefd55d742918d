/** Form of a registry and its mirror, `docker.io=mirror.example.com:5000`, and the same in words. */
export const MIRROR_PATTERN =
  '^[A-Za-z0-9.-]{1,200}(:[0-9]{1,5})?=[A-Za-z0-9.-]{1,200}(:[0-9]{1,5})?(/[a-z0-9._/-]{1,200})?$';
export const MIRROR_WORDS = 'REGISTRY=HOST[:PORT], such as docker.io=mirror.example.com:5000';

/** The mirror of the registry; empty: none. @param setting - as a pool has it */
export function mirrorOf(setting: string | null, registry: string): string {
  const [mirrored, mirror = ''] = (setting ?? '').split('=');
  return mirrored === registry ? mirror : '';
}
