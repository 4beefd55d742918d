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
