import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Timestamp } from '../fields.ts';
import { Id, Time } from './lists.ts';

export const AppRecord = Type.Object({
  id: Id(),
  external_id: Id(),
  name: Type.String(),
  description: Type.String(),
  created_at: Time(),
  updated_at: Time(),
  deleted_at: Timestamp(),
});
export type AppRecord = Static<typeof AppRecord>;
