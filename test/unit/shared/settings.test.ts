import { describe, expect, test } from 'vitest';
import { AgentSettings } from '../../../agent/config.ts';
import { SchedulerSettings } from '../../../scheduler/config.ts';
import { loadConfig } from '../../../shared/config.ts';
import { SETTING_NAMES } from '../../../shared/settings.ts';

describe('settings', () => {
  test('every setting of both daemons is in the one list of names', () => {
    const names = [...Object.keys(SchedulerSettings.properties), ...Object.keys(AgentSettings.properties)].filter(
      (name) => name.startsWith('LONGSHORE_'),
    );
    expect(names.filter((name) => !SETTING_NAMES.includes(name))).toEqual([]);
  });

  test('wrong and unknown settings are reported together, by name, without secrets', () => {
    const env = { LONGSHORE_DATA_DIR: '/x', LONGSHORE_MAX_CONTAINERS: 'many', LONGSHORE_HTTP_ADRESS: ':1' };
    expect(() => loadConfig(SchedulerSettings, env, { known: SETTING_NAMES })).toThrow(
      /LONGSHORE_MAX_CONTAINERS: must be an integer from 1 .*\n.*LONGSHORE_HTTP_ADRESS: no such setting/s,
    );
  });

  test('numbers arrive as numbers, defaults fill what is absent', () => {
    const settings = loadConfig(
      SchedulerSettings,
      { LONGSHORE_DATA_DIR: '/x', LONGSHORE_MAX_CONTAINERS: '7', REDIS_URL: '' },
      { known: SETTING_NAMES },
    );
    expect(settings.LONGSHORE_MAX_CONTAINERS).toBe(7);
    expect(settings.LONGSHORE_HTTP_ADDRESS).toBe('127.0.0.1:1994');
    expect(settings.REDIS_URL).toBeUndefined();
  });
});
