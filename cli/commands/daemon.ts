// What both daemons' commands have in common: a daemon started by `longshore up` must not outlive it, however `up` ended.
import { AppError } from '#shared/errors.ts';

/** So long may a clean stop take once the supervisor is gone; then the process ends itself. */
const ORPHAN_STOP_MS = 10_000;

/** So long may what a stopped daemon left behind (an image pull between two tries) keep its process. */
const LEFTOVERS_MS = 1000;

/** Asks the daemon to stop (as SIGTERM does) when the IPC channel to its supervisor closes. Without a channel this does nothing. */
function stopWithSupervisor(): void {
  if (process.channel === undefined) return;
  process.once('disconnect', () => {
    setTimeout(() => process.exit(1), ORPHAN_STOP_MS).unref();
    process.kill(process.pid, 'SIGTERM');
  });
}

/**
 * Runs a daemon under a supervisor that may be there: a start that fails is told to it as a sentence, and the channel is closed at the end,
 * so that the process can end.
 */
export async function underSupervisor(run: () => Promise<number>): Promise<number> {
  stopWithSupervisor();
  try {
    return await run();
  } catch (error) {
    if (error instanceof AppError) process.send?.({ kind: 'failed', code: error.code, message: error.message });
    throw error;
  } finally {
    if (process.connected) process.disconnect();
    setTimeout(() => process.exit(), LEFTOVERS_MS).unref();
  }
}
