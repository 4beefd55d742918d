import type { Socket } from 'node:net';
import { encodeFrame } from '#shared/protocol/frames.ts';
import { lingering } from '../slots/streams.ts';

/** An answer in the supervisor's place; codes are those of docs/supervisor-protocol.md. */
export interface Refusal {
  readonly code: 'not_found' | 'failed';
  readonly error: string;
}

/** Answers a stream's request. */
export function refuse(link: Socket, { code, error }: Refusal): void {
  if (link.destroyed) return;
  const body = Buffer.from(JSON.stringify({ ok: false, code, error }), 'utf8');
  link.end(encodeFrame('response', {}, body));
  lingering(link);
}
