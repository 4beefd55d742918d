// The machine of a row, as its next step sees it. Pure.
import { blockingConditions } from '../machine.ts';
import type { Machine } from '../machine.ts';
import type { MachineFacts } from './next-step.ts';

/**
 * An agent that has joined may still have a preflight, a recovery and GPUs ahead of it. So the machine is ready only
 * when its agent is reconciled and no condition keeps containers away.
 * @param isPlaced - whether a row places a container there
 */
export function machineFactsOf(
  machine: Pick<Machine, 'row' | 'health' | 'conditions' | 'silentFromMs' | 'orphans'>,
  isPlaced: boolean,
  monotonicMs: number,
): Omit<MachineFacts, 'drainedMs'> {
  const { row, health, silentFromMs, orphans } = machine;
  const blockedBy = blockingConditions(machine);
  return {
    isJoined: row.joinedAtMs !== null,
    isReady: health === 'READY' && blockedBy.length === 0,
    blockedBy,
    isConnected: health === 'READY' || health === 'RECONCILING',
    isLost: health === 'LOST',
    silentMs: silentFromMs === null ? 0 : monotonicMs - silentFromMs,
    intent: row.intent,
    isOccupied: isPlaced || orphans.size > 0,
  };
}
