// Lists of a credential's repositories: `team/app`, `team/*` (everything below it), `*`. Pure.

/** Whether one of the patterns names that repository of the registry. */
export function isListed(patterns: readonly string[], repository: string): boolean {
  return patterns.some(
    (pattern) =>
      pattern === '*' ||
      pattern === repository ||
      (pattern.endsWith('/*') && repository.startsWith(pattern.slice(0, -1))),
  );
}
