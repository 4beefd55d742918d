// docs/errors.md has a row for each text with which a call is refused or fails, with its status.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { UNAVAILABLE, UNAVAILABLE_STATUS, outcomes } from '../../../scheduler/api/http/invoke/outcomes.ts';
import * as refusals from '../../../scheduler/api/http/invoke/refusal.ts';
import * as endings from '../../../scheduler/domain/endings.ts';

/** Nobody reads the answer of a caller who has left. */
const UNREAD = 499;

/** Statuses and texts of the table. */
function documented(): Set<string> {
  const page = readFileSync(new URL('../../../docs/errors.md', import.meta.url), 'utf8');
  const section = page.split('\n## ').find((part) => part.startsWith('A call was refused or failed')) ?? '';
  const rows = new Set<string>();
  for (const [, statuses = '', texts = ''] of section.matchAll(/^\| ([0-9, ]+) \| ([^|]+) \|/gm))
    for (const [, text = ''] of texts.matchAll(/`([^`]+)`/g))
      for (const status of statuses.split(', ')) rows.add(`${status} ${text}`);
  return rows;
}

test('each refusal and each end of a call has a row in docs/errors.md', () => {
  const rows = documented();
  const answered = Object.values(refusals)
    .filter((one) => one instanceof refusals.Refusal)
    .map(({ status, body }) => `${status} ${Object.values(JSON.parse(body) as object)[0] as string}`);
  const ended = Object.values(endings)
    .filter((one): one is endings.Ending => typeof one === 'object' && 'reason' in one)
    .map(({ status, reason }) => [outcomes.httpStatusOf(status, reason), outcomes.textOf(reason)] as const)
    .filter(([status, text]) => text !== undefined && status !== UNREAD)
    .map(([status, text]) => `${status} ${text}`);
  const unavailable = Object.values(UNAVAILABLE).map(({ text }) => `${UNAVAILABLE_STATUS} ${text}`);
  expect([...answered, ...ended, ...unavailable].filter((one) => !rows.has(one))).toEqual([]);
});
