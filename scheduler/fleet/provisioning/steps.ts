// Carries out the steps that next-step.ts decides, each by a write that may be refused.
import type { MachineId } from '#shared/domain/ids.ts';
import type { Clock } from '#shared/clock.ts';
import type { WorkerService } from '../worker-service.ts';
import type { Joining } from '../joining.ts';
import type { Calls } from './calls.ts';
import type { Listings } from './listings.ts';
import { RULES } from './next-step.ts';
import type { MachineFacts, Step } from './next-step.ts';
import type { ProvisionedRows } from './rows.ts';
import { isFailedEnd } from './states.ts';
import type { EndWhy, ProvisionedRow } from './states.ts';

export interface StepsParts {
  readonly rows: ProvisionedRows;
  readonly calls: Calls;
  readonly listings: Pick<Listings, 'forget'>;
  readonly joining: Pick<Joining, 'voidToken'>;
  readonly workers: Pick<WorkerService, 'cordon' | 'drain'> & {
    /** Deletes a machine in any state. */
    remove(machineId: MachineId): Promise<boolean>;
  };
  /** undefined: deleted, or not known here. */
  readonly machineOf: (machineId: MachineId) => Omit<MachineFacts, 'drainedMs'> | undefined;
  /** Whether the machine is deleted, by the database. */
  readonly isDeleted: (machineId: MachineId) => Promise<boolean>;
  readonly clock: Clock;
}

export class Steps {
  readonly #parts: StepsParts;
  /** Since when this leader has seen a machine drained. */
  readonly #drainedSince = new Map<MachineId, number>();

  constructor(parts: StepsParts) {
    this.#parts = parts;
  }

  /** Forgets everything: this replica begins to lead. */
  clear(): void {
    this.#drainedSince.clear();
  }

  machineOf({ machineId }: ProvisionedRow): MachineFacts | undefined {
    const { machineOf, clock } = this.#parts;
    const facts = machineOf(machineId);
    if (facts?.intent !== 'drained') this.#drainedSince.delete(machineId);
    else if (!this.#drainedSince.has(machineId)) this.#drainedSince.set(machineId, clock.monotonicMs());
    if (facts === undefined) return undefined;
    return { ...facts, drainedMs: clock.monotonicMs() - (this.#drainedSince.get(machineId) ?? clock.monotonicMs()) };
  }

  /** @returns false: nothing changed that another step could follow */
  async carryOut(row: ProvisionedRow, step: Exclude<Step, { kind: 'wait' | 'look' }>): Promise<boolean> {
    const { rows, calls, listings, workers, clock, isDeleted } = this.#parts;
    const nowMs = clock.nowMs();
    switch (step.kind) {
      case 'create':
        return await calls.create(row);
      case 'made':
        return await calls.made(row, step.instance);
      case 'terminate':
        // An earlier leader may have ended before it did so.
        await this.#bar(row);
        return await calls.terminate(row, step.instanceId);
      case 'join': {
        const change = { joinedAtMs: nowMs, joinToken: null, failures: 0, failure: null };
        return (await rows.move(row, 'join', change)) !== undefined;
      }
      case 'leave':
        return (await rows.move(row, 'leave', { endWhy: step.why, drainUntilMs: step.drainUntilMs })) !== undefined;
      case 'drain': {
        const deadlineMs = Math.max(0, (row.drainUntilMs ?? nowMs) - nowMs);
        await workers.drain({ workspaceId: row.poolWorkspaceId }, row.machineId, deadlineMs);
        // The drain ends by the machine's own events, and the next look sees them.
        return this.machineOf(row)?.intent === 'drained';
      }
      case 'end': {
        if (step.why === 'machine_deleted' && !(await isDeleted(row.machineId))) return false;
        // From here `failures` counts those of `terminate`. A failed end keeps its time and its reason for the pool.
        const failure = isFailedEnd({ ...row, endWhy: step.why })
          ? { failedAtMs: nowMs, failure: row.failure ?? failureOf(step.why, this.machineOf(row)) }
          : { failure: null };
        const change = { endWhy: step.why, joinToken: null, failures: 0, ...failure };
        if ((await rows.move(row, 'end', change)) === undefined) return false;
        await this.#bar(row);
        return true;
      }
      case 'delete_machine':
        await workers.remove(row.machineId);
        return this.machineOf(row) === undefined;
      case 'over':
        await rows.move(row, isFailedEnd(row) ? 'give_up' : 'over', {
          endedAtMs: nowMs,
          failure: step.failure ?? row.failure,
        });
        calls.forget(row.requestId);
        listings.forget(row.requestId);
        this.#drainedSince.delete(row.machineId);
        return false;
    }
  }

  /** Keeps containers off a machine whose instance is about to be terminated, which can take several tries. */
  async #bar(row: ProvisionedRow): Promise<void> {
    const { joining, workers } = this.#parts;
    const machine = this.machineOf(row);
    if (machine === undefined) return;
    if (!machine.isJoined && (await joining.voidToken(row.machineId))) return;
    if (machine.intent === 'active') await workers.cordon({ workspaceId: row.poolWorkspaceId }, row.machineId);
  }
}

const CREATE_MIN = RULES.createWithinMs / 60_000;
const READY_MIN = RULES.joinWithinMs / 60_000;

/** The failure of a pool that an end is; null: it is none. */
export function failureOf(why: EndWhy, machine: Pick<MachineFacts, 'isJoined' | 'blockedBy'> | undefined) {
  if (why === 'not_created') return `no instance was made within ${CREATE_MIN} min or ${RULES.mostCreates} calls`;
  if (why === 'instance_gone') return 'its instance ended before it could take containers';
  if (why === 'spot_notice') return 'its provider took the instance back before it could take containers';
  if (why !== 'never_joined') return null;
  if (machine?.isJoined !== true) return `its agent did not join within ${READY_MIN} min`;
  const blocked = machine.blockedBy.length === 0 ? '' : ` (${machine.blockedBy.join(', ')})`;
  return `its agent joined, and could not take containers within ${READY_MIN} min${blocked}`;
}
