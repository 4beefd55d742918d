// The web console in Chromium: what people do with their deployments, tasks and stored things, with the clicks that
// each job takes.
import type { Locator, Page } from 'playwright-core';
import { expect } from 'vitest';
import { writeConsoleIfStale } from '../helpers/built-console.ts';
import { SEEN_MS, axe, clicker, linkOf, row, sees, signIn, test as base } from '../helpers/console-stories.ts';
import { jsonOf } from '../helpers/platform.ts';
import type { Deployment, Platform } from '../helpers/platform.ts';
import { waitFor } from '../helpers/programs.ts';

interface World {
  readonly older: Deployment;
  readonly newer: Deployment;
}

const DECLARED = { fields: { name: { type: 'String' }, count: { type: 'Integer' } } };

const test = base.extend('world', { scope: 'file' }, async ({ platform }): Promise<World> => {
  await writeConsoleIfStale();
  const greets = { app: 'failing.py', handler: 'hello', name: 'greets' };
  const older = await platform.deploy(greets);
  await platform.invoke(older);
  await platform.deploy({ app: 'failing.py', handler: 'echo', name: 'echoes', inputs: DECLARED });
  const newer = await platform.deploy({ ...greets, memory: 192, env: ['GREETING=secret'] });
  await waitFor(
    async () => (await recordOf(platform, newer)).rollout?.state === 'done',
    'v2 of greets serves',
    SEEN_MS * 3,
  );
  return { older, newer };
});

interface Version {
  readonly active: boolean;
  readonly rollout: { readonly state: string } | null;
}
const recordOf = async (platform: Platform, { deploymentId }: Deployment): Promise<Version> =>
  jsonOf<Version>(await platform.call(`/api/v1/deployment/${platform.workspaceId}/${deploymentId}`));

const version = (page: Page, number: number): Locator =>
  page.locator('.rows > li', { has: page.getByText(`v${number}`, { exact: true }) });
const button = (where: Locator | Page, name: string): Locator => where.getByRole('button', { name, exact: true });

test('job 7: roll back, with the difference seen first, in 3 clicks', async ({
  platform,
  world: { newer },
  page,
  faults: _faults,
}) => {
  await signIn(platform, page);
  const { click, count } = clicker();
  await click(row(page, 'greets').getByRole('link', { name: 'greets', exact: true }));
  await sees(version(page, 2).getByText('gets calls'));
  await click(button(version(page, 1), 'Roll back to v1 …'));
  const dialog = page.getByRole('dialog');
  await sees(dialog.getByRole('row', { name: 'memory 192 MiB 128 MiB' }));
  // A variable is named, and its value is not shown.
  await sees(dialog.getByRole('row', { name: 'env GREETING (set) not set' }));
  await sees(dialog.getByText('The code is the same.'));
  expect(await dialog.innerText()).not.toContain('secret');
  expect(await dialog.locator('details').textContent()).toContain('longshore deployment rollback greets v1');
  expect(await axe(page)).toEqual([]);
  await click(button(dialog, 'Roll back to v1'));
  await sees(dialog.getByText('Calls of greets reach v1 now'));
  expect(count()).toBe(3);
  expect(await recordOf(platform, newer)).toMatchObject({ rollout: { state: 'withdrawn' } });
  await button(dialog, 'Close').click();
  await sees(version(page, 1).getByText('gets calls'));
});

test('job 8: stop, start and scale, in 3 clicks each; Escape leaves it as it is', async ({
  platform,
  world: { older },
  page,
  faults: _faults,
}) => {
  await signIn(platform, page);
  const { click, count } = clicker();
  await click(row(page, 'greets').getByRole('link', { name: 'greets', exact: true }));
  const dialog = page.getByRole('dialog');
  await click(button(version(page, 1), 'Stop …'));
  await sees(button(dialog, 'Stop v1'));
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached', timeout: SEEN_MS });
  expect(await recordOf(platform, older)).toMatchObject({ active: true });
  await click(button(version(page, 1), 'Stop …'));
  await click(button(dialog, 'Stop v1'));
  await sees(dialog.getByText('greets v1 is stopped'));
  expect(count() - 1).toBe(3);
  expect(await recordOf(platform, older)).toMatchObject({ active: false });
  await button(dialog, 'Close').click();
  await sees(version(page, 1).getByText('STOPPED'));
  await sees(page.getByText('v1 is stopped, so calls of it are refused'));
  await click(button(version(page, 1), 'Start …'));
  await click(button(dialog, 'Start v1'));
  await sees(dialog.getByText('greets v1 takes calls again'));
  expect(await recordOf(platform, older)).toMatchObject({ active: true });
  await button(dialog, 'Close').click();
  await page.goBack();
  const scale = clicker();
  await scale.click(row(page, 'greets').getByRole('link', { name: 'greets', exact: true }));
  await scale.click(button(version(page, 1), 'Scale …'));
  await sees(dialog.getByText(/^Now: \d+ containers?; there may be \d+ to \d+/));
  await dialog.getByRole('spinbutton').fill('2');
  expect(await dialog.locator('details').textContent()).toContain('longshore deployment scale greets/v1 2');
  await scale.click(button(dialog, 'Keep 2'));
  await sees(dialog.getByText('It has 2 containers from now on'));
  expect(scale.count()).toBe(3);
  await platform.gateway(`/deployments/${older.deploymentId}/scale`, { containers: 0 });
});

