/* oxlint-disable no-empty-pattern */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createLog } from '#shared/log.ts';
import { afterSilence, DisconnectWatch } from '#agent/reconcile/disconnect.ts';
import type { JournalEntry } from '#agent/reconcile/journal.ts';
import { Contact } from '#agent/upstream/contact.ts';

const log = createLog({ name: 'test', level: 'silent' });
const BOOT = 'boot-1';

const anEntry = (changes: Partial<JournalEntry> = {}): JournalEntry => ({
  containerId: 'exclusive',
  assignmentId: 'a',
  epoch: 1,
  stage: 'created',
  shortId: 's',
  image: 'i',
  codeSha256: '',
  deploymentId: '',
  workers: 1,
  concurrentRequests: 1,
  timeoutMs: 0,
  startTimeoutMs: 0,
  stopAfterDisconnectMs: 300_000,
  secretNames: [],
  bootId: BOOT,
  cpuMillicores: 1000,
  memoryBytes: 1 << 28,
  gpuUuids: [],
  kind: 'endpoint',
  ...changes,
});
const exit = { exitCode: 0, oomKilled: false, reason: 'completed', message: '', finishedAtMs: 1 };

describe('a silence', () => {
  test('ends what asks for it when its time has come, and nothing else', () => {
    const entries = [
      anEntry({ containerId: 'at-five-minutes' }),
      anEntry({ containerId: 'still-starting', stage: 'accepted' }),
      anEntry({ containerId: 'at-ten', stopAfterDisconnectMs: 600_000 }),
      anEntry({ containerId: 'runs-on', stopAfterDisconnectMs: 0 }),
      anEntry({ containerId: 'gone', stage: 'gone' }),
      anEntry({ containerId: 'exited', exit }),
      anEntry({ containerId: 'before-the-boot', bootId: 'boot-0' }),
    ];
    expect(afterSilence(entries, BOOT, 299_999).end).toEqual([]);
    expect(afterSilence(entries, BOOT, 300_000).end).toEqual(['at-five-minutes', 'still-starting']);
    expect(afterSilence(entries, BOOT, 1e9).end).toEqual(['at-five-minutes', 'still-starting', 'at-ten']);
  });

  test('of a third of the time asks for a sign of the scheduler', () => {
    expect(afterSilence([anEntry()], BOOT, 99_999).ask).toBe(false);
    expect(afterSilence([anEntry()], BOOT, 100_000).ask).toBe(true);
    expect(afterSilence([anEntry({ stopAfterDisconnectMs: 0 })], BOOT, 1e9).ask).toBe(false);
  });
});

class Ground {
  nowMs = 1_000_000;
  readonly path: string;
  readonly ended: string[] = [];
  readonly contacts: Contact[] = [];
  asked = 0;

  constructor(directory: string) {
    this.path = join(directory, 'contact.json');
  }

  async contact(bootId = BOOT): Promise<Contact> {
    const contact = new Contact({ path: this.path, bootId, log, nowMs: () => this.nowMs });
    await contact.open();
    this.contacts.push(contact);
    return contact;
  }

  watch(contact: Contact, entries: readonly JournalEntry[]): DisconnectWatch {
    return new DisconnectWatch({
      entries: () => entries,
      bootId: BOOT,
      contact,
      isEnding: (containerId) => this.ended.includes(containerId),
      end: (containerId, reason) => void (reason === 'disconnected' && this.ended.push(containerId)),
      ask: () => void (this.asked += 1),
      log,
    });
  }
}

const grounded = test.extend('ground', async ({}, { onCleanup }): Promise<Ground> => {
  const directory = await mkdtemp(join(tmpdir(), 'ls-contact-'));
  const ground = new Ground(directory);
  onCleanup(async () => {
    await Promise.all(ground.contacts.map((contact) => contact.close()));
    await rm(directory, { recursive: true });
  });
  return ground;
});

describe('the last contact', () => {
  grounded('is when the message was sent that was answered, not when the answer came', async ({ ground }) => {
    const contact = await ground.contact();
    const answered = contact.asking();
    ground.nowMs += 4_000;
    answered();
    expect(contact.silentMs()).toBe(4_000);
  });

  grounded('is not set back by an answer that was long on its way', async ({ ground }) => {
    const contact = await ground.contact();
    const slow = contact.asking();
    ground.nowMs += 10_000;
    contact.asking()();
    slow();
    expect(contact.silentMs()).toBe(0);
  });

  grounded('outlives the agent process: the next one counts on from there', async ({ ground }) => {
    const contact = await ground.contact();
    contact.asking()();
    await contact.close();
    ground.nowMs += 290_000;
    const next = await ground.contact();
    expect(next.silentMs()).toBe(290_000);
  });

  grounded('of another boot, unreadable, or from the future counts as none since the boot', async ({ ground }) => {
    const contact = await ground.contact();
    contact.asking()();
    await contact.close();
    expect((await ground.contact('boot-2')).silentMs()).toBe(ground.nowMs);
    const text = await readFile(ground.path, 'utf8');
    await writeFile(ground.path, text.slice(0, 12));
    expect((await ground.contact()).silentMs()).toBe(ground.nowMs);
    await writeFile(ground.path, JSON.stringify({ bootId: BOOT, answeredMs: ground.nowMs + 1 }));
    expect((await ground.contact()).silentMs()).toBe(ground.nowMs);
  });
});

describe('the watch', () => {
  grounded(
    'ends a container once, five minutes after the last contact, and an answer before that spares it',
    async ({ ground }) => {
      const contact = await ground.contact();
      const watch = ground.watch(contact, [anEntry()]);
      contact.asking()();
      ground.nowMs += 299_000;
      watch.check();
      expect([ground.ended, ground.asked]).toEqual([[], 1]);
      contact.asking()();
      ground.nowMs += 2_000;
      watch.check();
      expect([ground.ended, ground.asked]).toEqual([[], 1]);
      ground.nowMs += 298_000;
      watch.check();
      watch.check();
      expect(ground.ended).toEqual(['exclusive']);
    },
  );

  grounded('ends at the start what should have stopped while no agent ran', async ({ ground }) => {
    const contact = await ground.contact();
    contact.asking()();
    await contact.close();
    ground.nowMs += 301_000;
    const watch = ground.watch(await ground.contact(), [anEntry()]);
    watch.start();
    watch.stop();
    expect(ground.ended).toEqual(['exclusive']);
  });
});
