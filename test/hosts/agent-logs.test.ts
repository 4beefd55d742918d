// Lines of containers on their way: bounded, told once, without secrets, and never in the container's way.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { describe, expect } from 'vitest';
import type { ContainerSpec } from '#shared/protocol/generated/messages.ts';
import type { AgentWorld } from '../helpers/agent.ts';
import { agentWorld, zip } from '../helpers/agent.ts';
import { anAssignment } from '../helpers/agent-assignment.ts';
import { gated } from '../helpers/gated-agent.ts';
import { until } from '../helpers/fake-scheduler.ts';
import { test as base } from '../helpers/services.ts';

const test = base.extend('world', async ({ docker }, { onCleanup }): Promise<AgentWorld> => {
  const world = await agentWorld(docker.labels);
  onCleanup(() => world.end());
  await world.agent.start();
  await world.agent.connected;
  return world;
});

async function started(world: AgentWorld, source: string, spec: Partial<ContainerSpec> = {}): Promise<string> {
  const code = world.scheduler.addArchive(await zip({ 'app.py': source }));
  const assignment = anAssignment({ code, ...spec });
  world.scheduler.desire([assignment], { full: false });
  await world.scheduler.phase(assignment.containerId, 'running');
  return assignment.containerId;
}

/** A program that counts on the container's own output, past Python's. */
const COUNTING = `
import subprocess
subprocess.Popen(["sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo line $i; sleep 0.02; done"])
def handler():
    return 1
`;

test('a restart of the agent loses no line of a container that runs on, and tells none twice', async ({ world }) => {
  const { scheduler } = world;
  const containerId = await started(world, COUNTING);
  const numbers = (): number[] =>
    scheduler.records.flatMap((record) =>
      record.containerId === containerId ? Number(/^line (\d+)$/.exec(record.line)?.[1] ?? []) || [] : [],
    );
  await until('the first lines', () => numbers().length > 20);
  await world.agent.stop();
  const before = numbers().length;
  await world.restart();
  await until('lines after the restart', () => numbers().length > before + 40);
  const got = numbers();
  expect(got).toEqual(Array.from({ length: got.length }, (_, at) => at + 1));
});

test('lines without end are dropped with a marker and said as a condition, and the container is not held up', async ({
  world,
}) => {
  const { scheduler } = world;
  const containerId = await started(
    world,
    `
import subprocess
def handler():
    subprocess.run(["sh", "-c", "yes a line that nobody reads | head -n 60000"], check=True)
    print("the end")
    return "done"
`,
  );
  scheduler.run('flood', containerId, '');
  expect(JSON.parse((await scheduler.resultOf('flood')).whole.toString())).toBe('done');
  const lines = (): string[] =>
    scheduler.records.flatMap((record) => (record.containerId === containerId ? record.line : []));
  await until('the marker', () => lines().some((line) => /^\[longshore: \d+ lines dropped\]$/.test(line)));
  expect(lines().length).toBeLessThan(30_000);
  await until('the condition', () =>
    scheduler.heard.some(({ heartbeat }) => heartbeat?.conditions.includes('LogBackpressure')),
  );
});

test('values of secrets and the token of the container are hidden wherever they are printed, after a restart too', async ({
  world,
}) => {
  const { scheduler } = world;
  scheduler.secrets = { API_KEY: 'very-secret-value', PEM: 'first line of it\nsecond line of it' };
  scheduler.containerToken = 'token-of-the-container';
  const containerId = await started(
    world,
    `
import os
def handler(word):
    print(word, os.environ["API_KEY"], os.environ["LONGSHORE_TOKEN"])
    os.write(1, (word + " " + os.environ["PEM"] + "\\n").encode())
    return 1
`,
    { secretNames: ['API_KEY', 'PEM'] },
  );
  const saidAfter = async (word: string): Promise<string[]> => {
    scheduler.run(word, containerId, JSON.stringify({ word }));
    await scheduler.resultOf(word);
    return until('three lines', () => {
      const lines = scheduler.records.map(({ line }) => line);
      const from = lines.findIndex((line) => line.startsWith(`${word} `));
      return lines.filter((line) => line.includes('[redacted]')).length >= (word === 'one' ? 3 : 6) && from >= 0
        ? lines
        : undefined;
    });
  };
  await saidAfter('one');
  await world.agent.stop();
  await world.restart();
  await until('its attempts to be reported', () => scheduler.reports.length === 2);
  const lines = await saidAfter('two');
  expect(lines).toContain('one [redacted] [redacted]');
  expect(lines).toContain('two [redacted] [redacted]');
  for (const value of ['very-secret-value', 'token-of-the-container', 'line of it'])
    expect(lines.filter((line) => line.includes(value))).toEqual([]);
});

