import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { Count, Id, listOf, Time } from './lists.ts';

/** A container that must end before the reserved machine has room. */
const ReservationHolderRecord = Type.Object({
  container_id: Type.String(),
  workspace_id: Id(),
  workspace_name: Type.String(),
  gpus: Count('GPUs that it holds of those that are kept'),
  /** When it ends at the latest; null: nothing ends it by a known time. */
  ends_at: nullable(Time()),
});

/** A machine that is kept for a container which needs several GPUs, or half a machine, and has waited long. */
export const ReservationRecord = Type.Object({
  market: Type.String({ description: 'GPU model, or `cpu`' }),
  machine_id: Type.String(),
  container_id: Type.String(),
  workspace_id: Id(),
  workspace_name: Type.String(),
  since: Time(),
  gpus: Count('GPUs that are kept; 0: it is kept for CPU and memory'),
  free_gpus: Count('those of them that are free'),
  held_by: Type.Array(ReservationHolderRecord),
});
export type ReservationRecord = Static<typeof ReservationRecord>;

export const ReservationList = listOf(ReservationRecord);
