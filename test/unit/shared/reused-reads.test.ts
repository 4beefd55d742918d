// Bytes of dialled connections that are read into memory which is used again, over real sockets: whole, in order, none
// of another connection, no more held than the bounds say.
import { createHash, randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { describe, expect, test, vi } from 'vitest';
import { passOn } from '#shared/pass-on.ts';
import { ReusedReads } from '#shared/reused-reads.ts';
import { SERVER_NAME } from '#shared/protocol/link.ts';
import { issueServerCertificate, makeCertificateAuthority } from '#scheduler/workspaces/identity/certificates.ts';
import { tempDirectory, waitFor } from '../../helpers/services.ts';

const MIB = 1024 * 1024;
/** More than the kernel holds on the way, in all sockets of it. */
const MUCH_BYTES = 32 * MIB;

const ca = await makeCertificateAuthority(Date.now());
const { chainPem, keyPem } = await issueServerCertificate(ca, Date.now());

type Way = 'unix' | 'tls';

/** Connections that are passed on: what is written at `sender` arrives at `receiver`. */
class Place {
  readonly #directory = tempDirectory('reused-reads');
  readonly #servers: Server[] = [];
  readonly #sockets: Socket[] = [];

  async passed(way: Way) {
    const { from, sender } = await this.dialled(way);
    const { to, receiver } = await this.taken();
    passOn(from, to);
    return { from, sender, to, receiver };
  }

  async dialled(way: Way) {
    const path = this.#path();
    const server =
      way === 'unix' ? createServer() : createTlsServer({ cert: chainPem, key: keyPem, minVersion: 'TLSv1.3' });
    this.#servers.push(server);
    await once(server.listen(path), 'listening');
    const taken = once(server, way === 'unix' ? 'connection' : 'secureConnection');
    const from = ReusedReads.dial((reads) =>
      way === 'unix'
        ? connect({ path, ...reads })
        : connectTls({ path, ...reads, ca: ca.certPem, servername: SERVER_NAME }),
    );
    const [sender] = (await taken) as [Socket];
    this.#keep(from, sender);
    return { from, sender };
  }

  /** A runner process's connection: the agent has the accepted end. */
  async taken() {
    const path = this.#path();
    const server = createServer();
    this.#servers.push(server);
    await once(server.listen(path), 'listening');
    const receiver = connect(path);
    const [to] = (await once(server, 'connection')) as [Socket];
    this.#keep(receiver, to);
    return { to, receiver };
  }

  #path(): string {
    return join(this.#directory.path, `${this.#servers.length}.sock`);
  }

  #keep(...sockets: Socket[]): void {
    for (const socket of sockets) socket.on('error', () => undefined);
    this.#sockets.push(...sockets);
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets) socket.destroy();
    for (const server of this.#servers) server.close();
    this.#directory.remove();
  }
}

/** Writes pieces with back-pressure, then the end. */
async function write(sender: Socket, pieces: Iterable<Buffer>): Promise<void> {
  for (const piece of pieces) if (!sender.write(piece)) await once(sender, 'drain');
  sender.end();
}

/** Pieces of all sizes, a few around those of records and buffers. */
function* mixed(bytes: number, make: (size: number) => Buffer): Generator<Buffer> {
  const edges = [1, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 160 * 1024, 256 * 1024];
  for (let left = bytes; left > 0;) {
    const size = Math.min(left, randomInt(3) === 0 ? edges[randomInt(edges.length)]! : randomInt(1, 300_000));
    yield make(size);
    left -= size;
  }
}

/** Reads to the end, now and then slowly. */
async function read(receiver: Socket, onBytes: (chunk: Buffer) => void): Promise<void> {
  receiver.on('data', (chunk: Buffer) => {
    onBytes(chunk);
    if (randomInt(20) !== 0) return;
    receiver.pause();
    setTimeout(() => receiver.resume(), 1);
  });
  await once(receiver, 'end');
}

