import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { AgentSettings } from '../../../agent/config.ts';
import { MountsSettings } from '../../../agent/mounts/config.ts';
import { SchedulerSettings } from '../../../scheduler/config.ts';
import { loadConfig } from '../../../shared/config.ts';
import { SETTINGS_OF, SETTING_NAMES, nearSetting, straySettings } from '../../../shared/settings.ts';

const ROOT = join(import.meta.dirname, '../../..');
// Plain JavaScript, so that its types are said here.
const PAGE: string = join(ROOT, 'scripts/settings-page.mjs');
type Schemas = { readonly scheduler: object; readonly agent: object; readonly mounts: object };
const SCHEMAS = { scheduler: SchedulerSettings, agent: AgentSettings, mounts: MountsSettings };
const { sampleEnvironments, settingsPage } = (await import(PAGE)) as {
  settingsPage: (schemas: Schemas) => string;
  sampleEnvironments: (schemas: Schemas) => Readonly<Record<string, string>>;
};

describe('settings', () => {
  test('every setting of all daemons is in the one list of names', () => {
    const names = Object.values(SCHEMAS)
      .flatMap(({ properties }) => Object.keys(properties))
      .filter((name) => name.startsWith('LONGSHORE_'));
    expect(names.filter((name) => !SETTING_NAMES.includes(name))).toEqual([]);
  });

  test('every daemon reads the settings that are listed as its own', () => {
    for (const daemon of ['scheduler', 'agent', 'mounts'] as const) {
      const read = Object.keys(SCHEMAS[daemon].properties);
      expect(SETTINGS_OF[daemon].filter((name) => !read.includes(name))).toEqual([]);
    }
    expect(new Set(SETTING_NAMES).size).toBe(SETTING_NAMES.length);
  });

  test('a setting that only another daemon reads is told with the file of that daemon', () => {
    const env = {
      LONGSHORE_BASE_IMAGE: 'longshore-python:{version}',
      LONGSHORE_S3_VOLUMES: '',
      LONGSHORE_S3_SECRET_ACCESS_KEY_FILE: '/run/key',
      LONGSHORE_HTTP_ADDRESS: '0.0.0.0:1994',
      LONGSHORE_LOG_LEVEL: 'debug',
      LONGSHORE_URL: 'http://a',
      DOCKER_HOST: 'unix:///x',
    };
    const read = (schema: keyof typeof SCHEMAS): string[] => Object.keys(SCHEMAS[schema].properties);
    expect(straySettings(env, read('scheduler'), ['agent', 'mounts'])).toEqual([
      { setting: 'LONGSHORE_BASE_IMAGE', of: 'agent', file: '/etc/longshore-agent/agent.env' },
      { setting: 'LONGSHORE_S3_SECRET_ACCESS_KEY', of: 'mounts', file: '/etc/longshore-agent/mounts.env' },
    ]);
    expect(straySettings(env, read('agent'), ['scheduler'])).toEqual([
      { setting: 'LONGSHORE_HTTP_ADDRESS', of: 'scheduler', file: '/etc/longshore/scheduler.env' },
    ]);
    // Several daemons read these: they are no strays anywhere.
    const shared = { LONGSHORE_DATA_DIR: '/x', LONGSHORE_LOG_LEVEL: 'info', LONGSHORE_LINK_SOCKET: '/y' };
    expect(straySettings(shared, read('agent'), ['scheduler'])).toEqual([]);
  });

  test('docs/settings.md is what the schemas say, and has every name (else: npm run generate)', () => {
    const page = readFileSync(join(ROOT, 'docs/settings.md'), 'utf8');
    expect(page).toBe(settingsPage(SCHEMAS));
    expect(SETTING_NAMES.filter((name) => !page.includes(`| \`${name}\` |`))).toEqual([]);
  });

  test('the sample environment files of the units are what the schemas say (else: npm run generate)', () => {
    const samples = sampleEnvironments(SCHEMAS);
    expect(Object.keys(samples)).toEqual(['agent.env', 'mounts.env', 'scheduler.env']);
    for (const [name, text] of Object.entries(samples))
      expect(readFileSync(join(ROOT, 'systemd', name), 'utf8'), name).toBe(text);
  });

  test('wrong and unknown settings are reported together, by name, without secrets', () => {
    const env = {
      LONGSHORE_DATA_DIR: '/x',
      LONGSHORE_MAX_CONTAINERS: 'many',
      LONGSHORE_LOG_LEVEL: 'loud',
      LONGSHORE_HTTP_ADRESS: ':1',
    };
    expect(() => loadConfig(SchedulerSettings, env, { known: SETTING_NAMES })).toThrow(
      /LONGSHORE_MAX_CONTAINERS: must be an integer from 1 .*\n.*LONGSHORE_LOG_LEVEL: must be one of trace, debug, info, warn, error, fatal, silent .*\n.*LONGSHORE_HTTP_ADRESS: no such setting; did you mean LONGSHORE_HTTP_ADDRESS\?/s,
    );
  });

  test.for([
    ['LONGSHORE_DTA_DIR', 'LONGSHORE_DATA_DIR'],
    ['LONGSHORE_DATA_DIRS', 'LONGSHORE_DATA_DIR'],
    ['LONGSHORE_BASE_IMGAE', 'LONGSHORE_BASE_IMAGE'],
    ['LONGSHORE_TOKENS', 'LONGSHORE_TOKEN'],
    ['LONGSHORE_COLOUR', undefined],
    ['LONGSHORE_', undefined],
  ])('%s is taken for %s misspelt', ([name, meant]) => {
    expect(nearSetting(name ?? '', SETTING_NAMES)).toBe(meant);
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
