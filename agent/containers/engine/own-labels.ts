/**
 * Labels of an image that have names of ours. The engine gives a container every label of its image, so whoever makes
 * an image could have the agent take its containers for others. Must stay true: a container has labels of ours only
 * as it was asked for.
 */
import { OWN_LABELS } from '#shared/domain/built-images.ts';

const MOST_KNOWN = 1000;

/**
 * Remembers the names by the id of an image, which has the same labels for ever.
 * @param labelsOf - names of all labels of an image; undefined: there is no such image
 */
export function ownLabelsOf(
  labelsOf: (image: string) => Promise<readonly string[] | undefined>,
): (image: string) => Promise<readonly string[]> {
  const known = new Map<string, readonly string[]>();
  return async (image) => {
    const before = known.get(image);
    if (before !== undefined) return before;
    const all = await labelsOf(image);
    const names = (all ?? []).filter((name) => name.startsWith(OWN_LABELS));
    if (all === undefined || !image.startsWith('sha256:')) return names;
    for (const oldest of known.keys()) {
      if (known.size < MOST_KNOWN) break;
      known.delete(oldest);
    }
    known.set(image, names);
    return names;
  };
}

/** No label of an image can be taken away from its containers, so those that nobody asked for become empty. */
export const labelsOver = (
  names: readonly string[],
  labels: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> => ({ ...Object.fromEntries(names.map((name) => [name, ''])), ...labels });

/** An empty label of ours is none. */
export const withoutBlank = (labels: Readonly<Record<string, string>>): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(labels).filter(([name, value]) => value !== '' || !name.startsWith(OWN_LABELS)));
