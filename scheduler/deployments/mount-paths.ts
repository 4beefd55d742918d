// Where a volume may appear in a container. Pure. Source: scheduling reference §12.

const MAX_PATH = 255;
/** Mounting over these would hide the code or all volumes. */
const TAKEN = new Set(['/', '/volumes', '/mnt', '/mnt/code']);
const SYSTEM = /^\/(?:proc|sys|dev|run|etc|bin|sbin|usr|lib[^/]*|opt\/longshore)(?:\/|$)/;

export type MountPath =
  | { readonly kind: 'path'; readonly path: string }
  | { readonly kind: 'refused'; readonly why: string };

/** Without `.`, doubled and trailing slashes: `./data/` is `data`. */
export function normaliseMountPath(text: string): MountPath {
  const refused = (why: string): MountPath => ({ kind: 'refused', why });
  if (text.trim() === '') return refused('must not be empty');
  if (text.length > MAX_PATH) return refused(`must have at most ${MAX_PATH} characters`);
  // Characters that mean something else in a mount's description, and what cannot be seen.
  if (/[\p{Cc}:\\]/u.test(text)) return refused('must not hold control characters, colons or backslashes');
  const parts = text.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.includes('..')) return refused('must not hold ..');
  const path = `${text.startsWith('/') ? '/' : ''}${parts.join('/')}`;
  if (path === '') return refused('must name a directory');
  if (!path.startsWith('/')) return { kind: 'path', path };
  if (TAKEN.has(path)) return refused(`must not be ${path}`);
  return SYSTEM.test(path)
    ? refused(`must not be ${path}: the system's directories are not replaced`)
    : { kind: 'path', path };
}

/** Every place in the container where a (normalised) mount path appears. */
export const placesOf = (path: string): readonly string[] =>
  path.startsWith('/') ? [path, `/volumes${path}`] : [`/mnt/code/${path}`, `/volumes/${path}`];
