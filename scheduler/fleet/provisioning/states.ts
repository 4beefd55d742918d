// States of a machine that a provider makes: one row from the request to its end. A transition that is not listed is
// never written. A row of state `creating` or `terminating` announces a call of the provider that may have been made.
import type { StoredProvisioned } from '../../stores/store/queries/provisioned.ts';

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

/** A machine of a provider. */
export type ProvisionedRow = Omit<StoredProvisioned, 'endWhy' | 'state'> & {
  readonly state: ProvisionedState;
  readonly endWhy: EndWhy | null;
};

/** Whether a machine ended, or ends, without a join. Such an end counts as a failure of the provider. */
export const isFailedEnd = ({ endWhy, joinedAtMs }: Pick<ProvisionedRow, 'endWhy' | 'joinedAtMs'>): boolean =>
  endWhy !== null && endWhy !== 'machine_deleted' && joinedAtMs === null;

export const isOver = ({ state }: Pick<ProvisionedRow, 'state'>): boolean => state === 'gone' || state === 'failed';
export const isPending = ({ state }: Pick<ProvisionedRow, 'state'>): boolean =>
  state === 'requested' || state === 'creating' || state === 'created';
