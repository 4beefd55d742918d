// The fleet's screens of the web console in Chromium, on a real scheduler: jobs 14 to 18, with the clicks of each. One
// machine is a real agent whose GPUs are the stand-in driver's; another is simulated, with GPUs that are free.
// vitest reads a fixture's needs from the pattern of its first parameter, which may be empty and not left out.
/* oxlint-disable no-empty-pattern */
import type { Locator, Page } from 'playwright-core';
import { expect } from 'vitest';
import { writeConsoleIfStale } from '../helpers/built-console.ts';
import { startBrowser } from '../helpers/browser.ts';
import { axe, clicker, linkOf } from '../helpers/console-stories.ts';
import { FakeNvidia, aGpu, gpuUuid } from '../helpers/gpus.ts';
import { Platform, jsonOf } from '../helpers/platform.ts';
import { docker, tempDirectory, test as base } from '../helpers/services.ts';
import { SimulatedAgent } from '../helpers/simulated-agent.ts';

const SEEN_MS = 60_000;
const GIB = 1024 ** 3;

interface World {
  readonly platform: Platform;
  readonly simulated: SimulatedAgent;
  readonly page: Page;
  readonly home: string;
}

const test = base
  .extend('world', { scope: 'file' }, async ({}, { onCleanup }): Promise<World> => {
    const edge = tempDirectory('edge');
    const ends: (() => unknown)[] = [() => edge.remove()];
    onCleanup(async () => {
      for (const end of ends.toReversed()) await end();
    });
    await writeConsoleIfStale();
    const nvidia = new FakeNvidia(edge.path, { gpus: [aGpu(0), aGpu(1, { gpu_recovery_action: 'Reset' })] });
    const platform = new Platform(await docker(), (daemon) =>
      daemon === 'agent' ? { LONGSHORE_NVIDIA_SMI: nvidia.tool } : {},
    );
    ends.push(() => platform.stop());
    await platform.start();
    const made = await platform.gateway<Record<string, unknown>>('/machines', { poolName: 'big' });
    const simulated = new SimulatedAgent({
      addresses: () => [platform.agentAddress],
      joinToken: String(made['agentUpstreamToken']),
      gpus: [
        { uuid: 'GPU-s0', index: 0, model: 'H100', memoryBytes: 80 * GIB, state: 'healthy' },
        { uuid: 'GPU-s1', index: 1, model: 'H100', memoryBytes: 80 * GIB, state: 'healthy' },
      ],
    });
    await simulated.start();
    ends.push(() => simulated.stop());
    const browser = await startBrowser();
    ends.push(() => browser.close());
    const page = await (await browser.newContext()).newPage();
    await page.goto(await linkOf(platform));
    await page.getByRole('heading', { name: 'Overview' }).waitFor({ timeout: SEEN_MS });
    return { platform, simulated, page, home: page.url() };
  })
  .extend('faults', async ({ world: { page, platform } }, { onCleanup }): Promise<readonly string[]> => {
    const faults: string[] = [];
    const onConsole = (message: { readonly type: () => string; readonly text: () => string }): void => {
      if (message.type() === 'error') faults.push(message.text());
    };
    const onRequest = (request: { readonly url: () => string }): void => {
      const url = request.url();
      if (!url.startsWith(platform.url) && !url.startsWith('data:')) faults.push(`asked ${url}`);
    };
    page.on('console', onConsole).on('request', onRequest);
    onCleanup(() => {
      page.off('console', onConsole).off('request', onRequest);
      expect(faults).toEqual([]);
    });
    return faults;
  });

/** Counts the clicks of a story that begins at the first screen. */
async function story({ page, home }: World) {
  await page.goto(home);
  await page.getByRole('heading', { name: 'Overview' }).waitFor({ timeout: SEEN_MS });
  return clicker(SEEN_MS);
}

const screen = (page: Page, name: string): Locator =>
  page.getByRole('navigation', { name: 'Fleet' }).getByRole('link', { name });
const sees = (where: Locator): Promise<void> => where.first().waitFor({ timeout: SEEN_MS });

