// WebSockets as bytes, through a whole installation and to a server in this process. Each case runs at both: the same
// bytes go out, and the bytes that come back must be the same. The direct server has the options of the scheduler's.
//
// Two differences are by design. A message above 256 KiB comes back in fragments, since the runner sends it in pieces:
// such cases compare messages instead of bytes. An echo has to travel to the container and back, so a pong or a close
// that answers a later frame overtakes it: cases wait for an echo before they go on, except where this is the subject.
import { deflateRawSync } from 'node:zlib';
import { describe, expect } from 'vitest';
import { WebSocketServer } from 'ws';
import type { WebSocket } from 'ws';
import { DEFLATE, MAX_MESSAGE_BYTES } from '#scheduler/api/http/streams/websockets.ts';
import { jsonOf, test as base } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { RawConnection } from '../helpers/raw-http.ts';
import {
  ACCEPT,
  BINARY,
  CLOSE,
  CONTINUATION,
  KEY,
  PING,
  PONG,
  TEXT,
  closeFrame,
  frame,
  handshake,
  messagesOf,
  openRaw,
} from '../helpers/raw-websocket.ts';
import type { RawWebSocket } from '../helpers/raw-websocket.ts';
import { waitFor } from '../helpers/services.ts';

interface Side {
  readonly address: string;
  /** Path before the one of a case. */
  readonly path: string;
  /** Lines for its handshake. */
  readonly lines: readonly string[];
}

interface Sides {
  readonly direct: Side;
  readonly through: Side;
  readonly url: string;
}

/** An echo server of this process; `/close?code,reason` closes. */
function serve(webSocket: WebSocket, url: string): void {
  webSocket.on('error', () => undefined);
  const [path, query = ''] = url.split('?', 2);
  if (path === '/close') {
    const [code = '', reason = ''] = decodeURIComponent(query).split(',', 2);
    webSocket.close(Number(code), reason);
  } else webSocket.on('message', (data, isBinary) => webSocket.send(data as Buffer, { binary: isBinary }));
}

const test = base.extend('sides', { scope: 'file' }, async ({ platform }, { onCleanup }): Promise<Sides> => {
  const server = new WebSocketServer({
    host: '127.0.0.1',
    port: 0,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: DEFLATE,
  });
  server.on('connection', (webSocket, request) => serve(webSocket, request.url ?? '/'));
  onCleanup(() => server.close());
  const deployment = await platform.deploy({
    app: 'web.py',
    handler: 'app',
    name: 'sockets',
    stubType: 'asgi/deployment',
    memory: 512,
    concurrentRequests: 50,
    maxPendingTasks: 200,
    keepWarmSeconds: 60,
  });
  expect(await platform.call(`${deployment.url}/`)).toMatchObject({ status: 200 });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the direct server has no port');
  return {
    direct: { address: `127.0.0.1:${address.port}`, path: '', lines: [] },
    through: {
      address: platform.httpAddress,
      path: new URL(deployment.url).pathname,
      lines: [`Authorization: Bearer ${platform.token}`],
    },
    url: deployment.url,
  };
});

/** Bytes to send, or how many messages (pings, pongs, closes too) to wait for. */
type Step = Buffer | number;

interface Case {
  readonly name: string;
  readonly path?: string;
  readonly lines?: readonly string[];
  readonly steps: readonly Step[];
  /** Messages that come back at either; without a close the case closes with 1000 at its end. */
  readonly back: readonly string[];
  /** Compare messages only: the reason is said at the head of this file. */
  readonly areFragmentsFree?: boolean;
}

interface Ran {
  readonly webSocket: RawWebSocket;
  readonly messages: readonly string[];
}

