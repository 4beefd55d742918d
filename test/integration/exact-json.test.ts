// JSON of users through every kind and surface, byte by byte: a simulated handler gives back the input that it gets.
/* oxlint-disable no-empty-pattern */
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { membersOf } from '#shared/json-text.ts';
import { runCommand } from '../helpers/command-line.ts';
import { EXACT, EXACT_OBJECT } from '../helpers/exact-json.ts';
import { Receiver } from '../helpers/receiver.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import type { Replica } from '../helpers/replicas.ts';
import { test as base, waitFor } from '../helpers/services.ts';

interface World {
  readonly set: ReplicaSet;
  readonly replica: Replica;
  readonly receiver: Receiver;
  /** Inputs as handlers got them, in order. */
  readonly inputs: string[];
  /** Calls with a text as the body. @returns the text of the answer */
  readonly post: (path: string, body: string, headers?: Readonly<Record<string, string>>) => Promise<Answer>;
  readonly get: (path: string) => Promise<string>;
  readonly cli: (...args: readonly string[]) => Promise<string>;
}
interface Answer {
  readonly status: number;
  readonly text: string;
  readonly taskId: string;
}

const KINDS = ['endpoint', 'function', 'taskqueue'] as const;
/** A result beyond the bound of those that are kept in rows. */
const LARGE = `{"pad":"${'x'.repeat(400_000)}",${EXACT_OBJECT.slice(1)}`;

const test = base.extend('world', { scope: 'file' }, async ({ postgres, redis }, { onCleanup }): Promise<World> => {
  const receiver = await new Receiver().start();
  const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
  onCleanup(async () => {
    await set.stop();
    await receiver.stop();
  });
  const replica = await set.add();
  const inputs: string[] = [];
  await set.agent({
    handle: ({ input }) => {
      inputs.push(input);
      return input;
    },
  });
  for (const kind of KINDS) await set.deploy(replica, `same-${kind}`, { stubType: `${kind}/deployment` });
  const authorization = `Bearer ${set.token}`;
  return {
    set,
    replica,
    receiver,
    inputs,
    post: async (path, body, headers = {}) => {
      const answer = await fetch(`${replica.url}${path}`, {
        method: 'POST',
        headers: { authorization, 'content-type': 'application/json', ...headers },
        body,
      });
      const text = await answer.text();
      const { task_id: taskId = '' } = text.startsWith('{"task_id"') ? (JSON.parse(text) as { task_id?: string }) : {};
      return { status: answer.status, text, taskId: answer.headers.get('x-task-id') ?? taskId };
    },
    get: async (path) => (await fetch(`${replica.url}${path}`, { headers: { authorization } })).text(),
    cli: async (...args) => {
      const ended = await runCommand(args, {
        LONGSHORE_URL: replica.url,
        LONGSHORE_TOKEN: set.token,
        LONGSHORE_CONTEXT_FILE: join(set.directory, 'contexts.json'),
      });
      expect([ended.code, ended.stderr]).toEqual([0, expect.any(String)]);
      return ended.stdout;
    },
  };
});

/** The text of a member of an object. */
const member = (text: string, name: string): string | undefined => {
  const found = membersOf(text).findLast((one) => one.name === name);
  return found && text.slice(found.valueFrom, found.to);
};

/** The record's result once the task is over. */
async function resultOf({ set, get }: World, taskId: string): Promise<string | undefined> {
  const path = `/api/v1/task/${set.workspaceId}/${taskId}`;
  const record = await waitFor(
    async () => {
      const text = await get(path);
      return member(text, 'status') === '"COMPLETE"' && text;
    },
    'the task is over',
    30_000,
  );
  return member(record, 'result');
}

/** Text without the white space between tokens; the texts here have none within tokens. */
const compact = (text: string): string => text.replaceAll(/[ \n]/g, '');

