import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Timestamp } from '../fields.ts';
import { listOf } from './lists.ts';

export const SettingRecord = Type.Object({
  name: Type.String(),
  value: Type.String(),
  source: Type.Enum(['database', 'environment', 'default']),
  variable: Type.String({ description: 'variable of the environment that counts without a change' }),
  description: Type.String(),
  updated_at: Timestamp(),
});
export type SettingRecord = Static<typeof SettingRecord>;

export const ChangedSettingRecord = Type.Object({
  ...SettingRecord.properties,
  on_every_scheduler: Type.Boolean({
    description: 'every scheduler that runs uses it; false: one did not answer, and follows within half a minute',
  }),
});
export type ChangedSettingRecord = Static<typeof ChangedSettingRecord>;

export const SettingList = listOf(SettingRecord);

export const ChangeSetting = Type.Object({ value: Type.String() });
