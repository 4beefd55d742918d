// Attempts of a task as lines. Pure.

/**
 * A line for each attempt, and one for the numbers between two: their containers gave the task back before they began.
 * @param attempts - in their order
 */
export function attemptLines<T>(
  attempts: readonly T[],
  numberOf: (attempt: T) => number,
  lineOf: (attempt: T) => string,
): readonly string[] {
  let last = 0;
  return attempts.flatMap((attempt) => {
    const [from, to] = [last + 1, numberOf(attempt) - 1];
    last = to + 1;
    if (to < from) return [lineOf(attempt)];
    const gap =
      from === to
        ? `attempt ${from} was given back before it began`
        : `attempts ${from} to ${to} were given back before they began`;
    return [gap, lineOf(attempt)];
  });
}