test('job 14: which GPUs are busy, free and out, why, and the cure', async ({ world, faults: _faults }) => {
  const { page, platform, simulated } = world;
  const { click, count } = await story(world);
  await click(screen(page, 'GPU map'));
  await sees(page.getByRole('gridcell', { name: /H100: free/ }));
  // The driver asks for a reset of one, and no probe can run on this host.
  const out = page.locator('.rows > li', { hasText: gpuUuid(1) });
  await sees(out.getByText('unhealthy'));
  await sees(out.getByText(`nvidia-smi --gpu-reset -i ${gpuUuid(1)}`));
  expect(count()).toBe(1);
  // The first step of the cure, which asks before it acts.
  await click(out.getByRole('button', { name: /^Drain/ }));
  await sees(page.getByText('After 30 minutes the rest is stopped'));
  expect(count()).toBe(2);
  await page.getByRole('button', { name: 'Leave it' }).click();
  // A GPU that somebody holds, by the keyboard alone.
  await platform.deploy({
    app: 'failing.py',
    handler: 'hello',
    name: 'holds',
    gpu: 'H100',
    autoscaler: { type: 'queue_depth', minContainers: 1, maxContainers: 1, tasksPerContainer: 1 },
  });
  const held = page.getByRole('gridcell', { name: /leased by holds/ });
  await sees(held);
  simulated.sampleDevices([
    { uuid: 'GPU-s0', utilizationPermille: 730, memoryUsedBytes: 40 * GIB, powerWatts: 500, temperatureCelsius: 60 },
    { uuid: 'GPU-s1', utilizationPermille: 730, memoryUsedBytes: 40 * GIB, powerWatts: 500, temperatureCelsius: 60 },
  ]);
  await page.locator('.gpu[tabindex="0"]').focus();
  const name = (): Promise<string> => page.evaluate('document.activeElement.textContent');
  for (const key of ['Home', 'ArrowDown', 'ArrowUp', 'ArrowRight', 'ArrowLeft']) await page.keyboard.press(key);
  for (const key of ['ArrowRight', 'ArrowUp', 'ArrowUp', 'ArrowLeft', 'ArrowRight', 'ArrowLeft'])
    if (!(await name()).includes('leased by holds')) await page.keyboard.press(key);
  expect(await name()).toContain('leased by holds');
  await page.keyboard.press('Enter');
  await sees(page.getByRole('status').getByText('73 % busy'));
  await page.getByRole('button', { name: 'As a table' }).click();
  await sees(page.getByRole('row', { name: /holds/ }));
});

test('a GPU is excluded, with the command that does the same', async ({ world, faults: _faults }) => {
  const { page, platform } = world;
  await page.goto(`${platform.url}/console/fleet/gpus`);
  const out = page.locator('.rows > li', { hasText: gpuUuid(1) });
  await out.getByRole('button', { name: /^Exclude/ }).click({ timeout: SEEN_MS });
  await page.getByText('The same in a terminal').click();
  await sees(page.getByText(/longshore machine gpu exclude \S+ GPU-/));
  await page.getByRole('button', { name: 'Exclude it' }).click();
  await sees(page.getByRole('dialog').getByText('given to nobody'));
  await page.getByRole('button', { name: 'Close' }).click();
  await sees(out.locator('.state', { hasText: 'excluded' }));
  await sees(out.getByRole('button', { name: /^Return/ }));
});

test('job 15: who waits for capacity, and why', async ({ world, faults: _faults }) => {
  const { page, platform } = world;
  await platform.deploy({
    app: 'failing.py',
    handler: 'hello',
    name: 'wide',
    gpu: 'H100',
    gpuCount: 2,
    autoscaler: { type: 'queue_depth', minContainers: 2, maxContainers: 2, tasksPerContainer: 1 },
  });
  const { click, count } = await story(world);
  await click(screen(page, 'Waiting'));
  const group = page.locator('.rows > li', { hasText: 'wide' });
  await sees(group.getByText('×2 2×H100'));
  await sees(group.getByText(/without enough free GPUs/));
  await sees(group.getByText(/gives up in/));
  expect(count()).toBe(1);
});

test('job 16: drain a machine, and see what is left there', async ({ world, faults: _faults }) => {
  const { page, simulated } = world;
  const { click, count } = await story(world);
  await click(screen(page, 'Machines'));
  const machine = page.locator('.rows > li', { hasText: simulated.machineId });
  await click(machine.getByRole('button', { name: /^Drain/ }));
  await click(page.getByRole('button', { name: 'Drain it' }));
  expect(count()).toBe(3);
  await sees(page.getByRole('dialog').getByText('It drains'));
  await sees(machine.getByText(/Drains: |Drained: /));
  await page.getByRole('button', { name: 'Close' }).click();
  await machine.getByRole('button', { name: /^Stop draining/ }).click();
  await page.getByRole('button', { name: 'Let it serve again' }).click();
  await page.getByRole('button', { name: 'Close' }).click();
  await sees(machine.getByText('available'));
});