describe('an agent that takes containers up while the engine says nothing of their secrets', () => {
  const SOURCE =
    'import os\ndef handler(word):\n    print(word, os.environ.get("API_KEY", "nothing"))\n    return word\n';

  gated.for(['wait', 'cut'] as const)(
    '(its requests: %s) runs their tasks, and tells no line of theirs before',
    async (how, { gate, world }) => {
      const { scheduler } = world;
      scheduler.secrets = { API_KEY: 'very-secret-value' };
      const containerId = await started(world, SOURCE, { secretNames: ['API_KEY'] });
      await world.agent.stop();
      gate.shut(/^GET \/containers\/[0-9a-f]{64}\/json/, how);
      await world.restart();
      await until('its attempts to be reported', () => scheduler.reports.length === 2);
      scheduler.run('two', containerId, '{"word":"two"}');
      expect(JSON.parse((await scheduler.resultOf('two')).whole.toString())).toBe('two');
      await until('the engine to be asked', () => gate.met > 0);
      // Output of a container that starts now is read at once.
      scheduler.secrets = {};
      const other = await started(world, SOURCE);
      scheduler.run('three', other, '{"word":"three"}');
      await until('a line of another', () => scheduler.records.some(({ line }) => line === 'three nothing'));
      expect(scheduler.records.filter((record) => record.containerId === containerId)).toEqual([]);
      gate.open();
      await until('the line', () => scheduler.records.some(({ line }) => line === 'two [redacted]'));
      expect(scheduler.records.filter(({ line }) => line?.includes('very-secret-value'))).toEqual([]);
    },
  );

  gated(
    'ends none of theirs before either, and loses nothing of what it had printed',
    async ({ docker, gate, world }) => {
      const { scheduler } = world;
      scheduler.secrets = { API_KEY: 'very-secret-value' };
      const containerId = await started(world, SOURCE, { secretNames: ['API_KEY'] });
      await world.agent.stop();
      gate.shut(/^GET \/containers\/[0-9a-f]{64}\/json/, 'cut');
      await world.restart();
      await until('its attempts to be reported', () => scheduler.reports.length === 2);
      scheduler.run('two', containerId, '{"word":"two"}');
      await scheduler.resultOf('two');
      const [listed] = await docker.client.listContainers({
        filters: { label: [`io.longshore.container=${containerId}`] },
      });
      const met = gate.met;
      await docker.client.getContainer(listed?.Id ?? '').kill();
      await until('the engine to be asked again', () => gate.met > met);
      expect(await docker.client.getContainer(listed?.Id ?? '').inspect()).toMatchObject({ State: { Running: false } });
      gate.open();
      await scheduler.phase(containerId, 'removed');
      await until('the line', () => scheduler.records.some(({ line }) => line === 'two [redacted]'));
      expect(scheduler.records.filter(({ line }) => line?.includes('very-secret-value'))).toEqual([]);
    },
  );
});

test('secrets are hidden in what a container printed while no agent ran, though it has ended and the journal is lost', async ({
  world,
  docker,
}) => {
  const { scheduler } = world;
  scheduler.secrets = { API_KEY: 'very-secret-value' };
  const containerId = await started(world, 'def handler():\n    return 1\n', { secretNames: ['API_KEY'] });
  await world.agent.stop();
  const [listed] = await docker.client.listContainers({
    filters: { label: [`io.longshore.container=${containerId}`] },
  });
  const container = docker.client.getContainer(listed?.Id ?? '');
  const exec = await container.exec({ Cmd: ['sh', '-c', 'echo "key $API_KEY" > /proc/1/fd/1'], AttachStdout: true });
  await buffer(await exec.start({}));
  await container.kill();
  await writeFile(join(world.dataDir, 'agent', 'journal.json'), 'damaged');
  await world.restart();
  const line = await until('the line', () => scheduler.records.find((record) => record.line.startsWith('key ')));
  expect(line.line).toBe('key [redacted]');
});

test('what an exception quotes of a secret is neither in the reason that is reported nor in the journal', async ({
  world,
}) => {
  const { scheduler } = world;
  scheduler.secrets = { API_KEY: 'very-secret-value' };
  const source = 'import os\nraise RuntimeError("refused: " + os.environ["API_KEY"])\n';
  const code = scheduler.addArchive(await zip({ 'app.py': source }));
  const assignment = anAssignment({ code, secretNames: ['API_KEY'] });
  scheduler.desire([assignment], { full: false });
  const { message } = await scheduler.phase(assignment.containerId, 'removed');
  expect(message).toContain('refused: [redacted]');
  expect(await readFile(join(world.dataDir, 'agent', 'journal.json'), 'utf8')).not.toContain('very-secret-value');
});
