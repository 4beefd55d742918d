// Names that a deployment cannot have: an address or a command would read them as something else. Pure.
import { isUuid } from './ids.ts';
import { STUB_KINDS } from './status.ts';

/** Words that stand in the place of a name in URLs. */
const RESERVED_NAMES: ReadonlySet<string> = new Set(['id', 'public']);

/** Why no deployment may have the name, as a sentence; undefined: one may. */
export function nameProblem(name: string): string | undefined {
  const says = meaningOf(name);
  return says === undefined ? undefined : `a deployment cannot be called ${name}: ${says}. Choose another name`;
}

function meaningOf(name: string): string | undefined {
  if (RESERVED_NAMES.has(name)) return 'its URL has another meaning';
  if (isUuid(name)) return 'commands read it as an id';
  const [, of, version] = /^(.+)\/v([1-9]\d{0,8})$/.exec(name) ?? [];
  if (of !== undefined) return `commands read it as version ${version} of ${of}`;
  const kind = STUB_KINDS.find((one) => name.startsWith(`${one}/`));
  return kind === undefined ? undefined : `commands read it as the ${kind} ${name.slice(kind.length + 1)}`;
}
