// Ctrl-C for commands that have something to undo: the first asks for it, the second ends the command at once.
export interface Interrupt {
  readonly signal: AbortSignal;
  /** Gives the signals back. */
  readonly release: () => void;
}

/** Aborts the signal at the first SIGINT, SIGTERM or SIGHUP. */
export function interrupted(): Interrupt {
  const stop = new AbortController();
  const names = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const onSignal = (): void => {
    if (stop.signal.aborted) process.exit(130);
    stop.abort();
  };
  for (const name of names) process.on(name, onSignal);
  return {
    signal: stop.signal,
    release: () => {
      for (const name of names) process.off(name, onSignal);
    },
  };
}
