import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Timestamp } from '../fields.ts';
import { Count, Time, listOf } from './lists.ts';

export const SigningKeyRecord = Type.Object({
  id: Type.String(),
  created_at: Time(),
  retired_at: Timestamp(),
  signs: Type.Boolean({ description: 'new tokens are signed with it' }),
  active_tokens: Count(),
});
export type SigningKeyRecord = Static<typeof SigningKeyRecord>;

export const SigningKeyList = listOf(SigningKeyRecord);
