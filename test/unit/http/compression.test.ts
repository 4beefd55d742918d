// Compression of WebSockets: turns of workspaces, with real sockets and callers that send what they like.
import { once } from 'node:events';
import type { WebSocket } from 'ws';
import { afterEach, describe, expect, test } from 'vitest';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { AT_ONCE, CompressionTurns } from '#scheduler/api/http/streams/compression-turns.ts';
import { compressionOf } from '#scheduler/api/http/streams/compression.ts';
import { bridged } from '../../helpers/bridged.ts';
import type { BridgedOptions } from '../../helpers/bridged.ts';
import { waitFor } from '../../helpers/programs.ts';
import { BINARY, frame, squeezed } from '../../helpers/raw-websocket.ts';

type Bridged = Awaited<ReturnType<typeof bridged>>;
const open: Bridged[] = [];
afterEach(() => {
  for (const one of open.splice(0)) one.close();
});

async function connect(options: BridgedOptions): Promise<Bridged> {
  const one = await bridged(options);
  one.runner.go();
  open.push(one);
  return one;
}

describe('turns', () => {
  /** Adds works that end when they are told to. @returns the order in which they began */
  function aQueue() {
    const turns = new CompressionTurns();
    const begun: string[] = [];
    const ends = new Map<string, () => void>();
    const add = (workspaceId: string, name: string): void =>
      turns.add(workspaceId as WorkspaceId, (done) => {
        begun.push(name);
        ends.set(name, done);
      });
    return { turns, begun, add, end: (name: string) => ends.get(name)?.() };
  }

  test('a workspace alone leaves one place to the others', () => {
    const { begun, add, end } = aQueue();
    for (const name of ['a1', 'a2', 'a3', 'a4', 'a5']) add('a', name);
    expect(begun).toEqual(['a1', 'a2', 'a3']);
    add('b', 'b1');
    expect(begun.at(-1)).toBe('b1');
    end('b1');
    expect(begun).toHaveLength(4);
    end('a2');
    expect(begun.at(-1)).toBe('a4');
  });

  test('workspaces that wait begin one after the other, however much each has waiting', () => {
    const { turns, begun, add, end } = aQueue();
    for (const name of ['a1', 'a2', 'a3', 'a4', 'a5', 'a6']) add('a', name);
    for (const name of ['b1', 'b2', 'b3']) add('b', name);
    for (const name of ['c1', 'c2']) add('c', name);
    expect(begun).toEqual(['a1', 'a2', 'a3', 'b1']);
    for (let at = 0; at < begun.length; at += 1) end(begun[at] ?? '');
    expect(begun).toHaveLength(11);
    expect(begun.slice(4, 7).map((name) => name[0])).toEqual(['a', 'b', 'c']);
    expect(turns.workspaces).toBe(0);
  });
});

test('the compression of a connection is where it is looked for, and nowhere without', async () => {
  const [one, plain] = [await connect({}), await connect({ isPlain: true })];
  expect(compressionOf(one.client)).toBeDefined();
  expect(compressionOf(plain.client)).toBeUndefined();
  const changed = { extensions: 'permessage-deflate' } as WebSocket;
  expect(() => compressionOf(changed)).toThrow('ws');
});

test('large messages of a workspace do not hold up another’s', async () => {
  const turns = new CompressionTurns();
  const large = frame(BINARY, squeezed(Buffer.alloc(8 * 1024 * 1024)), { rsv: 4 });
  const small = frame(BINARY, squeezed(Buffer.alloc(2048)), { rsv: 4 });
  const many: Bridged[] = [];
  for (let made = 0; made < 30; made += 1) many.push(await connect({ turns, workspaceId: 'many' }));
  const other = await connect({ turns, workspaceId: 'other' });
  // The library takes the mask away in place, so each gets bytes of its own.
  for (const one of many) one.readAtOnce(Buffer.from(large));
  await new Promise((resolve) => setImmediate(resolve));
  other.readAtOnce(small);
  const passed = (): number => many.filter(({ runner }) => runner.taken > 0).length;
  const [count] = await Promise.race([
    waitFor(() => other.runner.taken > 0, 'the small message is there').then(() => [passed()]),
    once(other.client, 'close').then(() => [-1]),
  ]);
  expect(count).toBeGreaterThanOrEqual(0);
  expect(count).toBeLessThan(2 * AT_ONCE);
  await waitFor(() => passed() === many.length && turns.workspaces === 0, 'all are there', 20_000);
});