async function run(side: Side, { path = '/socket', lines = [], steps, back }: Case): Promise<Ran> {
  const { address } = side;
  const webSocket = await openRaw({ address, path: `${side.path}${path}`, lines: [...side.lines, ...lines] });
  const { connection, answer } = webSocket;
  try {
    expect(answer.status).toBe(101);
    for (const step of steps) {
      if (typeof step === 'number') await webSocket.untilMessages(step);
      else connection.send(step);
    }
    await webSocket.untilMessages(back.length);
    if (!closes(back)) connection.send(closeFrame(1000));
    await webSocket.ended();
    return { webSocket, messages: messagesOf(webSocket.frames()) };
  } finally {
    connection.close();
  }
}

const closes = (back: readonly string[]): boolean => back.at(-1)?.startsWith('close') === true;

const bytes = (hex: string): Buffer => Buffer.from(hex.replaceAll(' ', ''), 'hex');
const both = (...frames: readonly Buffer[]): Buffer => Buffer.concat(frames);
/** A case whose frames are refused with a code. */
const refused = (name: string, sent: Buffer, code: number): Case => ({ name, steps: [sent], back: [`close ${code}`] });
const echoed = (name: string, sent: Buffer, ...back: readonly string[]): Case => ({ name, steps: [sent], back });

const part = (opcode: number, payload: string | Buffer): Buffer => frame(opcode, payload, { fin: false });
const rest = (payload: string | Buffer): Buffer => frame(CONTINUATION, payload);
const middle = (payload: string | Buffer): Buffer => part(CONTINUATION, payload);

/** A message as the reader of raw-websocket.ts tells it. */
function toldAs(opcode: number, payload: Buffer): string {
  const one = { fin: true, rsv: 0, opcode, isMasked: false, payload };
  return messagesOf([one])[0] ?? '';
}

const sized = (opcode: number, length: number): Case => {
  const payload = Buffer.alloc(length, 'abcdefg');
  return {
    name: `${opcode === TEXT ? 'text' : 'bytes'} of ${length}`,
    steps: [frame(opcode, payload)],
    back: [toldAs(opcode, payload)],
    areFragmentsFree: length > 256 * 1024,
  };
};

const FRAMING: readonly Case[] = [
  ...[0, 1, 125, 126, 127, 65_535, 65_536, 65_537].map((length) => sized(TEXT, length)),
  ...[0, 125, 126, 65_535, 65_536, 262_144, 262_145, 1_000_000].map((length) => sized(BINARY, length)),
  refused('text without a mask', frame(TEXT, 'hello', { masked: false }), 1002),
  refused('a ping without a mask', frame(PING, '', { masked: false }), 1002),
  refused('a close without a mask', frame(CLOSE, '', { masked: false }), 1002),
  ...[1, 2, 3, 4, 7].map((rsv) => refused(`reserved bits ${rsv}`, frame(TEXT, 'hello', { rsv }), 1002)),
  refused('reserved bits on a ping', frame(PING, 'hello', { rsv: 4 }), 1002),
  ...[3, 4, 5, 6, 7, 11, 12, 13, 14, 15].map((opcode) => refused(`opcode ${opcode}`, frame(opcode, 'x'), 1002)),
  echoed('a length of 16 bits that fits 7', frame(TEXT, 'hello', { lengthBits: 16 }), 'text hello'),
  echoed('a length of 64 bits that fits 7', frame(TEXT, 'hello', { lengthBits: 64 }), 'text hello'),
  echoed(
    'a length of 64 bits that fits 16',
    frame(TEXT, 'x'.repeat(200), { lengthBits: 64 }),
    `text ${'x'.repeat(200)}`,
  ),
  refused('a length with the highest bit', frame(TEXT, '', { announced: 1n << 63n }), 1009),
  refused('a length beyond 2^53', frame(TEXT, '', { announced: 1n << 53n }), 1009),
  echoed('two frames in one piece', both(frame(TEXT, 'one'), frame(BINARY, 'two')), 'text one', 'bytes 74776f'),
  {
    name: 'a frame in single bytes',
    steps: [...frame(TEXT, 'hello')].map((byte) => Buffer.from([byte])),
    back: ['text hello'],
  },
  echoed(
    'fifty messages at once',
    both(...Array.from({ length: 50 }, (_, at) => frame(TEXT, `${at}`))),
    ...Array.from({ length: 50 }, (_, at) => `text ${at}`),
  ),
];

