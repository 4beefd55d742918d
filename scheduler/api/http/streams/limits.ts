// Limits of streamed calls, whoever makes them: a caller (stream-call.ts) or the platform itself (backend-call.ts).
import type { Ending } from '../../../domain/endings.ts';

/** Time for a port of a pod: its readiness probe has succeeded, but it may have further ports. */
export const PORT_WAIT_MS = 1_000;
/** Time for the last bytes of a task that has ended, and for the end of a task whose bytes broke off. */
export const LAST_BYTES_MS = 10_000;
/** Time for the end of a task whose container broke its response off. */
export const OWN_END_MS = 5_000;
/** Largest head that a program on a port may answer with. */
export const MOST_HEAD_BYTES = 64 * 1024;

const atLimit = (detail: string): Ending => ({ status: 'TIMEOUT', reason: 'execution_timeout', detail });

/** End of a task whose response has not begun within its execution limit. */
export const noHead = (seconds: number): Ending => atLimit(`no response began within the limit of ${seconds} s`);

/** End of a task that goes on behind its whole response: its execution limit begins anew there. */
export const tooLongAfter = (seconds: number): Ending => atLimit(`it ran for ${seconds} s after its response`);
