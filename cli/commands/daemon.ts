// What both daemons' commands have in common: a daemon started by `longshore up` must not outlive it, however `up` ended.

/** So long may a clean stop take once the supervisor is gone; then the process ends itself. */
const ORPHAN_STOP_MS = 10_000;

/** Asks the daemon to stop (as SIGTERM does) when the IPC channel to its supervisor closes. Without a channel this does nothing. */
export function stopWithSupervisor(): void {
  if (process.channel === undefined) return;
  process.once('disconnect', () => {
    setTimeout(() => process.exit(1), ORPHAN_STOP_MS).unref();
    process.kill(process.pid, 'SIGTERM');
  });
}

/** A closed channel, so that the process can end once the daemon has stopped. */
export function leaveSupervisor(): void {
  if (process.connected) process.disconnect();
}
