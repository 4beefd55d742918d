// Bounds on messages of WebSockets that the scheduler holds, with real sockets and callers that send what they like.
import { once } from 'node:events';
import { afterEach, describe, expect, test } from 'vitest';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import { MessageRoom, MessageShare } from '#scheduler/api/http/streams/message-room.ts';
import { MAX_MESSAGE_BYTES } from '#scheduler/api/http/streams/websockets.ts';
import { bridged } from '../../helpers/bridged.ts';
import type { BridgedOptions } from '../../helpers/bridged.ts';
import { waitFor } from '../../helpers/programs.ts';
import { BINARY, CONTINUATION, PING, PONG, frame, squeezed } from '../../helpers/raw-websocket.ts';

const MIB = 1024 * 1024;

/** Remembers the most that was held. */
class WatchedRoom extends MessageRoom {
  mostBytes = 0;

  override change(workspaceId: WorkspaceId, delta: number) {
    const full = super.change(workspaceId, delta);
    this.mostBytes = Math.max(this.mostBytes, this.heldBytes);
    return full;
  }
}

type Bridged = Awaited<ReturnType<typeof bridged>>;
const open: Bridged[] = [];
afterEach(() => {
  for (const one of open.splice(0)) one.close();
});

async function connect(options: BridgedOptions): Promise<Bridged> {
  const one = await bridged(options);
  open.push(one);
  return one;
}

/** A compressed message of the largest size, in some 16 KiB: three come in one read. */
const BOMB = frame(BINARY, squeezed(Buffer.alloc(MAX_MESSAGE_BYTES)), { rsv: 4 });
const part = (bytes: number): Buffer => frame(BINARY, Buffer.alloc(bytes), { fin: false });
const rest = (bytes: number): Buffer => frame(CONTINUATION, Buffer.alloc(bytes));
const middle = (bytes: number): Buffer => frame(CONTINUATION, Buffer.alloc(bytes), { fin: false });

const holds = (room: MessageRoom, bytes: number): Promise<unknown> =>
  waitFor(() => room.heldBytes >= bytes && room.heldBytes < bytes + MIB, `${bytes} bytes are held`);
const holdsNothing = (room: MessageRoom): Promise<unknown> =>
  waitFor(() => room.heldBytes === 0 && room.workspaces === 0, 'nothing is held');

const closed = async ({ client }: Bridged): Promise<number> => ((await once(client, 'close')) as [number])[0];

describe('a room for messages', () => {
  const shareOf = (room: MessageRoom, workspaceId: string) => new MessageShare(room, workspaceId as WorkspaceId);

  test('counts what connections hold now, and little ones not at all', () => {
    const room = new MessageRoom();
    const [one, other] = [shareOf(room, 'a'), shareOf(room, 'a')];
    expect(one.set(64 * 1024)).toBeUndefined();
    expect(room.heldBytes).toBe(0);
    expect(one.set(MIB)).toBeUndefined();
    expect(one.set(MIB)).toBeUndefined();
    expect(other.set(2 * MIB)).toBeUndefined();
    expect(room.heldBytes).toBe(3 * MIB);
    one.set(0);
    one.set(0);
    expect(room.heldBytes).toBe(2 * MIB);
    other.set(0);
    expect([room.heldBytes, room.workspaces]).toEqual([0, 0]);
  });

  test('refuses a workspace beyond its bound, and leaves the others as much as one holds', () => {
    const room = new MessageRoom({ workspaceBytes: 40 * MIB, processBytes: 100 * MIB });
    expect(shareOf(room, 'a').set(40 * MIB)).toBeUndefined();
    expect(shareOf(room, 'a').set(MIB)).toBe('workspace');
    const other = shareOf(room, 'b');
    expect(other.set(31 * MIB)).toBe('process');
    expect(other.set(30 * MIB)).toBeUndefined();
    expect(shareOf(room, 'c').set(15 * MIB)).toBeUndefined();
    expect(shareOf(room, 'd').set(7 * MIB)).toBeUndefined();
    expect(room.heldBytes).toBe(92 * MIB);
  });
});

