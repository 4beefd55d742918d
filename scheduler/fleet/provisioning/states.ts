// States of a machine that a provider makes: one row from the request to its end. A transition that is not listed is
// never written. A row of state `creating` or `terminating` announces a call of the provider that may have been made.
import type { MachineId, WorkspaceId } from '#shared/domain/ids.ts';
import type { MachineShape } from '../../domain/provisioning.ts';

export type ProvisionedState =
  | 'requested'
  | 'creating'
  | 'created'
  | 'joined'
  | 'leaving'
  | 'terminating'
  | 'gone'
  | 'failed';

export const PROVISIONED_TRANSITIONS = {
  requested: { call: 'creating', end: 'terminating' },
  // An instance may boot and join although its create seemed to fail.
  creating: { call: 'creating', made: 'created', join: 'joined', end: 'terminating' },
  created: { join: 'joined', end: 'terminating' },
  joined: { leave: 'leaving', end: 'terminating' },
  leaving: { stay: 'joined', end: 'terminating' },
  terminating: { over: 'gone', give_up: 'failed' },
  gone: {},
  failed: {},
} as const satisfies Record<ProvisionedState, Readonly<Record<string, ProvisionedState>>>;

type EventOf<Table> = { [State in keyof Table]: keyof Table[State] }[keyof Table];
export type ProvisionedEvent = EventOf<typeof PROVISIONED_TRANSITIONS>;

/** @returns undefined: the table refuses the event */
export function provisionedAfter(from: ProvisionedState, event: ProvisionedEvent): ProvisionedState | undefined {
  const row: Readonly<Record<string, ProvisionedState>> = PROVISIONED_TRANSITIONS[from];
  return row[event];
}

/** Why a machine ends. */
export type EndWhy =
  | 'idle'
  | 'spot_notice'
  | 'drained'
  | 'machine_deleted'
  | 'instance_gone'
  | 'lost'
  | 'not_created'
  | 'never_joined';

/** Ends that count as failures of the provider. */
export const isFailedEnd = (why: string | null): boolean => why === 'not_created' || why === 'never_joined';

/** A machine of a provider, as stored. */
export interface ProvisionedRow {
  /** Tag of the instance at its provider. */
  readonly requestId: string;
  readonly poolId: number;
  readonly poolName: string;
  /** Owner of the pool; null: shared. */
  readonly poolWorkspaceId: WorkspaceId | null;
  readonly machineId: MachineId;
  readonly provider: string;
  readonly state: ProvisionedState;
  readonly shape: MachineShape;
  readonly reason: string;
  /** Sealed join token; null: not needed any more. */
  readonly joinToken: Uint8Array | null;
  /** null: not known. */
  readonly instanceId: string | null;
  readonly address: string | null;
  readonly hourlyCost: number | null;
  readonly endsAtMs: number | null;
  /** Calls of `create` that began. */
  readonly creates: number;
  /** Begin of the last call of `create` or `terminate`. */
  readonly calledAtMs: number | null;
  /** End of the last `terminate` that succeeded. */
  readonly terminatedAtMs: number | null;
  /** Failed calls since the last change of state. */
  readonly failures: number;
  readonly failedAtMs: number | null;
  readonly failure: string | null;
  readonly endWhy: EndWhy | null;
  readonly drainUntilMs: number | null;
  readonly revision: number;
  readonly requestedAtMs: number;
  readonly createdAtMs: number | null;
  readonly joinedAtMs: number | null;
  readonly endedAtMs: number | null;
}

export const isOver = ({ state }: Pick<ProvisionedRow, 'state'>): boolean => state === 'gone' || state === 'failed';
export const isPending = ({ state }: Pick<ProvisionedRow, 'state'>): boolean =>
  state === 'requested' || state === 'creating' || state === 'created';
