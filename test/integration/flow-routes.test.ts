// Flow control as callers meet it: keys of calls, the list of keys, `longshore deployment keys`, and what is refused.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { waitFor } from '../helpers/programs.ts';
import type { Json, Platform } from './verbs-fixture.ts';
import { aPlatform } from './verbs-fixture.ts';

let platform: Platform;
let deployed: { readonly id: string };

beforeAll(async () => {
  platform = await aPlatform({}, 'embedded');
  deployed = await platform.deploy('bill', {
    stubType: 'taskqueue/deployment',
    extra: JSON.stringify({ flow: { concurrency: 1, key: 'customer', position: 0 } }),
  });
});
afterAll(() => platform.stop());

const put = (body: unknown, headers: Readonly<Record<string, string>> = {}) =>
  platform.call('POST /taskqueue/bill', body, { headers });
const keys = async (): Promise<Json> =>
  (await platform.call(`GET /api/v1/deployment/${platform.own.workspaceId}/flow/${deployed.id}`)).json;

test('calls have their keys in a field, by position or in the header, and a list shows them', async () => {
  const answers = [
    await put({ customer: 'c-17' }),
    await put({ args: ['c-17'], kwargs: {} }),
    await put({}, { 'x-longshore-key': 'M%C3%BCller' }),
  ];
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  await waitFor(async () => ((await keys())['data'] as Json[]).length === 2, 'both keys are listed');
  expect(await keys()).toEqual({
    concurrency: 1,
    key: 'customer',
    held: 1,
    limits: [],
    data: [
      { key: 'c-17', running: 1, waiting: 1 },
      { key: 'Müller', running: 1, waiting: 0 },
    ],
  });
  const environment = {
    LONGSHORE_URL: `http://${platform.address}`,
    LONGSHORE_TOKEN: platform.own.token,
    LONGSHORE_CONTEXT_FILE: '/nonexistent/contexts.json',
  };
  const shown = await runCommand(['deployment', 'keys', 'bill'], environment);
  expect([shown.code, shown.stdout]).toEqual([
    0,
    expect.stringMatching(/KEY +RUNNING +MOST +WAITING\s+c-17 +1 +1 +1\n/),
  ]);
  const held = JSON.parse(answers[1]?.text ?? '{}') as { task_id: string };
  const why = await platform.call(`GET /api/v1/explain/${platform.own.workspaceId}/${held.task_id}`);
  expect(why.text).toContain('Key c-17 has 1 of 1 running; 1 task of it waits');
});

test('a call without a usable key is refused, and so are bad settings, by the name of the field', async () => {
  for (const [answer, text] of [
    [await put({}), 'customer'],
    [await put({}, { 'x-longshore-key': '%' }), 'X-Longshore-Key'],
  ] as const) {
    expect(answer).toMatchObject({ status: 400, json: { code: 'invalid_flow_key' } });
    expect(answer.text).toContain(text);
  }
  for (const [flow, text] of [
    [{ concurrency: 0 }, 'extra.flow.concurrency'],
    [{ concurrency: 1, rate: 1 }, 'extra.flow.rate'],
  ] as const) {
    const stub = await platform.gateway('POST /stubs', {
      stubType: 'taskqueue/deployment',
      name: 'bad',
      handler: 'app:handler',
      extra: JSON.stringify({ flow }),
    });
    expect(stub.text).toContain(text);
  }
});
