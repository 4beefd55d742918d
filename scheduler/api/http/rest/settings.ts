import { timestampOf } from '#shared/api/fields.ts';
import { ChangedSettingRecord, ChangeSetting, SettingList } from '#shared/api/rest/settings.ts';
import type { SettingRecord } from '#shared/api/rest/settings.ts';
import type { ChangedSetting, RuntimeSettings, Setting } from '../../../workspaces/identity/runtime-settings.ts';
import { actorBehind } from '../origin.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

/** Settings that the administrator changes while schedulers run. */
export function settingRoutes(settings: Pick<RuntimeSettings, 'list' | 'set' | 'reset'>): readonly RestRoute[] {
  return [
    restRoute({
      http: 'GET /setting',
      grants: NOT_LIMITED,
      tag: 'installation',
      summary: 'Settings that can be changed at run time, with their source (administrator)',
      scope: 'admin',
      answer: SettingList,
      handle: async () => ({ data: (await settings.list()).map(settingRecord), next: '' }),
    }),
    restRoute({
      http: 'PUT /setting/{name}',
      tag: 'installation',
      summary: 'Change a setting on every scheduler; it wins over the environment (administrator)',
      scope: 'admin',
      body: ChangeSetting,
      answer: ChangedSettingRecord,
      errors: ['setting_not_found'],
      handle: async (request) =>
        changedRecord(await settings.set(request.params['name'] ?? '', request.body.value, actorBehind(request))),
    }),
    restRoute({
      http: 'DELETE /setting/{name}',
      tag: 'installation',
      summary: 'Go back to what the environment says (administrator)',
      scope: 'admin',
      answer: ChangedSettingRecord,
      errors: ['setting_not_found'],
      handle: async (request) =>
        changedRecord(await settings.reset(request.params['name'] ?? '', actorBehind(request))),
    }),
  ];
}

const settingRecord = ({ name, value, source, variable, description, updatedAtMs }: Setting): SettingRecord => ({
  name,
  value,
  source,
  variable,
  description,
  updated_at: updatedAtMs === null ? null : timestampOf(updatedAtMs),
});

const changedRecord = (setting: ChangedSetting): ChangedSettingRecord => ({
  ...settingRecord(setting),
  on_every_scheduler: setting.isEverywhere,
});
