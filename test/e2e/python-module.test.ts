// An app file written against `from beam import …`, deployed by the command line, and run as it is from Python. Values
// that are not JSON travel, files outlive their task, and containers and callers share maps, queues and signals.
import { describe, expect } from 'vitest';
import { appFolder } from '../helpers/app-folder.ts';
import { test } from '../helpers/platform.ts';

type Said = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

describe('an app file with the names of the published packages', () => {
  test('is deployed and called as it is', async ({ platform }) => {
    const app = appFolder(platform, 'module', 'test/fixtures/apps/module.py');
    try {
      expect(await app.longshore('deploy', 'app.py:draw')).toContain('running module-prepare before the deployment');
      await app.longshore('deploy', 'app.py:order');
      const said = JSON.parse(await app.python()) as Said;
      expect(said['draw']).toMatchObject({ numbers: [3, 6], made: 'made before the deployment' });
      const file = await fetch(String(said['draw']?.['url']));
      expect([file.status, await file.text()]).toEqual([200, 'picture of [1, 2]']);
      const outputs = said['outputs'] as unknown as readonly { readonly name: string; readonly url: string }[];
      expect(outputs.map(({ name }) => name)).toEqual(['a.txt', 'picture.zip']);
      expect((await fetch(outputs[1]?.url ?? '')).status).toBe(200);
      expect(said['map']).toEqual({
        seen: { numbers: [1, 2] },
        pickled: [1, 2],
        keys: ['pickled', 'seen'],
        none: null,
      });
      expect(said['queue']).toEqual([['from the container', 3], null]);
      expect(said['add']).toEqual([3, 7, 5]);
      expect(said['order']).toEqual({ item: 'abab' });
      expect(said['client']).toEqual({ item: 'ccc' });
      expect([said['before'], said['after']]).toEqual([{ heard: [] }, { heard: ['bell'] }]);
      expect(said['bot']).toContain('Bot: bots are not served');
    } finally {
      app.remove();
    }
  });

  test('is not deployed where the function of on_deploy fails', async ({ platform }) => {
    const text = [
      'from beam import endpoint, function',
      '@function(cpu=0.1)',
      'def check():',
      '    raise ValueError("not today")',
      '@endpoint(name="hooked", cpu=0.1, on_deploy=check)',
      'def serve():',
      '    return {}',
    ].join('\n');
    const app = appFolder(platform, 'hook', text);
    try {
      await expect(app.longshore('deploy', 'app.py:serve')).rejects.toThrow(
        /on_deploy: check ended as ERROR, so nothing was deployed/,
      );
      expect(await app.longshore('deployment', 'list', '--json')).not.toContain('hooked');
    } finally {
      app.remove();
    }
  });
});

test('the example of many calls runs as its README says', async ({ platform }) => {
  const app = appFolder(platform, 'batch', 'examples/batch/app.py');
  try {
    for (const name of ['count', 'report']) await app.longshore('deploy', `app.py:${name}`);
    const [counts, address = ''] = (await app.python()).trim().split('\n');
    expect(counts).toBe('[4, 3, 2]');
    expect(await (await fetch(address)).text()).toBe('one: 4 words\nthree: 2 words\ntwo: 3 words\n');
  } finally {
    app.remove();
  }
});
