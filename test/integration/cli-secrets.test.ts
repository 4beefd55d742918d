// `longshore secret delete` of a secret that deployments name.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCommand } from '../helpers/command-line.ts';
import { aPlatform } from './verbs-fixture.ts';
import type { Platform } from './verbs-fixture.ts';

let platform: Platform;
beforeAll(async () => {
  platform = await aPlatform();
});
afterAll(() => platform.stop());

const make = async (name: string): Promise<void> => {
  const line = `POST /api/v1/secret/${platform.own.workspaceId}`;
  expect((await platform.call(line, { name, value: 'x' })).status).toBe(201);
};

const remove = async (name: string, ...flags: readonly string[]) => {
  const where = ['--url', `http://${platform.address}`, '--token', platform.own.token];
  const ended = await runCommand(['secret', 'delete', name, ...where, ...flags], {
    LONGSHORE_CONTEXT_FILE: '/nonexistent/contexts.json',
  });
  expect(ended.code).toBe(0);
  return ended;
};

test('secret delete names the active deployments whose next containers lack it', async () => {
  await make('TAKEN');
  await make('FREE');
  const said = { secrets: [{ name: 'TAKEN' }] };
  await platform.deploy('first', { ...said, env: ['A=1'] });
  await platform.deploy('second', said);
  const stopped = await platform.deploy('stopped', said);
  await platform.call(`POST /api/v1/deployment/${platform.own.workspaceId}/stop/${stopped.id}`);
  await platform.deploy('other');

  expect(await remove('FREE', '--json')).toMatchObject({ stderr: '' });
  const taken = await remove('TAKEN');
  expect(taken.stdout).toBe('deleted secret TAKEN\n');
  expect(taken.stderr).toBe(
    'warning: second/v1, first/v1 named TAKEN: their next containers do not start. Set it again with `longshore secret set TAKEN`, or deploy without it\n',
  );
  await make('TAKEN');
  expect(JSON.parse((await remove('TAKEN', '--json')).stdout)).toEqual({
    name: 'TAKEN',
    done: 'deleted',
    used_by: ['second/v1', 'first/v1'],
    used_by_complete: true,
  });
});
