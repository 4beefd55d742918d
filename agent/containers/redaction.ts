// Hides the values of a container's secrets in its log lines, wherever its programs print them. Pure.

/** Shorter values are common words in logs: hiding them would protect nothing and make logs unreadable. */
const MIN_LENGTH = 6;
export const REDACTED = '[redacted]';

/**
 * Bound on hidden parts, since each costs time at every line. Values other than keys have few lines; above the bound
 * the shortest parts stay visible.
 */
const MOST_PARTS = 1000;

/** @returns a function that hides these values in a line; undefined when there is nothing to hide */
export function redactor(values: readonly string[]): ((line: string) => string) | undefined {
  // A value of several lines (a key file) is printed as several lines.
  const parts = values.flatMap((value) => value.split(/\r?\n/)).map((part) => part.trim());
  // The longest part goes first: one part may begin with another.
  const hidden = [...new Set(parts)]
    .filter((part) => part.length >= MIN_LENGTH)
    .toSorted((a, b) => b.length - a.length)
    .slice(0, MOST_PARTS);
  if (hidden.length === 0) return undefined;
  return (line) => hidden.reduce((text, value) => text.replaceAll(value, REDACTED), line);
}