const FRAGMENTS: readonly Case[] = [
  echoed('two fragments', both(part(TEXT, 'hel'), rest('lo')), 'text hello'),
  echoed('three fragments of bytes', both(part(BINARY, 'a'), middle('b'), rest('c')), 'bytes 616263'),
  echoed(
    'a hundred fragments',
    both(part(TEXT, ''), ...Array.from({ length: 98 }, () => middle('x')), rest('')),
    `text ${'x'.repeat(98)}`,
  ),
  echoed('empty fragments', both(part(TEXT, ''), middle(''), rest('')), 'text '),
  echoed('the last fragment empty', both(part(TEXT, 'hello'), rest('')), 'text hello'),
  echoed(
    'pings between fragments',
    both(part(TEXT, 'a'), frame(PING, '1'), middle('b'), frame(PING, '2'), rest('c')),
    'pong 1',
    'pong 2',
    'text abc',
  ),
  echoed('a pong between fragments', both(part(TEXT, 'a'), frame(PONG, '1'), rest('b')), 'text ab'),
  refused('a continuation of nothing', rest('x'), 1002),
  refused('a continuation of nothing that goes on', middle('x'), 1002),
  {
    name: 'a continuation of a whole message',
    steps: [frame(TEXT, 'a'), 1, rest('b')],
    back: ['text a', 'close 1002'],
  },
  refused('text within a fragmented message', both(part(TEXT, 'a'), frame(TEXT, 'b')), 1002),
  refused('bytes within a fragmented message', both(part(TEXT, 'a'), frame(BINARY, 'b')), 1002),
  refused('a fragmented message within another', both(part(TEXT, 'a'), part(TEXT, 'b')), 1002),
  refused('a fragmented ping', part(PING, 'a'), 1002),
  refused('a fragmented pong', part(PONG, 'a'), 1002),
  refused('a fragmented close', part(CLOSE, ''), 1002),
  echoed('a close within a fragmented message', both(part(TEXT, 'a'), closeFrame(1000)), 'close 1000'),
];

const EMOJI = Buffer.from('κ😀é');

const TEXTS: readonly Case[] = [
  echoed('several bytes for a character', frame(TEXT, 'κόσμε 😀 é'), 'text κόσμε 😀 é'),
  ...[1, 3, 4, 5, 7].map((at) =>
    echoed(
      `a character split at byte ${at}`,
      both(part(TEXT, EMOJI.subarray(0, at)), rest(EMOJI.subarray(at))),
      'text κ😀é',
    ),
  ),
  echoed(
    'single bytes as fragments',
    both(
      ...[...EMOJI].map((byte, at) =>
        frame(at === 0 ? TEXT : CONTINUATION, Buffer.from([byte]), { fin: at === EMOJI.length - 1 }),
      ),
    ),
    'text κ😀é',
  ),
  echoed('a null character', frame(TEXT, 'a\0b'), 'text a\0b'),
  echoed('a byte order mark', frame(TEXT, '\ufeffa'), 'text \ufeffa'),
  echoed('the last character', frame(TEXT, '\u{10ffff}\ufffe\uffff'), 'text \u{10ffff}\ufffe\uffff'),
  ...(
    [
      ['a byte that no text has', 'ff'],
      ['a continuation byte alone', '61 80'],
      ['an overlong slash', 'c0 af'],
      ['an overlong null', 'c0 80'],
      ['an overlong form of three bytes', 'e0 80 af'],
      ['an overlong form of four bytes', 'f0 80 80 af'],
      ['a surrogate', 'ed a0 80'],
      ['a pair of surrogates', 'ed a0 bd ed b8 80'],
      ['a character beyond the last', 'f4 90 80 80'],
      ['a form of five bytes', 'f8 88 80 80 80'],
      ['an incomplete character in the middle', 'c3 28'],
      ['an incomplete character at the end', '61 c3'],
      ['an incomplete emoji at the end', 'f0 9f 98'],
    ] as const
  ).map(([name, hex]) => refused(name, frame(TEXT, bytes(hex)), 1007)),
  refused('a bad byte in a later fragment', both(part(TEXT, 'ok'), rest(bytes('ff'))), 1007),
  refused('a character that the last fragment leaves open', both(part(TEXT, bytes('ce')), rest('')), 1007),
  echoed('bytes that are no text', frame(BINARY, bytes('ff c0 80 ed a0 80')), 'bytes ffc080eda080'),
];

