// The message of a delivery: one CloudEvent, and the headers of both signatures. Source: reference, REST §11.2. Pure
// but for the making of secrets.
import { createHmac, randomBytes } from 'node:crypto';
import type { CloudEvent } from '#shared/api/rest/events.ts';
import type { Message } from '../webhooks/post.ts';

const PREFIX = 'whsec_';
/** Most bytes of a body. */
export const MOST_BODY_BYTES = 256 * 1024;

/** A new secret: its text behind the prefix is the base64 of 32 bytes. */
export const newSecret = (): string => `${PREFIX}${randomBytes(32).toString('base64')}`;

/** End of a secret, by which people tell secrets apart. */
export const hintOf = (secret: string): string => secret.slice(-4);

/** Bytes of the body. Data that are too large go without the recipe of the stub, else without all but their ids. */
export function bodyOf(event: CloudEvent): Buffer {
  const whole = Buffer.from(JSON.stringify(event));
  if (whole.length <= MOST_BODY_BYTES) return whole;
  const { stub_config: _left, ...data } = event.data;
  const without = Buffer.from(JSON.stringify({ ...event, data }));
  if (without.length <= MOST_BODY_BYTES) return without;
  const short = Object.entries(data).filter(
    ([, value]) => typeof value !== 'object' && JSON.stringify(value).length <= 256,
  );
  return Buffer.from(JSON.stringify({ ...event, data: Object.fromEntries(short.slice(0, 100)) }));
}

/**
 * The message of one try.
 * @param secrets - the newest first; the others sign the header that takes several signatures
 * @param atMs - of the try
 */
export function messageOf(event: CloudEvent, secrets: readonly string[], atMs: number): Message {
  const body = bodyOf(event);
  const timestamp = Math.floor(atMs / 1000);
  const [newest = ''] = secrets;
  return {
    body,
    headers: {
      'Content-Type': 'application/cloudevents+json',
      'User-Agent': 'longshore-webhooks',
      'X-Beta9-Event': event.type,
      'X-Beta9-Delivery': event.id,
      'X-Beta9-Signature': `sha256=${createHmac('sha256', newest).update(body).digest('hex')}`,
      'webhook-id': event.id,
      'webhook-timestamp': String(timestamp),
      'webhook-signature': secrets.map((secret) => standardSignature(secret, event.id, timestamp, body)).join(' '),
    },
  };
}

/** A signature of Standard Webhooks: base64 of the HMAC over id, time and body, keyed with the secret's bytes. */
function standardSignature(secret: string, id: string, timestamp: number, body: Uint8Array): string {
  const key = Buffer.from(secret.slice(PREFIX.length), 'base64');
  return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64')}`;
}
