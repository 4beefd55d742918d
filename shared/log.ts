import { pino } from 'pino';
import type { DestinationStream, Logger } from 'pino';

export type Log = Logger;

/** JSON lines on stderr: stdout belongs to what a command prints. Constant messages, data in fields; never tokens, payloads or environment values. */
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
