// `longshore record`, and the routes behind it, at a real scheduler that leads.
import { hostname } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkRecording } from '#scheduler/control/simulator/check.ts';
import { runCommand } from '../helpers/command-line.ts';
import type { Ended } from '../helpers/command-line.ts';
import { tempDirectory } from '../helpers/programs.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Platform } from './verbs-fixture.ts';

let platform: Platform;
const folder = tempDirectory('recording-routes');
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(async () => {
  await platform.stop();
  folder.remove();
});

const record = (token: string, ...words: readonly string[]): Promise<Ended> =>
  runCommand(['record', ...words], {
    LONGSHORE_CONTEXT_FILE: join(folder.path, 'contexts.json'),
    LONGSHORE_URL: `http://${platform.address}`,
    LONGSHORE_TOKEN: token,
  });
const asAdmin = () => ({ token: platform.admin.token });

test('a recording is begun, listed and ended by the administrator alone, who is in the trail, and is replayed', async () => {
  const { token } = platform.admin;
  const begun = await record(token, 'start', '--for', '10m');
  expect(begun).toMatchObject({ code: 0, stderr: '' });
  const path = /: (\/.*recording-\d+\.jsonl)$/m.exec(begun.stdout)?.[1] ?? '';
  expect(await record(token, 'start')).toMatchObject({ code: 1, stderr: expect.stringContaining('is being recorded') });
  expect((await record(token, 'list')).stdout).toMatch(/recording +\d+s ago/);
  const autoscaler = { type: 'queue_depth', minContainers: 1, maxContainers: 1, tasksPerContainer: 1 };
  await platform.deploy('recorded', { autoscaler });
  const ended = await record(token, 'stop');
  expect(ended).toMatchObject({ code: 0, stdout: expect.stringContaining(`longshore simulate ${path} --check`) });
  expect(await record(token, 'stop')).toMatchObject({ code: 4, stderr: expect.stringContaining('nothing is being') });
  expect((await record(token, 'list')).stdout).toContain('ended: stopped');
  expect(await checkRecording(path)).toMatchObject({ ended: 'stopped' });
  const history = `/api/v1/events/${platform.admin.workspaceId}/history?event_types=audit.recording.*`;
  const trail = await platform.call(`GET ${history}`, undefined, { token });
  const told = trail.json['events'] as { readonly type: string; readonly data: Record<string, unknown> }[];
  const target = { type: 'recording', id: basename(path), name: basename(path) };
  const actor = expect.objectContaining({ token_type: 'admin' }) as unknown;
  expect(told.map(({ type, data }) => [type, data['target'], data['actor'], data['attrs']])).toEqual([
    ['audit.recording.started', target, actor, { host: hostname(), seconds: 600 }],
    ['audit.recording.stopped', target, actor, { host: hostname() }],
  ]);
  for (const words of [['start'], ['stop'], ['list']])
    expect(await record(platform.own.token, ...words)).toMatchObject({ code: 3 });
});

test('seconds out of bounds are refused, and the field is named', async () => {
  for (const seconds of [0, 86_401, 1.5, 'x']) {
    const { status, json } = await platform.call('POST /api/v1/recording', { seconds }, asAdmin());
    expect([seconds, status, json['code']]).toEqual([seconds, 422, 'invalid_body']);
    expect(json['message']).toContain('seconds');
  }
  for (const span of ['0s', '25h', 'soon'])
    expect(await record(platform.admin.token, 'start', '--for', span)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--for'),
    });
});
