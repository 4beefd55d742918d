// What must not be read in logs: the values of a container's secrets, wherever its programs print them. Pure.

/** Shorter values are words that logs are full of: hiding them would hide nothing and make logs unreadable. */
const MIN_LENGTH = 6;
export const REDACTED = '[redacted]';

/** Each costs something at every line. Values have few lines but for keys; of more than this the shortest are not hidden. */
const MOST_PARTS = 1000;

/** @returns what hides these values in a line; undefined when there is nothing to hide */
export function redactor(values: readonly string[]): ((line: string) => string) | undefined {
  // A value of several lines (a key file) arrives as several lines.
  const parts = values.flatMap((value) => value.split(/\r?\n/)).map((part) => part.trim());
  // The longest first: one may begin with another.
  const hidden = [...new Set(parts)]
    .filter((part) => part.length >= MIN_LENGTH)
    .toSorted((a, b) => b.length - a.length)
    .slice(0, MOST_PARTS);
  if (hidden.length === 0) return undefined;
  return (line) => hidden.reduce((text, value) => text.replaceAll(value, REDACTED), line);
}