const PINGS: readonly Case[] = [
  echoed('a ping', frame(PING, ''), 'pong'),
  echoed('a ping with a payload', frame(PING, 'hello'), 'pong hello'),
  echoed('a ping with bytes', frame(PING, bytes('00 01 02')), 'pong \0\x01\x02'),
  echoed('a ping of 125 bytes', frame(PING, 'x'.repeat(125)), `pong ${'x'.repeat(125)}`),
  refused('a ping of 126 bytes', frame(PING, 'x'.repeat(126)), 1002),
  refused('a pong of 126 bytes', frame(PONG, 'x'.repeat(126)), 1002),
  refused('a ping whose length has 64 bits', frame(PING, 'x', { lengthBits: 64 }), 1002),
  echoed(
    'ten pings',
    both(...Array.from({ length: 10 }, (_, at) => frame(PING, `${at}`))),
    ...Array.from({ length: 10 }, (_, at) => `pong ${at}`),
  ),
  { name: 'a pong that nobody asked for', steps: [frame(PONG, 'x'), frame(TEXT, 'a')], back: ['text a'] },
  { name: 'a message, then a ping', steps: [frame(TEXT, 'a'), 1, frame(PING, 'b')], back: ['text a', 'pong b'] },
];

const CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999];
const NO_CODES = [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535];

const CLOSES: readonly Case[] = [
  ...CODES.map((code) => echoed(`close ${code}`, closeFrame(code, 'why'), `close ${code} why`)),
  ...NO_CODES.map((code) => refused(`close ${code}, which none may send`, closeFrame(code), 1002)),
  echoed('a close without a code', closeFrame(), 'close none'),
  refused('a close of a single byte', frame(CLOSE, 'x'), 1002),
  echoed('a close with the longest reason', closeFrame(1000, 'r'.repeat(123)), `close 1000 ${'r'.repeat(123)}`),
  refused('a close with a longer reason', closeFrame(1000, 'r'.repeat(124)), 1002),
  refused('a reason that is no text', closeFrame(1000, bytes('c3 28')), 1007),
  echoed('a message behind a close', both(closeFrame(1001), frame(TEXT, 'late')), 'close 1001'),
  echoed('a ping behind a close', both(closeFrame(1001), frame(PING, 'late')), 'close 1001'),
  echoed('two closes', both(closeFrame(1001), closeFrame(1002)), 'close 1001'),
  {
    name: 'a close once the messages are back',
    steps: [both(frame(TEXT, 'a'), frame(TEXT, 'b')), 2, closeFrame(4000, 'done')],
    back: ['text a', 'text b', 'close 4000 done'],
  },
  ...[1000, 1001, 1008, 1011, 1012, 3000, 4999].map((code): Case => ({
    name: `close ${code} of the application`,
    path: `/close?${code},why`,
    steps: [1, closeFrame(code, 'why')],
    back: [`close ${code} why`],
  })),
  {
    name: 'a close of the application without a reason',
    path: '/close?1000',
    steps: [1, closeFrame(1000)],
    back: ['close 1000'],
  },
];

const LARGE = Buffer.alloc(MAX_MESSAGE_BYTES, '0123456789abcdef');

