/** Seconds that a start may take, from the creation of its container, where neither stub nor operator says. */
export const START_TIMEOUT_S = 900;

/** Milliseconds that a start of the stub may take. @param config - of a stub, also as stored; undefined: not known */
export function startTimeoutMsOf(config: object | undefined): number {
  const seconds = config !== undefined && 'startTimeoutSeconds' in config ? config.startTimeoutSeconds : undefined;
  return (typeof seconds === 'number' ? seconds : START_TIMEOUT_S) * 1000;
}
