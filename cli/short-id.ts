// Ids that a person shortened, as lists, logs and examples show them: the beginning or the end of an id means the one
// id of its list that has it.
import { isUuid } from '#shared/domain/ids.ts';
import { usageError } from './errors.ts';

/** Fewer characters are no part of an id. */
const SHORTEST = 4;
/** Last characters of an id that lines and narrow columns show. */
const SHOWN = 8;
const MOST_NAMED = 5;

/** A list of things with ids. */
export interface IdKind {
  /** Word for a thing of the list, such as `task`. */
  readonly noun: string;
  /** The ids among which a part is looked for. */
  readonly ids: () => Promise<readonly string[]>;
  /** Form of a whole id, which needs no list; UUIDs never do. */
  readonly whole?: RegExp;
}

/**
 * The id that the text means. A text that no id begins or ends with stays as it is: the scheduler says that there is
 * none.
 * @throws CliError when several ids begin or end so
 */
export async function wholeIdOf(text: string, { noun, ids, whole }: IdKind): Promise<string> {
  const part = text.replace(/(?:…|\.\.\.)$/, '').toLowerCase();
  if (isUuid(text) || whole?.test(text) === true || !/^[0-9a-f-]+$/.test(part) || part.length < SHORTEST) return text;
  // A token that may not list them may still act on one.
  return idMeant(part, await ids().catch(() => []), noun) ?? text;
}

/**
 * The id among these that begins or ends with the part; undefined: none does.
 * @throws CliError when several do
 */
export function idMeant(part: string, ids: readonly string[], noun: string): string | undefined {
  if (ids.includes(part)) return part;
  const found = [...new Set(ids)].filter(
    (id) => id.startsWith(part) || id.endsWith(part) || id.slice(-SHOWN).startsWith(part),
  );
  if (found.length <= 1) return found[0];
  const named = `${found.slice(0, MOST_NAMED).join(', ')}${found.length > MOST_NAMED ? ', …' : ''}`;
  throw usageError(`${part} is part of several ${noun} ids: ${named}; give more of one`);
}
