// Code shared by both daemons' commands. A daemon that `longshore up` started never outlives it, however `up` ended.
import { AppError } from '#shared/errors.ts';

/** Time for a clean stop once the supervisor is gone; then the process ends itself. */
const ORPHAN_STOP_MS = 10_000;

/** Time that leftovers of a stopped daemon, such as an image pull between two tries, may keep its process alive. */
const LEFTOVERS_MS = 1000;

/** Asks the daemon to stop, as SIGTERM does, when the IPC channel to its supervisor closes. No channel: no effect. */
function stopWithSupervisor(): void {
  if (process.channel === undefined) return;
  process.once('disconnect', () => {
    setTimeout(() => process.exit(1), ORPHAN_STOP_MS).unref();
    process.kill(process.pid, 'SIGTERM');
  });
}

/**
 * Runs a daemon, under a supervisor if there is one. The supervisor gets a failed start
 * as a sentence. The channel is closed at the end, so that the process can exit.
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