test('job 9: call it by a form, in 2 clicks; the answer is text', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  await signIn(platform, page);
  const { click, count } = clicker();
  await click(row(page, 'echoes').getByRole('link', { name: 'echoes', exact: true }));
  await sees(page.getByText('Every field is needed.'));
  expect(await page.locator('form p.error').count()).toBe(0);
  await page.getByLabel('name', { exact: true }).fill('<img src=x onerror="document.title=1">');
  await page.getByLabel('count (a whole number)').fill('3');
  await click(button(page, 'Call'));
  const came = page.getByLabel('What came');
  await sees(came.getByText(/Answered after .*Task/));
  expect(count()).toBe(2);
  await sees(came.getByText(/cold: a container started for it/));
  expect(await came.getByLabel('Answer').innerText()).toContain('"count": 3');
  expect([await page.locator('img').count(), await page.title()]).toEqual([0, expect.stringContaining('echoes')]);
  const copies = page.locator('details', { hasText: 'Copy as curl' }).locator('code');
  const said = (await copies.allTextContents()).join('\n');
  for (const part of ['curl -H', 'requests.post(', "longshore invoke echoes --data '{", 'export LONGSHORE_TOKEN='])
    expect(said).toContain(part);
  expect(said).not.toContain('/endpoint/echoes/v1');
  await page.getByText('Copy as curl').click();
  await page.getByLabel('v1 alone').check();
  expect((await copies.allTextContents()).join('\n')).toContain('longshore invoke echoes --version 1');
  await button(page, 'As JSON').click();
  await page.getByLabel('Input, as a JSON object').fill('[1]');
  await sees(page.getByText('An input is a JSON object.'));
  expect(await button(page, 'Call').isDisabled()).toBe(true);
  expect(await axe(page)).toEqual([]);
});

test('job 10: chat with a model, and see the time to its first token, in 1 click', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  const web = { app: 'paced_model.py', handler: 'app', name: 'paced', stubType: 'asgi/deployment' };
  await platform.deploy({ ...web, concurrentRequests: 20, keepWarmSeconds: 60 });
  const body = { id: 'acme/paced', type: 'chat', backends: [{ kind: 'deployment', deployment: 'paced' }] };
  expect((await platform.call(`/api/v1/model/${platform.workspaceId}`, { body })).status).toBe(201);
  await signIn(platform, page);
  const { click, count } = clicker();
  await click(page.getByRole('link', { name: 'Playground' }));
  await page.getByLabel('Message', { exact: true }).fill('{"tokens": 3, "pause_ms": 20}');
  await page.keyboard.press('Enter');
  await sees(page.getByLabel('Conversation').getByText('word1 word2 word3'));
  await sees(page.getByRole('status').getByText('11, 3'));
  expect(count()).toBe(1);
  expect(await page.getByText('first token after').locator('..').innerText()).toMatch(/\d m?s/);
  expect(await axe(page)).toEqual([]);
  const copies = await page.locator('details', { hasText: 'Copy as curl' }).locator('code').allTextContents();
  expect(copies.join('\n')).toContain('pause_ms');
  expect(copies.join('\n')).not.toContain('word1');
  await button(page, 'New conversation').click();
  expect(await page.getByLabel('Conversation').locator('li').count()).toBe(0);
});