test('job 17: a workspace, its limits and its token for a new team', async ({ world, faults: _faults }) => {
  const { page, platform } = world;
  const { click, count } = await story(world);
  await click(screen(page, 'Workspaces'));
  await page.getByRole('textbox', { name: 'Name' }).fill('new team');
  await page.getByLabel('GPUs at most').fill('4');
  await click(page.getByRole('button', { name: 'Make it' }));
  const shown = page.getByRole('status').filter({ hasText: 'shown only here' });
  const token = await shown.locator('code').textContent({ timeout: SEEN_MS });
  expect(count()).toBeLessThanOrEqual(4);
  const session = jsonOf<{ readonly workspace: { readonly id: string; readonly name: string } }>(
    await platform.call('/api/v1/session', { token: token ?? '' }),
  );
  expect(session.workspace.name).toBe('new team');
  const limits = await platform.call(`/api/v1/workspace/${session.workspace.id}/limits`);
  expect(jsonOf(limits)).toMatchObject({ concurrency: { gpu_limit: 4 } });
  await sees(page.locator('.rows > li', { hasText: '4 GPUs at most' }));
  // The token is in no storage, and gone with the screen.
  expect(JSON.stringify(await page.evaluate('Object.entries(localStorage)'))).not.toContain(token ?? '');
});

test('job 18: what changed before it broke', async ({ world, faults: _faults }) => {
  const { page } = world;
  const { click, count } = await story(world);
  await click(screen(page, 'Audit'));
  await sees(page.locator('.rows > li', { hasText: 'workspace.created' }).getByText('new team'));
  await sees(page.locator('.rows > li', { hasText: 'console' }));
  expect(count()).toBe(1);
  await page.getByLabel('What').fill('machine.drained');
  await page.locator('.rows > li', { hasText: 'workspace.created' }).waitFor({ state: 'detached', timeout: SEEN_MS });
  await sees(page.locator('.rows > li', { hasText: 'machine.drained' }));
});

test('a new machine gets the command that joins it', async ({ world, faults: _faults }) => {
  const { page, platform } = world;
  await page.goto(`${platform.url}/console/fleet/machines`);
  await page.getByRole('button', { name: 'Make its join command' }).click({ timeout: SEEN_MS });
  await sees(page.getByText(/LONGSHORE_JOIN_TOKEN=\S+ longshore agent/));
  await page.goto(`${platform.url}/console/fleet/pools`);
  await sees(page.locator('.rows > li', { hasText: 'big' }).getByText(/machines ready/));
});

test('screens fit a narrow window, in light and dark, and axe finds no fault', async ({ world, faults: _faults }) => {
  const { page, platform } = world;
  const at = (path: string): string => `${platform.url}/console/fleet/${path}`;
  const screens: readonly (readonly [string, Locator])[] = [
    [at('gpus'), page.getByRole('gridcell')],
    [at('gpus?view=table'), page.getByRole('columnheader', { name: 'Standing' })],
    [at('machines'), page.getByRole('button', { name: /^Drain/ })],
    [at(`machines/${world.simulated.machineId}`), page.getByText('kernel')],
    [at('waiting'), page.getByText(/gives up in/)],
    [at('pools'), page.getByText(/machines ready/)],
    [at('workspaces'), page.getByText('4 GPUs at most')],
    [at('alerts'), page.getByText('longshore alerts')],
    [at('audit'), page.locator('.rows > li')],
  ];
  for (const [width, height] of [
    [360, 740],
    [1280, 800],
  ] as const) {
    await page.setViewportSize({ width, height });
    for (const [url, ready] of screens) {
      await page.goto(url);
      await sees(ready);
      expect([url, await page.evaluate('document.documentElement.scrollWidth')]).toEqual([url, width]);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        expect([url, width, colorScheme, await axe(page)]).toEqual([url, width, colorScheme, []]);
      }
    }
  }
});

test('who is no administrator sees no fleet, and no request is refused', async ({ world, faults: _faults }) => {
  const { page, platform } = world;
  const made = jsonOf<{ readonly token: string }>(
    await platform.call('/api/v1/workspace', { body: { name: 'plain' } }),
  );
  const link = await platform.call('/api/v1/console/link', { method: 'POST', token: made.token });
  const context = await page.context().browser()?.newContext();
  if (context === undefined) throw new Error('no browser');
  const other = await context.newPage();
  const refused: string[] = [];
  other.on('response', (answer) => {
    if (answer.status() === 401) refused.push(answer.url());
  });
  await other.goto(jsonOf<{ readonly url: string }>(link).url);
  await sees(other.getByRole('heading', { name: 'Overview' }));
  expect(await other.getByRole('navigation', { name: 'Fleet' }).count()).toBe(0);
  await other.goto(`${platform.url}/console/fleet/gpus`);
  await sees(other.getByText('are for administrators'));
  expect(refused).toEqual([]);
  await context.close();
});