describe.each(['unix', 'tls'] as const)('%s', (way) => {
  test('bytes of all sizes arrive whole behind a slow reader, and the end behind them', async () => {
    using place = new Place();
    const { sender, receiver } = await place.passed(way);
    const sent = createHash('sha256');
    const got = createHash('sha256');
    const over = read(receiver, (chunk) => void got.update(chunk));
    await write(
      sender,
      mixed(MUCH_BYTES, (size) => {
        const bytes = randomBytes(size);
        sent.update(bytes);
        return bytes;
      }),
    );
    await over;
    expect(got.digest('hex')).toBe(sent.digest('hex'));
  });

  test('connections side by side get their own bytes alone', async () => {
    using place = new Place();
    const foreign: string[] = [];
    const counts = await Promise.all(
      Array.from('abcdefghijkl', async (letter) => {
        const { sender, receiver } = await place.passed(way);
        const own = Buffer.alloc(300_000, letter);
        let count = 0;
        const over = read(receiver, (chunk) => {
          count += chunk.length;
          if (!chunk.equals(own.subarray(0, chunk.length))) foreign.push(letter);
        });
        await write(
          sender,
          mixed(4 * MIB, (size) => own.subarray(0, size)),
        );
        await over;
        return count;
      }),
    );
    expect(foreign).toEqual([]);
    expect(new Set(counts)).toEqual(new Set([4 * MIB]));
  });

  test('reading stops while nobody takes the bytes, and goes on', async () => {
    using place = new Place();
    const { from, sender, to, receiver } = await place.passed(way);
    receiver.pause();
    const written = write(sender, [Buffer.alloc(MUCH_BYTES, 'x')]);
    let last = 0;
    let times = 0;
    const isStill = (): boolean => {
      times = from.bytesRead === last && last > 0 ? times + 1 : 0;
      last = from.bytesRead;
      return times === 12;
    };
    await waitFor(isStill, 'the way is full');
    expect(last).toBeLessThan(MUCH_BYTES / 4);
    // Two buffers, and what TLS had already read of the next ones.
    expect(to.writableLength).toBeLessThan(MIB);
    let count = 0;
    receiver.on('data', (chunk: Buffer) => (count += chunk.length));
    receiver.resume();
    await Promise.all([written, once(receiver, 'end')]);
    expect(count).toBe(MUCH_BYTES);
  });

  test('messages go out at once, before a body and behind it', async () => {
    using place = new Place();
    const { sender, receiver } = await place.passed(way);
    receiver.on('data', (chunk: Buffer) => receiver.emit('bytes', chunk));
    const message = async (text: string): Promise<void> => {
      const came = once(receiver, 'bytes');
      sender.write(text);
      expect(String((await came)[0])).toBe(text);
    };
    for (let count = 0; count < 5; count += 1) await message(`before ${count}`);
    let left = 3 * MIB;
    sender.write(Buffer.alloc(left, 'x'));
    while (left > 0) left -= ((await once(receiver, 'bytes')) as [Buffer])[0].length;
    for (let count = 0; count < 5; count += 1) await message(`behind ${count}`);
  });

  test('what came before it was passed on arrives first', async () => {
    using place = new Place();
    const { from, sender } = await place.dialled(way);
    const { to, receiver } = await place.taken();
    sender.write('first ');
    await waitFor(() => from.readableLength > 0, 'bytes were read');
    passOn(from, to);
    let text = '';
    receiver.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    sender.end('second');
    await once(receiver, 'end');
    expect(text).toBe('first second');
  });

  test('bytes for a reader that is gone are dropped, and their sender may end', async () => {
    using place = new Place();
    const { from, sender, to } = await place.passed(way);
    to.destroy();
    from.resume();
    const ended = once(from, 'end');
    await write(sender, [Buffer.alloc(MUCH_BYTES, 'x')]);
    await ended;
  });

  test('the buffers of a connection serve those behind it', async () => {
    using place = new Place();
    const made = vi.spyOn(Buffer, 'allocUnsafeSlow');
    using _restored = { [Symbol.dispose]: () => made.mockRestore() };
    for (let count = 0; count < 20; count += 1) {
      const { from, sender, receiver } = await place.passed(way);
      const over = read(receiver, () => undefined);
      const closed = once(from, 'close');
      await write(sender, [Buffer.alloc(100_000, 'x')]);
      await over;
      from.destroy();
      await closed;
    }
    // The last bytes of one may still be on their way when the next begins.
    expect(made.mock.calls.filter(([size]) => size === 256 * 1024).length).toBeLessThan(8);
  });
});
