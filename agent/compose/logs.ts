// Output of containers on its way to the scheduler: the buffer, each container's acknowledged position, and the
// condition while lines are dropped.
import { join } from 'node:path';
import { LOG_LIMITS, LogBuffer } from '../containers/log-buffer.ts';
import { LogPositions } from '../containers/log-positions.ts';
import type { Host } from './host.ts';

/** The condition holds for this long after lines of containers were dropped. */
const LOG_PRESSURE_MS = 60_000;

export function makeLogs({ stateDir, conditions, metrics }: Host): {
  readonly logs: LogBuffer;
  readonly positions: LogPositions;
} {
  const positions = new LogPositions(join(stateDir, 'log-positions.json'));
  let pressure: NodeJS.Timeout | undefined;
  /** Sets the condition, and clears it once no line was dropped for a while. */
  const pressed = (): void => {
    conditions.set('LogBackpressure', true);
    clearTimeout(pressure);
    pressure = setTimeout(() => conditions.set('LogBackpressure', false), LOG_PRESSURE_MS);
    pressure.unref();
  };
  const logs = new LogBuffer(LOG_LIMITS, () => performance.now());
  let accepted = 0;
  /** Counts at the end of a turn: a counter with labels costs more than adding a line. */
  const count = (): void => {
    metrics.logRecords.inc({ result: 'accepted' }, accepted);
    accepted = 0;
  };
  logs.onResult((result, lines) => {
    if (result === 'accepted') {
      if (accepted === 0) setImmediate(count);
      accepted += lines;
      return;
    }
    metrics.logRecords.inc({ result }, lines);
    pressed();
  });
  logs.onReached((containerId, position) => positions.reached(containerId, position));
  return { logs, positions };
}
