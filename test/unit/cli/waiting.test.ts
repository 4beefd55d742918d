import { expect, test } from 'vitest';
import type { Client } from '#cli/client.ts';
import { explainedTask, sayWhatItWaitsFor } from '#cli/commands/waiting.ts';

const SOON = { afterMs: 1, everyMs: 1 };
const starts = 'container c-1 of hello/v3 starts on machine m1';

/** An installation with one deployment, as far as its explanations go. */
function anInstallation(
  containers: readonly object[],
  more: { readonly state?: string; readonly scaling?: object } = {},
) {
  const { state = 'STARTING', scaling = {} } = more;
  const asked: string[] = [];
  const client = {
    gateway: () =>
      Promise.resolve({ deployments: [{ id: 'd-1', name: 'hello', stubType: 'endpoint/deployment', version: 3 }] }),
    workspaceId: () => Promise.resolve('w'),
    rest: (path: string) => {
      asked.push(path);
      return Promise.resolve(
        path === '/explain/w/d-1'
          ? {
              state,
              summary: 'hello v3 is busy',
              details: ['in its queue: 3 waiting'],
              scaling: { ...scaling, containers },
            }
          : { summary: starts, details: ['pulling image x: 1 of 5 layers'] },
      );
    },
  };
  return { client: client as unknown as Client, asked };
}

async function said(
  containers: readonly object[],
  reference = 'endpoint/hello',
  more: { readonly state?: string; readonly scaling?: object } = {},
): Promise<string[]> {
  const { client, asked } = anInstallation(containers, more);
  const lines: string[] = [];
  const over = new AbortController();
  const talking = sayWhatItWaitsFor(client, reference, (line) => lines.push(line), over.signal, SOON);
  await expect.poll(() => asked.length, { timeout: 10_000 }).toBeGreaterThan(6);
  over.abort();
  await talking;
  return lines;
}

test('a call that waits for a container says once how that starts', async () => {
  const containers = [
    { container_id: 'c-0', state: 'RUNNING' },
    { container_id: 'c-1', state: 'STARTING' },
  ];
  expect(await said(containers)).toEqual([`waiting: ${starts}; pulling image x: 1 of 5 layers`]);
});

test('one whose container waits for its image says how far the image is, and nothing else', async () => {
  const found = {
    kind: 'container',
    summary: starts,
    waits_for: 'its image',
    details: ['making the base image of Python 3.13: installing packages', 'starts that failed: 1'],
  };
  const client = {
    gateway: () => Promise.resolve({ containers: [{ containerId: 'c-1', stubId: 's', status: 'PENDING' }] }),
    workspaceId: () => Promise.resolve('w'),
    rest: () => Promise.resolve(found),
  } as unknown as Client;
  expect(await explainedTask(client, 't', 's')).toBe('making the base image of Python 3.13: installing packages');
});

test('one that waits for its turn says how long the line is', async () => {
  expect(await said([])).toEqual(['waiting: hello v3 is busy; in its queue: 3 waiting']);
});

test('one whose handler runs says so, and one behind it how many run', async () => {
  const one = { ready: 1, running: 1, waiting: 0, max_containers: 1 };
  const inOne = 'in 1 container, of 1 at most (`max_containers`)';
  const busy = (scaling: object) => said([], undefined, { state: 'BUSY', scaling });
  expect(await busy(one)).toEqual([`waiting: its handler runs: 1 call ${inOne}`]);
  expect(await busy({ ...one, waiting: 2 })).toEqual([`waiting: 2 calls wait for a free place: 1 call runs ${inOne}`]);
  expect(await busy({ ...one, running: 0 })).toEqual(['waiting: hello v3 is busy; in its queue: 3 waiting']);
});

test('one that is answered at once, or that nobody can explain, says nothing', async () => {
  const over = new AbortController();
  const lines: string[] = [];
  const talking = sayWhatItWaitsFor(anInstallation([]).client, 'hello', (line) => lines.push(line), over.signal);
  over.abort();
  await talking;
  const away = { gateway: () => (over2.abort(), Promise.reject(new Error('away'))) } as unknown as Client;
  const over2 = new AbortController();
  await sayWhatItWaitsFor(away, 'hello', (line) => lines.push(line), over2.signal, SOON);
  expect(lines).toEqual([]);
});

test('a task that has ended meanwhile is said to wait for nothing', async () => {
  const told = (state: string) =>
    explainedTask(
      {
        gateway: () => Promise.resolve({ containers: [] }),
        workspaceId: () => Promise.resolve('w'),
        rest: () => Promise.resolve({ kind: 'task', state, summary: `task t is ${state}`, details: [] }),
      } as unknown as Client,
      't',
      's',
    );
  expect(await told('PENDING')).toBe('task t is PENDING');
  expect(await told('COMPLETE')).toBe('');
});
