// Strangers at the port of published clients, as a process of their own: connections that say nothing and come again
// when they are closed, half messages that hold the places of one workspace, and headers beyond the bound.
import { connect as connectHttp2 } from 'node:http2';
import type { ClientHttp2Session } from 'node:http2';
import { connect } from 'node:net';
import { sleep } from '#shared/backoff.ts';

const SILENT = 1_000;
/** Silent connections that come at once, and the time until the next ones. */
const AT_ONCE = 50;
const PAUSE_MS = 50;
/** A connection that was closed comes again after this. */
const AGAIN_MS = 2_000;
const HALF_MESSAGES = 128;
const HEADERS_EVERY_MS = 200;
/** A message of a thousand bytes, of which ten are sent. */
const HALF = Buffer.concat([Buffer.from([0, 0, 0, 3, 232]), Buffer.alloc(10)]);

const [address = '', token = ''] = process.argv.slice(2);
const [host = '', port = ''] = address.split(':');
const headers = {
  ':method': 'POST',
  ':path': '/gateway.GatewayService/ListTasks',
  'content-type': 'application/grpc',
  te: 'trailers',
  authorization: `Bearer ${token}`,
};

function comeSilently(): void {
  const socket = connect(Number(port), host);
  socket.on('error', () => undefined);
  socket.once('close', () => setTimeout(comeSilently, AGAIN_MS));
  socket.resume();
}

function session(): ClientHttp2Session {
  const opened = connectHttp2(`http://${address}`);
  opened.on('error', () => undefined);
  return opened;
}

/** Sends half of a message, and again once that is refused. */
function half(on: ClientHttp2Session): void {
  const stream = on.request(headers);
  stream.on('error', () => undefined);
  stream.once('close', () => setTimeout(() => !on.destroyed && half(on), AGAIN_MS));
  stream.resume();
  stream.write(HALF);
}

function tooLarge(): void {
  const opened = session();
  const stream = opened.request({ ...headers, 'x-large': 'x'.repeat(1_000_000) });
  stream.on('error', () => undefined);
  stream.once('close', () => opened.destroy());
}

process.once('SIGTERM', () => process.exit(0));
process.once('disconnect', () => process.exit(0));
const halves = session();
for (let at = 0; at < HALF_MESSAGES; at += 1) half(halves);
for (let at = 0; at < SILENT; at += 1) {
  if (at % AT_ONCE === AT_ONCE - 1) await sleep(PAUSE_MS);
  comeSilently();
}
setInterval(tooLarge, HEADERS_EVERY_MS);
process.send?.({ kind: 'ready' });
