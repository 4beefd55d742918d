// Pictures of the web console for README.md and docs/console.md, in light and dark, taken of a real Longshore with
// sample applications and simulated GPUs: `npm run pictures`.
import { mkdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { expect } from 'vitest';
import { writeConsoleIfStale } from '../helpers/built-console.ts';
import { linkOf, sees, test } from '../helpers/console-stories.ts';
import { ROOT } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { SimulatedAgent } from '../helpers/simulated-agent.ts';
import { waitFor } from '../helpers/services.ts';

const FOLDER = join(ROOT, 'docs', 'pictures');
const MOST_BYTES = 1_500_000;
const GIB = 1024 ** 3;
const APP = { app: 'failing.py' };
const exactly = (count: number) => ({
  type: 'queue_depth',
  minContainers: count,
  maxContainers: count,
  tasksPerContainer: 1,
});

const gpusOf = (model: string, gib: number, from: number) =>
  Array.from({ length: 8 }, (_, index) => ({
    uuid: `GPU-${model.toLowerCase()}-${from + index}`,
    index,
    model,
    memoryBytes: gib * GIB,
    state: 'healthy' as const,
  }));

async function aMachine(platform: Platform, poolName: string, model: string, gib: number): Promise<SimulatedAgent> {
  const made = await platform.gateway<Record<string, unknown>>('/machines', { poolName });
  const machine = new SimulatedAgent({
    addresses: () => [platform.agentAddress],
    joinToken: String(made['agentUpstreamToken']),
    gpus: gpusOf(model, gib, 0),
  });
  await machine.start();
  return machine;
}

/** Applications that run on the agent's machine. @returns a task that failed */
async function withoutGpus(platform: Platform): Promise<string> {
  const embed = await platform.deploy({ ...APP, handler: 'echo', name: 'embed', keepWarmSeconds: 600 });
  const ocr = await platform.deploy({ ...APP, handler: 'raises', name: 'ocr', keepInputs: true, keepWarmSeconds: 600 });
  const says = await platform.deploy({ app: 'printing.py', handler: 'count', name: 'train', keepWarmSeconds: 600 });
  for (let call = 0; call < 40; call += 1) await platform.invoke(embed, { text: `text ${call}` });
  const failed = await platform.invoke(ocr, { key: 'page-7.png' });
  await platform.taskIs(failed.taskId, 'ERROR');
  await platform.invoke(says, { lines: 30 });
  const web = { app: 'paced_model.py', handler: 'app', name: 'chat', stubType: 'asgi/deployment' };
  const chat = await platform.deploy({ ...web, concurrentRequests: 20, keepWarmSeconds: 600, autoscaler: exactly(1) });
  await waitFor(async () => (await platform.containers(chat)).length > 0, 'chat runs', 60_000);
  const body = { id: 'acme/chat', type: 'chat', backends: [{ kind: 'deployment', deployment: 'chat' }] };
  expect((await platform.call(`/api/v1/model/${platform.workspaceId}`, { body })).status).toBe(201);
  return failed.taskId;
}

/** Applications on simulated GPUs: all but the last get theirs. */
async function withGpus(platform: Platform): Promise<void> {
  const wants = [
    ['diffusion', 'A100', 1, 3],
    ['llama', 'H100', 2, 2],
    ['whisper', 'H100', 1, 3],
    ['llama-next', 'H100', 2, 2],
  ] as const;
  for (const [name, gpu, gpuCount, containers] of wants)
    await platform.deploy({ ...APP, handler: 'hello', name, gpu, gpuCount, autoscaler: exactly(containers) });
}

async function take(page: Page, name: string): Promise<void> {
  await page.locator('.skeleton').waitFor({ state: 'detached' });
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.screenshot({ path: join(FOLDER, `${name}-${colorScheme}.png`) });
  }
}

test('pictures of the main screens', async ({ platform, page, faults: _faults }) => {
  await writeConsoleIfStale();
  const taskId = await withoutGpus(platform);
  const machines = [await aMachine(platform, 'h100', 'H100', 80), await aMachine(platform, 'a100', 'A100', 40)];
  try {
    await withGpus(platform);
    await waitFor(() => machines.every(({ running }) => running.length > 0), 'GPUs are leased', 60_000);
    for (const [at, machine] of machines.entries())
      machine.sampleDevices(
        gpusOf(at === 0 ? 'H100' : 'A100', at === 0 ? 80 : 40, 0).map(({ uuid }, index) => ({
          uuid,
          utilizationPermille: index < 5 ? 610 + 40 * index : 0,
          memoryUsedBytes: index < 5 ? 34 * GIB : 0,
          powerWatts: index < 5 ? 480 : 70,
          temperatureCelsius: index < 5 ? 63 : 31,
        })),
      );
    rmSync(FOLDER, { recursive: true, force: true });
    mkdirSync(FOLDER, { recursive: true });
    await page.setViewportSize({ width: 1280, height: 760 });
    await page.goto(await linkOf(platform));
    await sees(page.locator('.rows > li', { hasText: 'llama-next' }));
    const home = page.url();
    await take(page, 'overview');
    const screens: readonly (readonly [string, string, string])[] = [
      ['deployment', `${home}/d/embed`, 'Versions'],
      ['task', `${home}/tasks/${taskId}`, 'longshore explain'],
      ['logs', `${home}/logs?name=train`, 'line 3'],
      ['gpus', `${platform.url}/console/fleet/gpus`, 'leased'],
      ['waiting', `${platform.url}/console/fleet/waiting`, 'llama-next'],
    ];
    for (const [name, url, text] of screens) {
      await page.goto(url);
      await sees(page.locator('main').getByText(text));
      await take(page, name);
    }
    await page.goto(`${home}/playground`);
    await page.getByLabel('Message', { exact: true }).fill('{"tokens": 24, "pause_ms": 5}');
    await page.keyboard.press('Enter');
    await sees(page.getByLabel('Conversation').getByText('word24'));
    await take(page, 'playground');
  } finally {
    for (const machine of machines) await machine.stop();
  }
  const names = ['overview', 'deployment', 'task', 'logs', 'gpus', 'waiting', 'playground'];
  const bytes = names.flatMap((name) =>
    ['light', 'dark'].map((colours) => statSync(join(FOLDER, `${name}-${colours}.png`)).size),
  );
  expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(MOST_BYTES);
});