describe('a caller of an application that reads nothing', () => {
  test('is closed when compressed messages of one read would fill the memory', async () => {
    const room = new WatchedRoom();
    const one = await connect({ room });
    const code = closed(one);
    one.readAtOnce(Buffer.concat([BOMB, BOMB, BOMB]));
    expect(await code).toBe(1013);
    expect(one.fulls).toEqual(['connection']);
    expect(room.mostBytes).toBeGreaterThan(2 * MAX_MESSAGE_BYTES);
    expect(room.mostBytes).toBeLessThan(2 * MAX_MESSAGE_BYTES + 128 * 1024);
    expect(one.runner.destroyed).toBe(true);
    await waitFor(() => one.ends.length === 1, 'the call is over');
    expect(one.ends).toEqual([1006]);
    await holdsNothing(room);
  });

  test('waits otherwise, and loses nothing', async () => {
    const room = new WatchedRoom();
    const one = await connect({ room });
    one.readAtOnce(Buffer.concat([BOMB, BOMB]));
    await holds(room, 2 * MAX_MESSAGE_BYTES);
    for (let sent = 0; sent < 10; sent += 1) one.client.send(Buffer.alloc(MIB));
    one.runner.go();
    await waitFor(() => one.runner.taken > 2 * MAX_MESSAGE_BYTES + 10 * MIB, 'all messages are there');
    expect(one.fulls).toEqual([]);
    await holdsNothing(room);
  });
});

describe('an incomplete message', () => {
  test('counts by its bytes, until it is complete', async () => {
    const room = new WatchedRoom();
    const one = await connect({ room, isPlain: true });
    one.runner.go();
    one.raw.write(part(5 * MIB));
    await holds(room, 5 * MIB);
    // A control frame in the middle changes nothing.
    one.raw.write(frame(PING, 'x'));
    one.raw.write(middle(2 * MIB));
    await holds(room, 7 * MIB);
    one.raw.write(rest(MIB));
    await waitFor(() => one.runner.taken > 8 * MIB, 'it is there');
    await holdsNothing(room);
  });

  test('counts what its fragments inflate to', async () => {
    const room = new WatchedRoom();
    const one = await connect({ room });
    one.runner.go();
    const payload = squeezed(Buffer.alloc(15 * MIB));
    const cut = payload.length - 100;
    one.raw.write(frame(BINARY, payload.subarray(0, cut), { rsv: 4, fin: false }));
    await waitFor(() => room.heldBytes > 14 * MIB, 'the first fragment counts');
    expect(room.heldBytes).toBeLessThan(16 * MIB);
    one.raw.write(frame(CONTINUATION, payload.subarray(cut)));
    await waitFor(() => one.runner.taken > 15 * MIB, 'it is there');
    await holdsNothing(room);
  });

  test('counts by its reads, too, when they are tiny', async () => {
    const room = new WatchedRoom();
    const one = await connect({ room, isPlain: true });
    one.raw.setNoDelay(true);
    one.raw.write(frame(BINARY, '', { announced: BigInt(MIB) }));
    await waitFor(async () => {
      for (let sent = 0; sent < 50; sent += 1) {
        one.raw.write('x');
        await new Promise((resolve) => setImmediate(resolve));
      }
      return room.heldBytes > 0;
    }, 'it counts');
    one.client.terminate();
    await holdsNothing(room);
  });
});

