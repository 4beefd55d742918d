// The name that a person probably meant.
import { nearSetting } from '#shared/settings.ts';

/** Shorter names are near to every other short one. */
const SHORTEST = 4;

/** The known name that a misspelt one is near to, whatever their case; undefined: none is. */
export function nearName(value: string, names: readonly string[]): string | undefined {
  if (value.length < SHORTEST) return undefined;
  const lower = nearSetting(
    value.toLowerCase(),
    names.map((name) => name.toLowerCase()),
  );
  return names.find((name) => name.toLowerCase() === lower);
}

/** A sentence about a name that nothing has, with the near one and where to look. */
export const withNear = (sentence: string, near: string | undefined, hint: string): string =>
  `${sentence}${near === undefined ? ':' : `; did you mean ${near}?`} ${hint}`;