const LIMITS: readonly Case[] = [
  { ...sized(BINARY, MAX_MESSAGE_BYTES), name: 'a message of 16 MiB' },
  { ...sized(TEXT, MAX_MESSAGE_BYTES - 1), name: 'text of 16 MiB less a byte' },
  {
    name: 'a message of 16 MiB in fragments',
    steps: [
      part(BINARY, LARGE.subarray(0, 1000)),
      middle(LARGE.subarray(1000, 5_000_000)),
      rest(LARGE.subarray(5_000_000)),
    ],
    back: [toldAs(BINARY, LARGE)],
    areFragmentsFree: true,
  },
  refused(
    'a message above 16 MiB, by its length',
    frame(BINARY, '', { announced: BigInt(MAX_MESSAGE_BYTES + 1) }),
    1009,
  ),
  refused(
    'fragments above 16 MiB together',
    both(part(BINARY, LARGE), frame(CONTINUATION, '', { announced: 1n })),
    1009,
  ),
];

const COMPRESSED = ['Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover'];
/** A compressed payload: without the four bytes that end every flush. */
function squeezed(payload: string | Buffer): Buffer {
  const whole = deflateRawSync(payload, { finishFlush: 2 });
  return whole.subarray(0, whole.length - 4);
}
const compressed = (name: string, sent: Buffer, ...back: readonly string[]): Case => ({
  name,
  lines: COMPRESSED,
  steps: [sent],
  back,
});
const LONG = 'a text that repeats itself. '.repeat(100);

const DEFLATED: readonly Case[] = [
  compressed('a short message', frame(TEXT, squeezed('hello'), { rsv: 4 }), 'text hello'),
  compressed(
    'a message that comes back compressed',
    frame(TEXT, squeezed(LONG), { rsv: 4 }),
    toldAs(TEXT, Buffer.from(LONG)),
  ),
  compressed(
    'bytes that come back compressed',
    frame(BINARY, squeezed(LONG), { rsv: 4 }),
    toldAs(BINARY, Buffer.from(LONG)),
  ),
  compressed('a message that is not compressed', frame(TEXT, LONG), toldAs(TEXT, Buffer.from(LONG))),
  compressed('an empty message', frame(TEXT, bytes('00'), { rsv: 4 }), 'text '),
  compressed('an empty message as an empty block', frame(BINARY, bytes('02 00'), { rsv: 4 }), 'bytes '),
  compressed('an empty message without a byte', frame(TEXT, '', { rsv: 4 }), 'text '),
  compressed(
    'fragments of a compressed message, with a ping between',
    both(
      frame(TEXT, squeezed(LONG).subarray(0, 10), { rsv: 4, fin: false }),
      frame(PING, 'p'),
      rest(squeezed(LONG).subarray(10)),
    ),
    'pong p',
    toldAs(TEXT, Buffer.from(LONG)),
  ),
  {
    name: 'two compressed messages, each by itself',
    lines: COMPRESSED,
    steps: [frame(TEXT, squeezed(LONG), { rsv: 4 }), 1, frame(TEXT, squeezed('b'), { rsv: 4 })],
    back: [toldAs(TEXT, Buffer.from(LONG)), 'text b'],
  },
  {
    name: 'a large message',
    lines: COMPRESSED,
    steps: [frame(BINARY, squeezed(LARGE.subarray(0, 2_000_000)), { rsv: 4 })],
    back: [toldAs(BINARY, LARGE.subarray(0, 2_000_000))],
    areFragmentsFree: true,
  },
  compressed('bad data', frame(TEXT, bytes('ff ff ff ff'), { rsv: 4 }), 'close 1007'),
  compressed('data that inflates to bad text', frame(TEXT, squeezed(bytes('c3 28')), { rsv: 4 }), 'close 1007'),
  compressed('a compressed continuation', both(part(TEXT, 'a'), frame(CONTINUATION, 'b', { rsv: 4 })), 'close 1002'),
  compressed('a compressed ping', frame(PING, 'a', { rsv: 4 }), 'close 1002'),
  compressed('reserved bits beside compression', frame(TEXT, squeezed('a'), { rsv: 6 }), 'close 1002'),
  compressed(
    'a message that inflates above 16 MiB',
    frame(BINARY, squeezed(Buffer.alloc(MAX_MESSAGE_BYTES + 1)), { rsv: 4 }),
    'close 1009',
  ),
];