test('job 6: retry a failed task in 3 clicks, and all that failed alike in 4', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  const raises = await platform.deploy({ app: 'failing.py', handler: 'raises', name: 'raises', keepInputs: true });
  const calls = await Promise.all([1, 2, 3].map((n) => platform.invoke(raises, { key: `n${n}` })));
  await Promise.all(calls.map(({ taskId }) => platform.taskIs(taskId, 'ERROR')));
  const ended = async (): Promise<number> =>
    (await platform.tasks(raises)).filter(({ status }) => status === 'ERROR').length;
  await signIn(platform, page);
  const one = clicker();
  await one.click(row(page, 'raises').getByRole('link', { name: /Last failure/ }));
  await one.click(page.getByRole('button', { name: /^Run again/ }));
  await one.click(button(page, 'Run it now'));
  expect(one.count()).toBe(3);
  await sees(page.getByText(/^A run again of task/));
  await waitFor(async () => (await ended()) === 4, 'the task ran again', SEEN_MS);
  await page.goBack();
  await sees(page.getByText(/^It ran again as task/));
  await page.goBack();
  const all = clicker();
  await all.click(row(page, 'raises').getByRole('link', { name: /Last failure/ }));
  await all.click(page.getByRole('link', { name: 'All that failed with' }));
  await all.click(button(page, 'Run all again …'));
  const dialog = page.getByRole('dialog');
  // Four tasks failed, and the one that was run again is left out.
  await sees(dialog.getByText('3 tasks would run again'));
  await sees(dialog.getByText('Left out: 1 task with a run again already'));
  expect(await axe(page)).toEqual([]);
  await all.click(button(dialog, 'Run 3 tasks again'));
  await sees(dialog.getByText('3 tasks run again.'));
  expect(all.count()).toBe(4);
  await waitFor(async () => (await ended()) === 7, 'three more tasks ran', SEEN_MS);
});

test('a misspelt name offers no change of many; a right one says which tasks are meant', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  const embeds = await platform.deploy({ app: 'failing.py', handler: 'raises', name: 'embeds' });
  const { taskId } = await platform.invoke(embeds, { key: 'a' });
  await platform.taskIs(taskId, 'ERROR');
  await signIn(platform, page);
  const home = page.url();
  const change = page.getByRole('button', { name: /^(Run all again|Cancel all)/ });
  for (const show of ['failed', 'waiting', 'running'])
    for (const name of ['embed', 'embedz']) {
      await page.goto(`${home}/tasks?name=${name}&show=${show}`);
      await sees(page.getByText(`no deployment is called ${name}`));
      expect([name, show, await change.count(), await page.locator('.tasks > li').count()]).toEqual([name, show, 0, 0]);
    }
  expect(await axe(page)).toEqual([]);
  await page.goto(`${home}/tasks?name=embeds&show=failed`);
  await sees(page.locator('.tasks > li', { hasText: taskId.slice(0, 8) }));
  expect(await page.locator('.tasks > li').count()).toBe(1);
  await change.click();
  const dialog = page.getByRole('dialog');
  await sees(dialog.getByText('Tasks of embeds, all versions, that are ERROR or TIMEOUT or EXPIRED.'));
  await sees(dialog.getByText('1 task would run again'));
  const lines = await dialog.locator('details code').allTextContents();
  expect(lines).toEqual([expect.stringMatching(/^curl .*deployment_name=embeds/)]);
});

test('job 11: why starts are slow, in 2 clicks: phases, the longest first', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  const slow = await platform.deploy({ app: 'failing.py', handler: 'echo', name: 'starts' });
  await platform.invoke(slow, {});
  await signIn(platform, page);
  const { click, count } = clicker();
  await click(row(page, 'starts').getByRole('link', { name: 'starts', exact: true }));
  await click(page.getByText('Starts: how long each phase takes'));
  await sees(page.getByText(/to get ready, once|starts took at most/));
  await sees(page.getByRole('row', { name: /Python and imports/ }));
  expect(count()).toBe(2);
  await page.getByText('Use: CPU, memory and GPUs over time').click();
  // The first sample of a container comes after a while.
  await sees(page.getByText(/CPU cores|none has told what it uses yet/));
  expect(await axe(page)).toEqual([]);
});

test('job 12: GPU hours by deployment, in 1 click', async ({ platform, world: _world, page, faults: _faults }) => {
  await signIn(platform, page);
  const { click, count } = clicker();
  await click(page.getByRole('link', { name: 'Usage' }));
  await sees(page.getByRole('heading', { name: 'Usage' }));
  await sees(page.getByText(/Nothing ran in that time|GPU hours/));
  expect(count()).toBe(1);
  expect(await page.getByRole('button', { name: 'deployment', exact: true }).getAttribute('aria-pressed')).toBe('true');
});

