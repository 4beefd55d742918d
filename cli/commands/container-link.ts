// WebSockets into a container, for the commands that need one.
import { WebSocket } from 'ws';
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { sentenceOf, trustOf, unreachable } from '../client.ts';
import { CliError } from '../errors.ts';

const OPEN_WITHIN_MS = 75_000;
const MOST_REFUSAL_BYTES = 64 * 1024;
/** The scheduler stops, or lost the machine: come back. */
export const COME_BACK = 1012;

/** The connection could not be made, or was lost before it was answered: another try may do. */
export class LinkLost extends CliError {}

/**
 * Opens a WebSocket. It is paused: nothing is missed before somebody listens.
 * @throws LinkLost; CliError with the scheduler's text when it refuses
 */
export function openLink(client: Client, path: string): Promise<WebSocket> {
  const { url, token } = client.context;
  return new Promise((resolve, reject) => {
    const webSocket = new WebSocket(`${url.replace(/^http/, 'ws')}${path}`, {
      headers: { authorization: `Bearer ${token}` },
      handshakeTimeout: OPEN_WITHIN_MS,
      perMessageDeflate: false,
      ...trustOf(client.context),
    });
    webSocket.once('open', () => {
      webSocket.pause();
      resolve(webSocket);
    });
    webSocket.once('unexpected-response', (_request, response) => {
      const parts: Buffer[] = [];
      let size = 0;
      response.on('data', (part: Buffer) => {
        size += part.length;
        if (size <= MOST_REFUSAL_BYTES) parts.push(part);
      });
      response.once('close', () => {
        const body = jsonOf(Buffer.concat(parts).toString('utf8'));
        const text = typeof body['message'] === 'string' ? body['message'] : '';
        const status = response.statusCode ?? 0;
        const sentence = status === 401 || text === '' ? sentenceOf(status, body, url) : text;
        // A scheduler that stops, or whose machine is away for a moment, is asked again.
        const mayPass = status === 503 || status === 504 || body['code'] === 'machine_silent';
        reject(mayPass ? new LinkLost(sentence) : new CliError(sentence, { status }));
      });
    });
    webSocket.on('error', (error) => {
      const { message } = unreachable(url, error, OPEN_WITHIN_MS, client.context.name);
      reject(new LinkLost(message, { cause: error }));
    });
  });
}

/** The object of a text; empty where it is none. */
export function jsonOf(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}
