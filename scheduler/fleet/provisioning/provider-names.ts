// Names of the providers that a scheduler has, and the sentence about another name. Pure.

/** The providers that this scheduler's file names. */
export interface ProviderNames {
  names(): readonly string[];
}

/** Most names in the sentence. */
const MOST_NAMED = 20;

export function unknownProvider(name: string, known: readonly string[]): string {
  const named = known.toSorted().slice(0, MOST_NAMED).join(', ');
  const more = known.length > MOST_NAMED ? ` and ${known.length - MOST_NAMED} more` : '';
  return `there is no provider ${name}: LONGSHORE_PROVIDERS_FILE of this scheduler names ${known.length === 0 ? 'none' : `${named}${more}`}`;
}
