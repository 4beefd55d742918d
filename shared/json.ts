// Checks on JSON from another program.

/** Whether the value is an object with names: no list, and not null. */
export const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
