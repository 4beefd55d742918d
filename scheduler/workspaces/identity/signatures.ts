// Signatures of messages in a workspace's name: SignPayload and task callbacks share this scheme.
import { createHmac } from 'node:crypto';

/** The signature: lower-case hex of the HMAC-SHA256 of base64(payload) + ':' + unix seconds. */
export function signatureOf(key: string, payload: Uint8Array, timestamp: number): string {
  const message = `${Buffer.from(payload).toString('base64')}:${timestamp}`;
  return createHmac('sha256', key).update(message).digest('hex');
}
