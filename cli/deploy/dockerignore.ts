// The rules of a `.dockerignore` file, as Docker reads them; docs.docker.com/build/concepts/context describes them.
// Unlike gitignore, a pattern counts from the folder itself, and the last line that matches decides, also below a
// folder that an earlier line left out. Pure.

/** Lines that matched a folder, which count for the entries in it. */
export type Matched = readonly boolean[];

export interface Sight {
  readonly isOut: boolean;
  /** Something in the folder may be kept. */
  readonly mayKeepBelow: boolean;
  readonly matched: Matched;
}

export interface IgnoreRules {
  /** @param parent - `matched` of the folder that the entry is in; an empty list at the top */
  look(path: string, parent: Matched): Sight;
}

interface Line {
  /** As it stands after `!`, cleaned. */
  readonly pattern: string;
  readonly keeps: boolean;
  readonly matches: (path: string) => boolean;
}

export type ReadIgnore =
  | { readonly kind: 'rules'; readonly rules: IgnoreRules }
  | { readonly kind: 'problem'; readonly problem: string };

export function readDockerignore(text: string): ReadIgnore {
  const lines: Line[] = [];
  for (const [at, raw] of text
    .replace(/^\uFEFF/, '')
    .split(/\r?\n/)
    .entries()) {
    const line = raw.trim();
    // A blank before the sign makes it a pattern.
    if (line === '' || raw.startsWith('#')) continue;
    const keeps = line.startsWith('!');
    const pattern = cleaned(keeps ? line.slice(1).trim() : line);
    if (pattern === '') return { kind: 'problem', problem: `line ${at + 1} is a "!" without a pattern` };
    const matches = matcher(pattern);
    if (matches === undefined)
      return { kind: 'problem', problem: `line ${at + 1}, ${JSON.stringify(line.slice(0, 80))}, is no pattern` };
    lines.push({ pattern, keeps, matches });
  }
  return { kind: 'rules', rules: rulesOf(lines) };
}

function rulesOf(lines: readonly Line[]): IgnoreRules {
  const kept = lines.filter(({ keeps }) => keeps).map(({ pattern }) => pattern);
  const arePlain = kept.every((pattern) => !/[*?[\\]/.test(pattern.replace(/\/\*\*?$/, '')));
  const mayKeepBelow = (path: string): boolean =>
    kept.length > 0 && (!arePlain || kept.some((pattern) => `${pattern}/`.startsWith(`${path}/`)));
  return {
    look(path, parent) {
      let isOut = false;
      const matched = lines.map(({ keeps, matches }, at) => {
        // A line that would change nothing is not looked at, and does not count for what is below, either.
        const does = parent[at] === true || (keeps === isOut && matches(path));
        if (does) isOut = !keeps;
        return does;
      });
      return { isOut, mayKeepBelow: !isOut || mayKeepBelow(path), matched };
    },
  };
}

/** Without empty parts, `.` and `..`, and without a slash at either end. */
function cleaned(pattern: string): string {
  const parts: string[] = [];
  for (const part of pattern.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') parts.push(part);
    else if (parts.length > 0 && parts.at(-1) !== '..') parts.pop();
    else if (!pattern.startsWith('/')) parts.push(part);
  }
  if (parts.length > 0) return parts.join('/');
  return pattern === '' ? '' : '.';
}

/** @returns undefined for a pattern that cannot be read */
function matcher(pattern: string): ((path: string) => boolean) | undefined {
  let source = '';
  for (let at = 0; at < pattern.length; at += 1) {
    const sign = pattern[at] ?? '';
    if (sign === '*' && pattern[at + 1] === '*') {
      at += pattern[at + 2] === '/' ? 2 : 1;
      source += at === pattern.length - 1 ? '.*' : '(?:.*/)?';
    } else if (sign === '*') source += '[^/]*';
    else if (sign === '?') source += '[^/]';
    else if (sign === '\\') {
      at += 1;
      // Docker refuses a backslash at the end.
      if (at === pattern.length) return undefined;
      source += escaped(pattern[at] ?? '');
    } else if (sign === '[') {
      const end = /^\[\^?(?:\\.|[^\]\\])+\]/.exec(pattern.slice(at))?.[0];
      if (end === undefined) return undefined;
      source += end;
      at += end.length - 1;
    } else source += escaped(sign);
  }
  try {
    const expression = new RegExp(`^${source}$`, 'su');
    return (path) => expression.test(path);
  } catch {
    return undefined;
  }
}

const escaped = (sign: string): string => sign.replace(/[\^$\\.*+?()[\]{}|/]/, '\\$&');
