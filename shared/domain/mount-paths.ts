/**
 * Mount paths of volumes in a container. The scheduler reports violations of these
 * rules to a stub's author; the agent enforces them against any scheduler. Pure.
 * Source: the volume rules of the interface (`mountPath` is relative to the working directory, or absolute).
 */

/** The mount places of one volume in its container's file system; the first one is `/volumes/…`. */
export interface MountPlaces {
  readonly targets: readonly string[];
}
export type MountPathCheck = MountPlaces | { readonly problem: string };

const VOLUMES = '/volumes';
const CODE = '/mnt/code';
const MAX_LENGTH = 512;
/** Paths of the system, of the container's own facilities, and of the runner. */
const RESERVED = /^\/(proc|sys|dev|run|etc|bin|sbin|usr|lib[^/]*|opt\/longshore)(\/|$)/;
/** Folders that hold mounts of the platform. */
const WHOLE = new Set(['/', VOLUMES, '/mnt', CODE]);

/**
 * Checks one mount path. A relative path is mounted below `/volumes` and below the working
 * directory `/mnt/code`; an absolute path is mounted there and below `/volumes`.
 * @returns the places, or a problem that begins with the path
 */
export function mountPlaces(mountPath: string): MountPathCheck {
  const shown = JSON.stringify(mountPath);
  if (mountPath.length > MAX_LENGTH) return { problem: `${shown} is longer than ${MAX_LENGTH} characters` };
  // oxlint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f]/.test(mountPath)) return { problem: `${shown} holds a control character` };
  const parts = mountPath.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.includes('..')) return { problem: `${shown} may not hold ..` };
  const path = parts.join('/');
  if (path === '') return { problem: `${shown} names no directory` };
  if (!mountPath.startsWith('/')) return { targets: [`${VOLUMES}/${path}`, `${CODE}/${path}`] };
  const absolute = `/${path}`;
  if (WHOLE.has(absolute) || RESERVED.test(absolute)) {
    return { problem: `${shown} belongs to the system: choose another directory, such as "data" or "/data"` };
  }
  return { targets: [`${VOLUMES}${absolute}`, absolute] };
}

/**
 * Whether all paths fit in one container: each path is valid, and no place is taken twice. @returns the first problem
 */
export function mountPathsProblem(mountPaths: readonly string[]): string | undefined {
  const taken = new Map<string, string>();
  for (const mountPath of mountPaths) {
    const check = mountPlaces(mountPath);
    if ('problem' in check) return check.problem;
    for (const target of check.targets) {
      const other = taken.get(target);
      if (other !== undefined) {
        return `${JSON.stringify(mountPath)} and ${JSON.stringify(other)} are the same place (${target})`;
      }
      taken.set(target, mountPath);
    }
  }
  return undefined;
}