function conform(name: string, cases: readonly Case[]): void {
  describe(name, () => {
    test.for(cases)('$name', { timeout: 60_000 }, async (one, { sides }) => {
      const [direct, through] = await Promise.all([run(sides.direct, one), run(sides.through, one)]);
      const back = closes(one.back) ? one.back : [...one.back, 'close 1000'];
      expect(direct.messages).toEqual(back);
      expect(through.messages).toEqual(back);
      expect(through.webSocket.frames().some(({ isMasked }) => isMasked)).toBe(false);
      if (one.areFragmentsFree === true) return;
      const received = ({ webSocket }: Ran): string => webSocket.connection.received.toString('hex');
      expect(received(through)).toBe(received(direct));
    });
  });
}

conform('frames', FRAMING);
conform('fragments', FRAGMENTS);
conform('text', TEXTS);
conform('pings and pongs', PINGS);
conform('closes', CLOSES);
conform('limits', LIMITS);
conform('compression', DEFLATED);

const seenBy = async (platform: Platform, { url }: Sides) =>
  jsonOf<{ seen: Record<string, number>; gone: readonly unknown[] }>(await platform.call(`${url}/`));

describe('messages under way', () => {
  test('reach the application when the caller closes behind them', async ({ platform, sides }) => {
    const before = (await seenBy(platform, sides)).seen['messages'] ?? 0;
    const steps = [both(...Array.from({ length: 20 }, () => frame(TEXT, 'x')), closeFrame(4100, 'left'))];
    const { messages } = await run(sides.through, { name: '', path: '/silent', steps, back: ['close 4100 left'] });
    expect(messages).toEqual(['close 4100 left']);
    await waitFor(async () => {
      const { seen, gone } = await seenBy(platform, sides);
      const isTold = gone.some((one) => JSON.stringify(one) === '["websocket",4100,"left"]');
      return isTold && (seen['messages'] ?? 0) - before === 20;
    }, 'all twenty came, and the close');
  });

  test('are not echoed behind a close', async ({ sides }) => {
    const steps = [both(...Array.from({ length: 20 }, () => frame(TEXT, 'x')), closeFrame(4101))];
    const { messages } = await run(sides.through, { name: '', steps, back: ['close 4101'] });
    expect(messages.at(-1)).toBe('close 4101');
    expect(messages.slice(0, -1).every((one) => one === 'text x')).toBe(true);
  });

  test.for([0, 999, 1004, 1005, 1006, 1015, 5000])(
    'the application closes with %i, which none may send: 1011',
    async (code, { sides }) => {
      const steps = [1, closeFrame(1011)];
      const { messages } = await run(sides.through, { name: '', path: `/close?${code}`, steps, back: ['close 1011'] });
      expect(messages).toEqual(['close 1011']);
    },
  );

  test('a reason of the application is cut to the longest', async ({ sides }) => {
    const path = `/close?1000,${'r'.repeat(200)}`;
    const { messages } = await run(sides.through, { name: '', path, steps: [1, closeFrame(1000)], back: ['close'] });
    expect(messages).toEqual([`close 1000 ${'r'.repeat(123)}`]);
  });
});

/** Opens a WebSocket at both, and compares the heads of the answers. */
async function negotiated(sides: Sides, lines: readonly string[], path = '/socket') {
  const [direct, through] = await Promise.all(
    [sides.direct, sides.through].map(async (side) => {
      const { address } = side;
      const { answer, connection } = await openRaw({
        address,
        path: `${side.path}${path}`,
        lines: [...side.lines, ...lines],
      });
      connection.close();
      return answer;
    }),
  );
  if (direct === undefined || through === undefined) throw new Error('no answer');
  return { direct, through };
}

