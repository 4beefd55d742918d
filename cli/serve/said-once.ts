// Sentences that a session says once, and not after each save.
import { isRecord } from '#shared/json.ts';
import type { JsonObject } from '../json.ts';

/** Reloads in a row without an edit of code that are a warning. */
export const MOST_IN_A_ROW = 3;

export const isCode = (path: string): boolean => path.endsWith('.py');

/** Counts reloads that no edit of code asked for: a program that writes into its own folder asks for one after each. */
export class ReloadsInARow {
  #count = 0;

  /** Whether there were so many that the next changes can wait. */
  get isLong(): boolean {
    return this.#count >= MOST_IN_A_ROW;
  }

  /**
   * Notes a reload.
   * @param changed - all files that were sent
   * @param cause - the file for which the app was loaded
   * @returns the warning, once in a row
   */
  note(changed: readonly string[], cause: string): string | undefined {
    if (changed.some(isCode)) {
      this.#count = 0;
      return undefined;
    }
    this.#count += 1;
    if (this.#count !== MOST_IN_A_ROW) return undefined;
    const file = cause === '' ? (changed[0] ?? '') : cause;
    return `warning: ${file} had the app loaded ${MOST_IN_A_ROW} times in a row, without an edit of code. If a program writes it, name it in .longshoreignore, or have it written outside of the folder`;
  }
}

/** Changed files that the program has not loaded: a log that grows would be told with each line of it. */
export class SentFiles {
  readonly #told = new Set<string>();

  /** @returns the files that were not told since the last reload */
  news(paths: readonly string[]): readonly string[] {
    const fresh = paths.filter((path) => !this.#told.has(path));
    for (const path of fresh) this.#told.add(path);
    return fresh;
  }

  reloaded(): void {
    this.#told.clear();
  }
}

/** Fields of the handler's definition that another container would have. */
export class DefinitionChanges {
  readonly #before: JsonObject;
  #said = '[]';

  constructor(before: JsonObject) {
    this.#before = before;
  }

  /** @returns names of the fields that differ, if they did not differ in the same way before */
  news(after: JsonObject): readonly string[] {
    const names = changedFields(this.#before, after);
    const fields = fieldsOf(after);
    const now = JSON.stringify(names.map((name) => [name, fields[name]]));
    if (now === this.#said) return [];
    this.#said = now;
    return names;
  }
}

/** Fields that are no part of what a container is made from. `recipe` is a digest of the other ones. */
const NO_FIELDS: ReadonlySet<string> = new Set(['requiredInputs', 'place', 'recipe']);

/** @internal exported for its test */
export function changedFields(before: JsonObject, after: JsonObject): readonly string[] {
  const [was, is] = [fieldsOf(before), fieldsOf(after)];
  const names = [...new Set([...Object.keys(was), ...Object.keys(is)])].filter((name) => !NO_FIELDS.has(name));
  return names.filter((name) => JSON.stringify(was[name]) !== JSON.stringify(is[name])).toSorted();
}

/** The definition with the fields of its `extra`, which is a text of JSON, in place of that. */
function fieldsOf({ extra, ...fields }: JsonObject): JsonObject {
  const more: unknown = typeof extra === 'string' && extra !== '' ? JSON.parse(extra) : {};
  return isRecord(more) ? { ...fields, ...more } : fields;
}