test('job 13: change a secret, and find a file in a volume, in 3 clicks each', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  const ws = platform.workspaceId;
  await platform.call(`/api/v1/secret/${ws}`, { body: { name: 'MODEL_KEY', value: 'first' } });
  await platform.call(`/api/v1/volume/${ws}`, { body: { name: 'models' } });
  const address = await platform.call(`/api/v1/volume/${ws}/models/file-url?method=PUT&path=runs/7/weights.bin`);
  const put = await platform.call(jsonOf<{ readonly url: string }>(address).url, {
    method: 'PUT',
    body: Buffer.from('0123456789'),
    token: '',
  });
  expect([put.text, put.status]).toEqual([expect.any(String), 200]);
  await signIn(platform, page);
  const secret = clicker();
  await secret.click(page.getByRole('link', { name: 'Secrets' }));
  await secret.click(button(page, 'Change …'));
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Value').fill('never shown again');
  const value = dialog.getByRole('textbox', { name: 'Value' });
  expect(await value.getAttribute('class')).toBe('masked');
  await dialog.getByLabel('Show it').check();
  expect(await value.getAttribute('class')).toBe('');

  expect(await dialog.locator('details').textContent()).not.toContain('never shown');
  await secret.click(button(dialog, 'Set it'));
  await sees(dialog.getByText('MODEL_KEY is set'));
  expect(secret.count()).toBe(3);
  await button(dialog, 'Close').click();
  const file = clicker();
  await file.click(page.getByRole('link', { name: 'Volumes' }));
  await file.click(page.getByRole('link', { name: 'models' }));
  await page.getByLabel('Name contains').fill('weights');
  await file.click(button(page, 'Find'));
  await sees(page.getByText('runs/7/weights.bin'));
  expect(file.count()).toBe(3);
  const [saved] = await Promise.all([
    page.waitForEvent('download'),
    button(page, 'Download runs/7/weights.bin').click({ timeout: SEEN_MS }),
  ]);
  expect(saved.suggestedFilename()).toBe('weights.bin');
});

test('a file of a volume is replaced only after a question, read as text, and deleted', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  const volumes = `/api/v1/volume/${platform.workspaceId}`;
  await platform.call(volumes, { body: { name: 'papers' } });
  const text = async (): Promise<string> => {
    const address = await platform.call(`${volumes}/papers/file-url?path=a.txt`);
    return (await platform.call(jsonOf<{ readonly url: string }>(address).url, { token: '' })).text;
  };
  await signIn(platform, page);
  await page.goto(`${page.url()}/volumes?volume=papers`);
  await page.getByText('Upload a file').click();
  const upload = (said: string): Promise<void> =>
    page
      .getByLabel(/^A file of at most/)
      .setInputFiles({ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from(said) });
  await upload('<b>one</b>');
  await sees(page.getByText('a.txt is there.'));
  await upload('two');
  const dialog = page.getByRole('dialog');
  await sees(dialog.getByText(/The one that is there has 10 B and was changed .* ago/));
  expect(await axe(page)).toEqual([]);
  await page.keyboard.press('Escape');
  expect(await text()).toBe('<b>one</b>');
  await button(page, 'View a.txt').click();
  expect(await page.getByLabel('Text of a.txt').innerText()).toBe('<b>one</b>');
  await upload('two');
  await button(dialog, 'Replace it').click();
  await sees(page.getByText('a.txt is replaced.'));
  expect(await text()).toBe('two');
  await button(dialog, 'Close').click();
  await button(page.locator('.rows > li'), 'Delete …').click();
  await button(dialog, 'Delete it').click();
  await sees(page.getByText('This folder is empty.'));
});

test('a token is made and shown once, switched off and deleted; other browsers are signed out', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  await signIn(platform, page);
  await page.getByRole('link', { name: 'Settings' }).click();
  await button(page, 'New token …').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('for the console');
  await dialog.getByLabel('It may').selectOption('read');
  await button(dialog, 'Make it').click();
  await sees(dialog.getByText('It is shown this once'));
  const key = (await dialog.getByRole('status').locator('code').textContent()) ?? '';
  const may = async (): Promise<number> =>
    (await platform.call(`/api/v1/task/${platform.workspaceId}`, { token: key })).status;
  expect(await may()).toBe(200);
  const begun = await fetch(`${platform.url}/console/session`, {
    method: 'POST',
    body: JSON.stringify({ token: key }),
  });
  expect(begun.status).toBe(200);
  await button(dialog, 'Close').click();
  const made = page.locator('.rows > li', { hasText: 'for the console' });
  expect(await made.textContent()).not.toContain(key);
  await page.getByRole('link', { name: 'Sessions' }).click();
  await button(made, 'Sign out …').click();
  await button(dialog, 'Sign it out').click();
  await sees(dialog.getByText('It is signed out.'));
  await button(dialog, 'Close').click();
  await made.waitFor({ state: 'detached', timeout: SEEN_MS });
  await page.getByRole('link', { name: 'Tokens' }).click();
  await button(made, 'Switch off …').click();
  await button(dialog, 'Switch it off').click();
  await sees(dialog.getByText('It is switched off.'));
  expect(await may()).toBe(401);
  await button(dialog, 'Close').click();
  await button(made, 'Delete …').click();
  await button(dialog, 'Delete it').click();
  await sees(dialog.getByText('It is deleted.'));
});