const NAMES = ['upgrade', 'connection', 'sec-websocket-accept', 'sec-websocket-extensions', 'sec-websocket-protocol'];

interface Negotiation {
  readonly name: string;
  readonly lines: readonly string[];
  readonly status?: number;
  readonly extensions?: string;
  readonly protocol?: string;
}

const extension = (offer: string, extensions?: string): Negotiation => ({
  name: `extensions: ${offer}`,
  lines: [`Sec-WebSocket-Extensions: ${offer}`],
  ...(extensions === undefined ? {} : { extensions }),
});
const WITHOUT_CONTEXT = 'server_no_context_takeover; client_no_context_takeover';
const BOTH_WITHOUT = `permessage-deflate; ${WITHOUT_CONTEXT}`;
const protocols = (offer: string, protocol: string): Negotiation => ({
  name: `subprotocols: ${offer}`,
  lines: [`Sec-WebSocket-Protocol: ${offer}`],
  protocol,
});

const NEGOTIATIONS: readonly Negotiation[] = [
  { name: 'nothing offered', lines: [] },
  { name: 'values in capitals', lines: ['Connection: UPGRADE', 'Upgrade: WEBSOCKET'] },
  { name: 'names in capitals', lines: ['CONNECTION: keep-alive, Upgrade', 'UPGRADE: WebSocket'] },
  { name: 'names in lower case', lines: ['connection: upgrade', 'upgrade: websocket', `sec-websocket-key: ${KEY}`] },
  { name: 'version 8', lines: ['Sec-WebSocket-Version: 8'] },
  { name: 'an origin', lines: ['Origin: http://elsewhere.test'] },
  extension('permessage-deflate', BOTH_WITHOUT),
  extension('permessage-deflate; client_max_window_bits', BOTH_WITHOUT),
  extension(
    'permessage-deflate; client_max_window_bits=10',
    `permessage-deflate; client_max_window_bits=10; ${WITHOUT_CONTEXT}`,
  ),
  extension(
    'permessage-deflate; server_max_window_bits=10',
    `permessage-deflate; server_max_window_bits=10; ${WITHOUT_CONTEXT}`,
  ),
  extension('permessage-deflate; server_no_context_takeover', BOTH_WITHOUT),
  extension('permessage-deflate; server_no_context_takeover; client_no_context_takeover', BOTH_WITHOUT),
  extension('permessage-deflate; client_max_window_bits, permessage-deflate', BOTH_WITHOUT),
  extension('x-unknown'),
  extension('x-unknown; a=1, permessage-deflate', BOTH_WITHOUT),
  { ...extension('permessage-deflate; server_max_window_bits=7'), status: 400 },
  { ...extension('permessage-deflate; no_such=1'), status: 400 },
  { ...extension('permessage-deflate; server_no_context_takeover; server_no_context_takeover'), status: 400 },
  { ...extension(';;'), status: 400 },
  protocols('chat', 'chat'),
  protocols('chat, superchat', 'chat'),
  protocols('superchat,chat', 'superchat'),
  {
    name: 'subprotocols in two lines',
    lines: ['Sec-WebSocket-Protocol: b', 'Sec-WebSocket-Protocol: a'],
    protocol: 'b',
  },
  { name: 'a subprotocol twice', lines: ['Sec-WebSocket-Protocol: a, a'], status: 400 },
  { name: 'no subprotocol', lines: ['Sec-WebSocket-Protocol:'], status: 400 },
  { name: 'a subprotocol that is no name', lines: ['Sec-WebSocket-Protocol: a b'], status: 400 },
];

