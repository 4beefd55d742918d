// What containers print, on its way to the scheduler: the buffer, how far each container's output was told, and the condition while lines are dropped.
import { join } from 'node:path';
import { LOG_LIMITS, LogBuffer } from '../containers/log-buffer.ts';
import { LogPositions } from '../containers/log-positions.ts';
import type { Host } from './host.ts';

/** Lines of containers were dropped a moment ago: so long it is said. */
const LOG_PRESSURE_MS = 60_000;

/** @param onWaiting - there are lines to send */
export function makeLogs(
  { stateDir, conditions, metrics }: Host,
  onWaiting: () => void,
): { readonly logs: LogBuffer; readonly positions: LogPositions } {
  const positions = new LogPositions(join(stateDir, 'log-positions.json'));
  let pressure: NodeJS.Timeout | undefined;
  /** Lines are dropped: said until none was for a while. */
  const pressed = (): void => {
    conditions.set('LogBackpressure', true);
    clearTimeout(pressure);
    pressure = setTimeout(() => conditions.set('LogBackpressure', false), LOG_PRESSURE_MS);
    pressure.unref();
  };
  const logs = new LogBuffer(
    LOG_LIMITS,
    () => performance.now(),
    (result, count) => {
      metrics.logRecords.inc({ result }, count);
      if (result === 'accepted') onWaiting();
      else pressed();
    },
    (containerId, position) => positions.reached(containerId, position),
  );
  return { logs, positions };
}