describe('a call of each kind', () => {
  test.for(KINDS)(
    'gives the bytes of its input to the handler, and of the result to every reader: %s',
    async (kind, { world }) => {
      const { set, inputs, post, get } = world;
      for (const sent of [
        EXACT_OBJECT,
        ...EXACT.filter((text) => text.startsWith('{')),
        ` { "a" :\r\n 1.0 }\n`,
        LARGE,
      ]) {
        const answer = await post(`/${kind}/same-${kind}`, sent);
        expect(answer.status).toBe(200);
        if (kind === 'endpoint') expect(answer.text).toBe(sent);
        expect(await resultOf(world, answer.taskId)).toBe(sent.trim());
        expect(inputs.at(-1)).toBe(sent);
        const events = await get(`/api/v1/task/${set.workspaceId}/${answer.taskId}/subscribe`);
        const data = events.split('\n').flatMap((line) => (line.startsWith('data: ') ? [line.slice(6)] : []));
        // White space between tokens may end a line of an event, whichever sign of an end it has.
        expect(member(data.join('\n'), 'result')?.replaceAll('\r', '')).toBe(sent.trim().replaceAll('\r', ''));
      }
    },
  );

  test('in one request with many, and with a key', async ({ world }) => {
    const texts = EXACT.filter((text) => text.startsWith('{'));
    const many = await world.post('/taskqueue/same-taskqueue', texts.join('\n'), {
      'content-type': 'application/x-ndjson',
    });
    const { task_ids: ids } = JSON.parse(many.text) as { readonly task_ids: readonly string[] };
    expect(await Promise.all(ids.map((id) => resultOf(world, id)))).toEqual(texts);
    const headers = { 'idempotency-key': 'exact' };
    for (let times = 0; times < 2; times++)
      expect((await world.post('/endpoint/same-endpoint', EXACT_OBJECT, headers)).text).toBe(EXACT_OBJECT);
  });

  test('tells its callback the bytes of the result, small or large', async ({ world }) => {
    const { receiver, post } = world;
    const address = `"callback_url":"${receiver.url('/called')}"`;
    for (const kind of KINDS)
      for (const text of [EXACT_OBJECT, LARGE]) {
        const before = receiver.requests.length;
        const sent = `{${address},${text.slice(1)}`;
        await post(`/${kind}/same-${kind}`, sent);
        await waitFor(() => receiver.requests.length > before, 'the callback comes', 30_000);
        expect(receiver.requests.at(-1)?.body).toBe(`{"data":${sent}}`);
      }
  });
});

describe('the command line', () => {
  test('calls with the bytes it was given, and prints those of the answer', async ({ world }) => {
    const { cli, inputs } = world;
    for (const kind of ['endpoint', 'taskqueue'] as const) {
      const printed = await cli('invoke', `same-${kind}`, '--kind', kind, '--data', EXACT_OBJECT);
      if (kind === 'endpoint') expect(printed).toBe(`${EXACT_OBJECT}\n`);
      await waitFor(() => inputs.at(-1) === EXACT_OBJECT, 'the handler has it', 30_000);
    }
    const json = await cli('invoke', 'same-endpoint', '--data', EXACT_OBJECT, '--json');
    expect(compact(member(json, 'body') ?? '')).toBe(compact(EXACT_OBJECT));
    expect(json).toContain('\n    "m": 10000000000000000000000000,\n');
  });

  test('shows the bytes of a result', async ({ world }) => {
    const { cli, post } = world;
    const { taskId } = await post('/function/same-function', EXACT_OBJECT);
    await resultOf(world, taskId);
    expect(await cli('task', 'get', taskId)).toContain(`\nresult:         ${EXACT_OBJECT}\n`);
    expect(compact(member(await cli('task', 'get', taskId, '--json'), 'result') ?? '')).toBe(compact(EXACT_OBJECT));
    expect(await cli('task', 'watch', taskId)).toContain(`\n${EXACT_OBJECT}\n`);
    const lines = (await cli('task', 'watch', taskId, '--json')).trimEnd().split('\n');
    expect(member(lines.at(-1) ?? '', 'result')).toBe(EXACT_OBJECT);
  });
});