test('a caller who only sends pings and pongs holds nothing', async () => {
  const room = new WatchedRoom();
  const one = await connect({ room });
  const pongs = Buffer.concat(Array.from({ length: 20 }, () => frame(PONG, 'x'.repeat(125))));
  for (let sent = 0; sent < 300; sent += 1) {
    one.raw.write(pongs);
    if (sent % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  }
  one.client.send('the last');
  await waitFor(() => one.runner.taken > 0, 'all are read');
  expect(room.mostBytes).toBe(0);
});

describe('at the bound', () => {
  const BOUNDS = { workspaceBytes: 8 * MIB, processBytes: 20 * MIB };

  test('of a workspace the one that would hold more is closed, and everybody else goes on', async () => {
    const room = new WatchedRoom(BOUNDS);
    const first = await connect({ room });
    const second = await connect({ room });
    const other = await connect({ room, workspaceId: 'other' });
    for (const one of [first, other]) one.runner.go();
    first.raw.write(part(5 * MIB));
    await holds(room, 5 * MIB);
    second.raw.write(part(6 * MIB));
    expect(await closed(second)).toBe(1013);
    expect(second.fulls).toEqual(['workspace']);
    expect(room.mostBytes).toBeLessThanOrEqual(8 * MIB);
    await holds(room, 5 * MIB);
    other.raw.write(frame(BINARY, Buffer.alloc(5 * MIB)));
    first.raw.write(rest(MIB));
    await waitFor(() => first.runner.taken > 6 * MIB && other.runner.taken > 5 * MIB, 'both messages are there');
    expect([...first.ends, ...other.ends, ...first.fulls, ...other.fulls]).toEqual([]);
    await holdsNothing(room);
  });

  test('of a workspace a message is dropped that is complete', async () => {
    const room = new WatchedRoom(BOUNDS);
    const one = await connect({ room });
    one.raw.write(BOMB);
    expect(await closed(one)).toBe(1013);
    expect(one.fulls).toEqual(['workspace']);
    expect(room.mostBytes).toBe(0);
  });

  test('of a workspace a fragment is dropped that inflates to more', async () => {
    const room = new WatchedRoom(BOUNDS);
    const one = await connect({ room });
    one.raw.write(frame(BINARY, squeezed(Buffer.alloc(10 * MIB)), { rsv: 4, fin: false }));
    expect(await closed(one)).toBe(1013);
    expect(one.fulls).toEqual(['workspace']);
    await holdsNothing(room);
  });

  test('of the process small messages find room', async () => {
    const room = new WatchedRoom({ workspaceBytes: 8 * MIB, processBytes: 8 * MIB });
    const [one, other, quiet] = [
      await connect({ room, workspaceId: 'a' }),
      await connect({ room, workspaceId: 'b' }),
      await connect({ room, workspaceId: 'c' }),
    ];
    one.raw.write(part(3 * MIB));
    await holds(room, 3 * MIB);
    other.raw.write(part(4 * MIB));
    expect(await closed(other)).toBe(1013);
    expect(other.fulls).toEqual(['process']);
    quiet.runner.go();
    quiet.client.send(Buffer.alloc(60_000));
    await waitFor(() => quiet.runner.taken > 60_000, 'it is there');
    expect(quiet.fulls).toEqual([]);
  });

  test('a caller who does not close its side is cut, and counts until then', async () => {
    const room = new WatchedRoom(BOUNDS);
    const one = await connect({ room, isPlain: true });
    one.client.pause();
    one.raw.write(part(9 * MIB));
    await waitFor(() => one.fulls.length === 1, 'it is full');
    expect(room.heldBytes).toBeGreaterThan(7 * MIB);
    await waitFor(() => one.hasEnded(), 'the side of the scheduler is closed', 2000);
    expect(one.ends).toEqual([]);
    await waitFor(() => one.ends.length === 1, 'it is over');
    await holdsNothing(room);
  });
});

describe('nothing is held any more', () => {
  const over = (one: Bridged): Promise<unknown> => waitFor(() => one.ends.length === 1, 'the call is over');
  /** Each ends the connection and what waits for the application, in its own order. */
  const WAYS: readonly (readonly [string, (one: Bridged) => unknown])[] = [
    ['the application has taken all, and the caller closed', (one) => (one.runner.go(), one.client.close(1000))],
    ['the caller is gone, and the application takes the rest', (one) => left(one).then(() => one.runner.go())],
    ['the caller is gone, then the container', (one) => left(one).then(() => one.kill())],
    ['the container is gone', (one) => (one.kill(), one.client.terminate())],
    ['the scheduler stops', (one) => (one.webSockets.closeAll(), one.runner.go(), one.client.terminate())],
    ['the protocol is broken', (one) => (one.raw.write(frame(3, 'x')), one.runner.go(), one.client.terminate())],
  ];
  const left = (one: Bridged): Promise<unknown> => {
    one.client.terminate();
    return over(one);
  };
  const HELD: readonly (readonly [string, Buffer, number])[] = [
    ['messages that wait', frame(BINARY, Buffer.alloc(3 * MIB)), 3 * MIB],
    ['an incomplete message', part(3 * MIB), 3 * MIB],
    [
      'a fragment that was inflated',
      frame(BINARY, squeezed(Buffer.alloc(3 * MIB)), { rsv: 4, fin: false }),
      3 * MIB - 100_000,
    ],
  ];

  for (const [held, bytes, count] of HELD)
    test.for(WAYS)(`of ${held} after %s`, async ([, end]) => {
      const room = new WatchedRoom();
      const one = await connect({ room });
      one.raw.write(bytes);
      await holds(room, count);
      await end(one);
      await holdsNothing(room);
      await over(one);
      expect(one.fulls).toEqual([]);
    });
});

describe('a message of 16 MiB', () => {
  const MESSAGE = Buffer.alloc(MAX_MESSAGE_BYTES, 'a text that repeats itself');

  test.for([true, false])('passes; without compression: %s', async (isPlain) => {
    const room = new WatchedRoom();
    const one = await connect({ room, isPlain });
    one.client.send(MESSAGE);
    await holds(room, MAX_MESSAGE_BYTES);
    one.client.send(MESSAGE);
    one.runner.go();
    await waitFor(() => one.runner.taken > 2 * MAX_MESSAGE_BYTES, 'both are there');
    expect([...one.fulls, ...one.ends]).toEqual([]);
    await holdsNothing(room);
  });
});