test('screens fit a narrow window, in light and dark, empty and full, and axe finds no fault', async ({
  platform,
  world: _world,
  page,
  faults: _faults,
}) => {
  await page.setViewportSize({ width: 360, height: 740 });
  await signIn(platform, page);
  const fresh = jsonOf<{ readonly id: string }>(await platform.call('/api/v1/workspace', { body: { name: 'bare' } }));
  expect(fresh.id).toMatch(/./);
  const full = page.url();
  const screens: readonly (readonly [string, string])[] = [
    ['/containers', 'Containers'],
    ['/volumes', 'Volumes'],
    ['/volumes?volume=models', 'models'],
    ['/secrets', 'Secrets'],
    ['/images', 'Images'],
    ['/usage', 'Usage'],
    ['/events?show=all', 'Events'],
    ['/playground', 'Playground'],
    ['/settings?part=tokens', 'Settings'],
    ['/settings?part=webhooks', 'Settings'],
    ['/settings?part=limits', 'Settings'],
    ['/settings?part=sessions', 'Settings'],
    ['/tasks?show=failed&reason=process_exited', 'Tasks'],
  ];
  for (const home of [full, full.replace(/\/w\/[^/]+$/, '/w/bare')])
    for (const [path, heading] of screens) {
      await page.goto(`${home}${path}`);
      await sees(page.getByRole('heading', { level: 1, name: heading }));
      await page.locator('.skeleton').waitFor({ state: 'detached', timeout: SEEN_MS });
      const width = await page.evaluate('document.documentElement.scrollWidth');
      expect([home, path, width]).toEqual([home, path, 360]);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        expect([home, path, colorScheme, await axe(page)]).toEqual([home, path, colorScheme, []]);
      }
    }
  // Models are called in the token's own workspace: another has no place to call them.
  const links = page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Playground' });
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.goto(`${full.replace(/\/w\/[^/]+$/, '/w/bare')}/playground`);
  await sees(page.getByText('This token may not see that'));
  expect([await links.count(), await page.getByLabel('Message').count()]).toEqual([0, 0]);
  await page.goto(`${full}/playground`);
  await sees(links);
});

test('each kind of token is shown screens that it may read, and meets no refusal', async ({
  platform,
  world: { older },
  page,
  faults: _faults,
}) => {
  const refused: string[] = [];
  page.on('response', (answer) => {
    if (answer.status() === 401 || answer.status() === 403) refused.push(`${answer.status()} ${answer.url()}`);
  });
  const apps = jsonOf<{ readonly app_id: string }>(
    await platform.call(`/api/v1/deployment/${platform.workspaceId}/${older.deploymentId}`),
  );
  const kinds: readonly (readonly [Readonly<Record<string, unknown>>, readonly string[], readonly string[]])[] = [
    [{}, ['Secrets', 'Settings', 'Usage', 'Playground'], []],
    [{ scopes: ['read'] }, ['Usage', 'Volumes', 'Images'], ['Secrets', 'Playground']],
    [{ scopes: ['invoke'] }, ['Playground'], ['Secrets', 'Usage', 'Containers']],
    [{ app_id: apps.app_id }, ['Containers', 'Events'], ['Secrets', 'Usage', 'Playground']],
    [{ token_type: 'workspace_restricted' }, [], ['Secrets']],
  ];
  for (const [body, drawn, left] of kinds) {
    const made = await platform.call(`/api/v1/token/${platform.workspaceId}`, { body });
    await page.goto(await linkOf(platform, jsonOf<{ readonly key: string }>(made).key));
    const screens = page.getByRole('navigation', { name: 'Screens' });
    await sees(screens);
    const titles = await screens.getByRole('link').allTextContents();
    for (const title of drawn) expect([body, titles]).toEqual([body, expect.arrayContaining([title])]);
    for (const title of left) expect([body, titles.includes(title)]).toEqual([body, false]);
    for (const title of titles) {
      await screens.getByRole('link', { name: title, exact: true }).click();
      await sees(page.getByRole('heading', { level: 1 }));
      await page.locator('.skeleton').waitFor({ state: 'detached', timeout: SEEN_MS });
    }
    expect([body, refused]).toEqual([body, []]);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await sees(page.getByLabel('Or paste a token'));
  }
});
