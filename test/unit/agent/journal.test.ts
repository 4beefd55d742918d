import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { test as base } from 'vitest';
import { sha256Hex } from '../../../shared/domain/ids.ts';
import type { RuntimeContainer } from '../../../agent/containers/runtime.ts';
import { LABELS } from '../../../agent/containers/runtime.ts';
import type { JournalEntry } from '../../../agent/reconcile/journal.ts';
import { Journal } from '../../../agent/reconcile/journal.ts';
import { factsLabel, lostEntries } from '../../../agent/reconcile/rebuild.ts';
import { shortIdOf } from '../../../agent/containers/spec.ts';

const test = base.extend<{ path: string }>({
  // oxlint-disable-next-line no-empty-pattern -- vitest reads a fixture's needs from its pattern
  path: async ({}, use) => {
    const directory = await mkdtemp(join(tmpdir(), 'ls-journal-'));
    await use(join(directory, 'journal.json'));
    await rm(directory, { recursive: true });
  },
});

const anEntry = (containerId: string, changes: Partial<JournalEntry> = {}): JournalEntry => ({
  containerId,
  assignmentId: `a-${containerId}`,
  epoch: 3,
  stage: 'created',
  shortId: shortIdOf(containerId, 3),
  image: 'python:3.11-slim',
  codeSha256: 'c0de',
  deploymentId: 'dep-1',
  workers: 2,
  concurrentRequests: 1,
  timeoutMs: 1000,
  startTimeoutMs: 60_000,
  stopAfterDisconnectMs: 0,
  secretNames: [],
  bootId: 'boot-1',
  cpuMillicores: 1000,
  memoryBytes: 1 << 28,
  gpuUuids: ['GPU-1'],
  kind: 'endpoint',
  dockerId: `d-${containerId}`,
  startedAtMs: 5,
  ...changes,
});
const container = (entry: JournalEntry, changes: Partial<RuntimeContainer> = {}): RuntimeContainer => ({
  dockerId: entry.dockerId ?? '',
  name: `c-${entry.containerId}`,
  labels: {
    [LABELS.container]: entry.containerId,
    [LABELS.assignment]: entry.assignmentId,
    [LABELS.epoch]: String(entry.epoch),
    [LABELS.deployment]: entry.deploymentId,
    [LABELS.facts]: factsLabel(entry),
  },
  state: 'running',
  exitCode: 0,
  oomKilled: false,
  startedAtMs: 5,
  finishedAtMs: 0,
  error: '',
  network: '',
  gpuUuids: entry.gpuUuids,
  ...changes,
});

test('a journal cut at any byte, or with any byte changed, is read whole or set aside: never in part, never a crash', async ({
  path,
}) => {
  const written = new Journal(path);
  const entries = [anEntry('c-1'), anEntry('c-2', { stage: 'gone' })];
  for (const entry of entries) await written.put(entry);
  const whole = await readFile(path);
  let setAside = 0;
  const read = async (bytes: Buffer): Promise<readonly JournalEntry[] | 'aside'> => {
    await writeFile(path, bytes);
    let errors = 0;
    const journal = new Journal(path, () => (errors += 1));
    const aside = await journal.open();
    expect(errors).toBe(aside === undefined ? 0 : 1);
    if (aside === undefined) return [...journal.all()];
    expect([...journal.all()]).toEqual([]);
    expect(await readFile(aside)).toEqual(bytes);
    // The journal can be written again at once. A write waits for the disk, so the test writes only now and then.
    if (setAside++ % 50 === 0) await journal.put(anEntry('c-4'));
    return 'aside';
  };
  expect(await read(whole)).toEqual(entries);
  for (let length = 0; length < whole.length; length += 1)
    expect(await read(whole.subarray(0, length)), `cut at ${length}`).toBe('aside');
  for (let at = 0; at < whole.length; at += 1) {
    const changed = Buffer.from(whole);
    changed.writeUInt8(whole.readUInt8(at) ^ 0x01, at);
    expect(await read(changed), `byte ${at} changed`).toBe('aside');
  }
}, 60_000);

test('a journal of a newer version ends the start with what to do', async ({ path }) => {
  await writeFile(path, JSON.stringify({ version: 2, sha256: sha256Hex('2 {}'), entries: {} }));
  await expect(new Journal(path).open()).rejects.toMatchObject({ code: 'state_too_new' });
  expect((await stat(path)).size).toBeGreaterThan(0);
});

test('what the journal lost is taken from the containers themselves, with what they hold', () => {
  const entry = anEntry('c-1');
  expect(lostEntries([container(entry)], () => undefined)).toEqual([entry]);
  expect(lostEntries([container(entry)], () => entry)).toEqual([]);
  // The container was made and never started, so it has to be made anew.
  expect(lostEntries([container(entry, { state: 'created' })], () => undefined)).toMatchObject([{ stage: 'creating' }]);
});

test('the newest epoch counts, and a label that says nothing is no entry', () => {
  const older = anEntry('c-1', { epoch: 2 });
  const newer = anEntry('c-1');
  for (const order of [
    [older, newer],
    [newer, older],
  ])
    expect(
      lostEntries(
        order.map((one) => container(one)),
        () => undefined,
      ),
    ).toMatchObject([{ epoch: 3 }]);
  expect(lostEntries([container(newer)], () => older)).toMatchObject([{ epoch: 3 }]);
  expect(lostEntries([container(older)], () => newer)).toEqual([]);
  const labels = container(newer).labels;
  for (const facts of ['', '{', '{}', 'null', '{"image":1}'])
    expect(lostEntries([container(newer, { labels: { ...labels, [LABELS.facts]: facts } })], () => undefined)).toEqual(
      [],
    );
});
