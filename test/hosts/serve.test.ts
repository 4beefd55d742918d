// `longshore serve` with a real scheduler, agent and containers: reloads, and kill -9 of everything that takes part.
import { renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { test } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { ServeCommand } from '../helpers/serve-command.ts';
import { waitFor } from '../helpers/programs.ts';

const APP = `
from longshore import endpoint
from lib import words

@endpoint(cpu="200m", memory=256)
def hello(seconds=0):
    print("called", words.word)
    return {"word": words.word}
`;
const FILES = { 'app.py': APP, 'lib/words.py': "word = 'one'\n" };
/** Longer than a lease, and the stop of a container. */
const LEASE_MS = 110_000;

async function noContainer(platform: Platform, containerId: string, withinMs: number): Promise<void> {
  await waitFor(
    async () => {
      const there = await platform.containers();
      return !there.some(
        ({ Labels, State }) => Labels['io.longshore.container'] === containerId && State === 'running',
      );
    },
    `container ${containerId} is gone`,
    withinMs,
  );
}

const kindApp = (decorator: string, body = 'return word'): string =>
  `from longshore import ${decorator}\nfrom words import word\n\n@${decorator}(cpu="200m", memory=256)\ndef hello():\n    ${body}\n`;

describe('a development server', () => {
  test('loads what is saved: files that are new, renamed, deleted and broken', async ({ platform }) => {
    const serve = new ServeCommand(platform, 'reloads', FILES);
    const { containerId = '', url = '' } = await serve.serving();
    expect(url).toMatch(/\/endpoint\/id\/[0-9a-f-]{36}$/);
    expect((await serve.call()).body).toBe('{"word":"one"}');
    const line = await serve.until('the line of the call', ({ message }) => message === 'called one');
    expect(line.task_id).toMatch(/^[0-9a-f-]{36}$/);

    expect(await serve.reloaded('lib/words.py', "word = 'two'\n")).toMatchObject({
      state: 'loaded',
      files: 1,
      removed: 0,
    });
    expect((await serve.call()).body).toBe('{"word":"two"}');

    const broken = await serve.reloaded('lib/words.py', 'word ==\n');
    expect(broken).toMatchObject({ state: 'failed', files: 1 });
    expect(broken.error).toMatch(/^SyntaxError/);
    expect(await serve.call()).toMatchObject({ status: 500, body: expect.stringContaining('SyntaxError') as string });
    await serve.until('the traceback', ({ message = '' }) => message.includes('words.py", line 1'));

    const before = serve.told.length;
    serve.save('lib/words.py', "word = 'three'\n");
    renameSync(join(serve.directory, 'lib'), join(serve.directory, 'texts'));
    serve.save('app.py', APP.replace('from lib', 'from texts'));
    await serve.until('a good reload', ({ kind, state }) => kind === 'reloaded' && state === 'loaded', before);
    expect((await serve.call()).body).toBe('{"word":"three"}');
    const at = `/api/v1/gateway/containers/${containerId}/files?path=lib&stat=true`;
    const stat = await fetch(`${platform.url}${at}`, { headers: { authorization: `Bearer ${platform.token}` } });
    expect(stat.status).toBe(404);

    const noted = serve.told.length;
    await serve.reloaded('app.py', APP.replace('from lib', 'from texts').replace('200m', '300m'));
    await serve.until('a note on the recipe', ({ text = '' }) => text.startsWith('cpu changed'), noted);
    rmSync(join(serve.directory, 'texts'), { recursive: true });

    expect(await serve.end()).toBe(130);
    await noContainer(platform, containerId, 45_000);
    expect(await serve.call({}, url)).toMatchObject({
      status: 503,
      body: expect.stringContaining('longshore serve') as string,
    });
  });

  test('tells each reload once, and the lines that were printed before its end', async ({ platform }) => {
    const lines = `${APP}    for number in range(200):\n        print('line', number)\n    return {}\n`.replace(
      '    return {"word": words.word}\n',
      '',
    );
    const serve = new ServeCommand(platform, 'lines', { ...FILES, 'app.py': lines });
    await serve.serving();
    expect(await serve.reloaded('lib/words.py', "word = 'two'\n")).toMatchObject({ state: 'loaded' });
    expect((await serve.call()).status).toBe(200);
    expect(await serve.end()).toBe(130);
    const printed = serve.of('log').map(({ message }) => message);
    expect(printed).toContain('line 199');
    expect(printed.filter((message = '') => message.includes('reloaded'))).toEqual([]);
  });

  test('two sessions of one file have containers and addresses of their own', async ({ platform }) => {
    const both = ['a', 'b'].map((name) => new ServeCommand(platform, `two-${name}`, FILES));
    const [first, second] = await Promise.all(both.map((one) => one.serving()));
    expect(first?.containerId).not.toBe(second?.containerId);
    expect(first?.url).not.toBe(second?.url);
    await both[0]?.reloaded('lib/words.py', "word = 'first'\n");
    expect(await Promise.all(both.map(async (one) => (await one.call()).body))).toEqual([
      '{"word":"first"}',
      '{"word":"one"}',
    ]);
    expect(await Promise.all(both.map((one) => one.end('SIGHUP')))).toEqual([0, 0]);
    await noContainer(platform, first?.containerId ?? '', 45_000);
    await noContainer(platform, second?.containerId ?? '', 45_000);
  });

  test('a container that is lost is replaced, with all that was saved', async ({ platform }) => {
    const serve = new ServeCommand(platform, 'lost', FILES);
    const { containerId = '' } = await serve.serving();
    await serve.reloaded('lib/words.py', "word = 'saved'\n");
    const found = (await platform.containers()).find(({ Labels }) => Labels['io.longshore.container'] === containerId);
    const before = serve.told.length;
    await platform.engine.client.getContainer(found?.Id ?? '').kill();
    await serve.until('the files again', ({ kind }) => kind === 'reloaded', before, 90_000);
    expect((await serve.call()).body).toBe('{"word":"saved"}');
    await serve.end();
  });
});

describe('kill -9', () => {
  test('of the command leaves no container behind its lease', { timeout: 240_000 }, async ({ platform }) => {
    const serve = new ServeCommand(platform, 'killed', FILES);
    const { containerId = '', url = '' } = await serve.serving();
    await serve.end('SIGKILL');
    expect((await serve.call({}, url)).status).toBe(200);
    await noContainer(platform, containerId, LEASE_MS);
    expect((await serve.call({}, url)).status).toBe(503);
  });

  test('of the scheduler does not end a session', { timeout: 240_000 }, async ({ platform }) => {
    const serve = new ServeCommand(platform, 'scheduler', FILES);
    const { containerId } = await serve.serving();
    const before = serve.told.length;
    await platform.scheduler.kill();
    serve.save('lib/words.py', "word = 'meanwhile'\n");
    await platform.startScheduler();
    await serve.until('the reload', ({ kind, state }) => kind === 'reloaded' && state === 'loaded', before, 120_000);
    expect((await serve.call()).body).toBe('{"word":"meanwhile"}');
    expect(serve.of('serving').map((one) => one.containerId)).toEqual([containerId]);
    expect(serve.told.some(({ text = '' }) => text.includes('in place of the one before'))).toBe(false);
    await serve.end();
    await noContainer(platform, containerId ?? '', 45_000);
  });

  test('of the agent does not end a session', { timeout: 240_000 }, async ({ platform }) => {
    const serve = new ServeCommand(platform, 'agent', FILES);
    const { containerId = '' } = await serve.serving();
    await platform.agent.kill();
    await platform.agent.start();
    const reloaded = await serve.reloaded('lib/words.py', "word = 'later'\n");
    expect(reloaded).toMatchObject({ state: 'loaded' });
    expect((await serve.call()).body).toBe('{"word":"later"}');
    await serve.end();
    await noContainer(platform, containerId, 45_000);
  });
});

describe('kinds', () => {
  const words = { 'words.py': "word = 'one'\n" };

  test('functions and task queues are served', { timeout: 240_000 }, async ({ platform }) => {
    for (const decorator of ['function', 'task_queue']) {
      const serve = new ServeCommand(platform, decorator, {
        'app.py': kindApp(decorator, 'print("ran", word)'),
        ...words,
      });
      await serve.serving();
      await serve.reloaded('words.py', "word = 'two'\n");
      expect((await serve.call()).status).toBe(200);
      await serve.until(`the call of the ${decorator}`, ({ message }) => message === 'ran two');
      expect(await serve.end()).toBe(130);
    }
  });

  test.for([
    ['schedule', '@schedule(when="every 1h")\ndef hello():\n    pass\n', 'invoke hello --kind schedule'],
    ['pod', 'hello = Pod(entrypoint=["sleep", "1"], ports=[80])\n', 'container shell'],
  ])('a %s is refused with the command to use', async ([kind = '', text = '', cure = ''], { platform }) => {
    const imported = kind === 'pod' ? 'Pod' : kind;
    const serve = new ServeCommand(platform, `refused-${kind}`, {
      'app.py': `from longshore import ${imported}\n\n${text}`,
    });
    expect(await serve.code).toBe(1);
    expect(serve.stderr).toContain(cure);
    expect(serve.of('serving')).toEqual([]);
  });
});
