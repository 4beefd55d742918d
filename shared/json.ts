// Reading what another program wrote.

/** Whether it is an object with names, and neither a list nor nothing. */
export const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
