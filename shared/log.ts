import { pino } from 'pino';
import type { DestinationStream, Logger } from 'pino';

export type Log = Logger;

/**
 * Logs JSON lines on stderr: stdout belongs to a command's result. Messages are
 * constant, data goes in fields; tokens, payloads and environment values never appear.
 */
export function createLog(options: {
  readonly name: string;
  readonly level?: string;
  readonly destination?: DestinationStream;
}): Log {
  return pino(
    {
      name: options.name,
      level: options.level ?? 'info',
      base: { name: options.name, pid: process.pid },
      redact: {
        paths: ['token', '*.token', 'authorization', '*.authorization', 'credential', '*.credential'],
        censor: '[redacted]',
      },
    },
    options.destination ?? pino.destination({ dest: 2, sync: false }),
  );
}
