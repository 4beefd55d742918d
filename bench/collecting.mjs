/** Collects garbage when it is told to, in a process whose memory is measured. Loaded by `--import`. */
process.on('SIGUSR2', () => globalThis.gc?.());
