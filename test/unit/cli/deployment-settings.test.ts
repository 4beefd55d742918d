// Rows of a deployment's settings, of a definition and of a record.
import { expect, test } from 'vitest';
import { settingRows, settingsOfRecord, settingsOfRequest } from '#cli/commands/deployment-settings.ts';

test('a deployment that keeps no inputs says so beside its access', () => {
  for (const settings of [
    settingsOfRequest({ keepInputs: false }),
    settingsOfRecord({ extra: { keepInputs: false } }),
  ]) {
    const rows = settingRows(settings);
    const access = rows.findIndex(([name]) => name === 'access');
    expect(rows[access + 1]).toEqual(['inputs', 'not kept (keep_inputs)']);
  }
  for (const settings of [settingsOfRequest({}), settingsOfRecord({ extra: {} })])
    expect(settingRows(settings).map(([name]) => name)).not.toContain('inputs');
});

test('a schedule and the bounds of scale-in are rows of their own', () => {
  const warm = [{ when: '0 8 * * 1-5', timezone: 'Europe/Berlin', min: 3, until: '18:00' }];
  const shown = [
    settingsOfRequest({ autoscaler: { windowSeconds: 30, scaleInPerMinute: 2, warm } }),
    settingsOfRecord({ autoscaler: { window_seconds: 30, scale_in_per_minute: 2, warm } }),
  ].map((settings) => new Map(settingRows(settings)));
  for (const rows of shown) {
    expect(rows.get('scale in')).toBe('when nothing asked for it for 30 s; at most 2 containers in a minute');
    expect(rows.get('warm')).toBe('3 containers from 0 8 * * 1-5 until 18:00 (Europe/Berlin)');
  }
  for (const settings of [settingsOfRequest({}), settingsOfRecord({})])
    for (const name of ['scale in', 'warm']) expect(new Map(settingRows(settings)).has(name)).toBe(false);
});