describe('a handshake', () => {
  test.for(NEGOTIATIONS)('with $name', async ({ lines, status = 101, extensions, protocol }, { sides }) => {
    const { direct, through } = await negotiated(sides, lines);
    expect([direct.status, through.status]).toEqual([status, status]);
    if (status !== 101) return;
    for (const { headers } of [direct, through]) {
      expect(headers['sec-websocket-accept']).toBe(ACCEPT);
      expect(headers['sec-websocket-extensions']).toBe(extensions);
      expect(headers['sec-websocket-protocol']).toBe(protocol);
    }
    for (const name of NAMES) expect(through.headers[name], name).toBe(direct.headers[name]);
    expect(through.headers['x-app']).toBe('web');
  });

  /** Handshakes that are none. The application never sees the first ones; the last are requests like any other. */
  const FAULTS = [
    { name: 'without a key', lines: ['-Sec-WebSocket-Key'], status: 400 },
    { name: 'with an empty key', lines: ['Sec-WebSocket-Key:'], status: 400 },
    { name: 'with a short key', lines: ['Sec-WebSocket-Key: c2hvcnQ='], status: 400 },
    { name: 'with two keys', lines: [`Sec-WebSocket-Key: ${KEY}`, `Sec-WebSocket-Key: ${KEY}`], status: 400 },
    { name: 'with version 12', lines: ['Sec-WebSocket-Version: 12'], status: 426 },
    { name: 'with version 14', lines: ['Sec-WebSocket-Version: 14'], status: 426 },
    { name: 'with a version that is none', lines: ['Sec-WebSocket-Version: thirteen'], status: 426 },
    { name: 'without a version', lines: ['-Sec-WebSocket-Version'], status: 426 },
    { name: 'without Connection', lines: ['-Connection'], status: 404 },
    { name: 'without Upgrade', lines: ['-Upgrade'], status: 404 },
    { name: 'to another protocol', lines: ['Upgrade: h2c'], status: 404 },
    { name: 'by POST', method: 'POST', lines: ['Content-Length: 0'], status: 404 },
    { name: 'that the application refuses', path: '/refused', lines: [], status: 403 },
    { name: 'without a token', lines: ['-Authorization'], status: 401 },
    { name: 'with a bad token', lines: ['Authorization: Bearer bad'], status: 401 },
  ] as const;

  test.for(FAULTS)('$name is answered $status', async (fault, { sides: { through } }) => {
    const { lines, status } = fault;
    const named = lines.some((line) => line.includes('Authorization'));
    const { answer, connection } = await openRaw({
      address: through.address,
      path: `${through.path}${'path' in fault ? fault.path : '/socket'}`,
      method: 'method' in fault ? fault.method : 'GET',
      lines: [...(named ? [] : through.lines), ...lines],
    });
    connection.close();
    expect(answer.status).toBe(status);
    expect(answer.isWhole).toBe(true);
    if (status === 426) {
      expect(answer.headers['sec-websocket-version']).toBe('13');
      expect(answer.headers['upgrade']?.toLowerCase()).toBe('websocket');
    }
  });

  test('that the application answers by itself brings all of that answer', async ({ sides: { through } }) => {
    const { address, path, lines } = through;
    const { answer, connection } = await openRaw({ address, path: `${path}/denied`, lines });
    connection.close();
    expect([answer.status, answer.headers['x-why'], answer.isWhole]).toEqual([451, 'closed', true]);
    expect(answer.body.length).toBe(64 * 131_072);
  });

  test('with frames right behind it loses none', async ({ sides }) => {
    const received = await Promise.all(
      [sides.direct, sides.through].map(async ({ address, path, lines }) => {
        const connection = new RawConnection(address);
        await connection.opened;
        const head = handshake({ address, path: `${path}/socket`, lines });
        connection.send(both(Buffer.from(head), frame(TEXT, 'early'), frame(BINARY, 'x'.repeat(70_000))));
        const { status } = await connection.answer();
        await connection.until((all) => all.length > 70_000);
        connection.close();
        return [status, connection.received.toString('hex')];
      }),
    );
    expect(received[0]?.[0]).toBe(101);
    expect(received[1]).toEqual(received[0]);
  });
});
