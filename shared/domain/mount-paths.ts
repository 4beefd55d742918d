/**
 * Where a volume is seen in a container. The scheduler answers a stub's author with these rules, and the agent holds to them whatever a scheduler says. Pure.
 * Source: the volume rules of the interface (`mountPath` is relative to the working directory, or absolute).
 */

/** The places of one volume in the file system of its container, the first one being `/volumes/…`. */
export interface MountPlaces {
  readonly targets: readonly string[];
}
export type MountPathCheck = MountPlaces | { readonly problem: string };

const VOLUMES = '/volumes';
const CODE = '/mnt/code';
const MAX_LENGTH = 512;
/** Of the system, of the container's own facilities, and the folder that the runner lies in. */
const RESERVED = /^\/(proc|sys|dev|run|etc|bin|sbin|usr|lib[^/]*|opt\/longshore)(\/|$)/;
/** Folders that hold a mount of ours themselves. */
const WHOLE = new Set(['/', VOLUMES, '/mnt', CODE]);

/**
 * One mount path: relative ones are seen below `/volumes` and below the working directory `/mnt/code`, absolute ones at that path and below `/volumes`.
 * @returns its places, or a problem that begins with the path
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

/** Whether all of these can be in one container: each path by itself, and no place taken twice. @returns the first problem */
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
