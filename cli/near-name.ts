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
