import type { Socket } from 'node:net';
import { encodeFrame } from '#shared/protocol/frames.ts';
import { leave } from '../slots/streams.ts';

/** An answer in the supervisor's place; codes are those of docs/supervisor-protocol.md. */
export interface Refusal {
  readonly code: 'not_found' | 'failed';
  readonly error: string;
}

/** Answers a stream's request. */
export function refuse(link: Socket, { code, error }: Refusal): void {
  const body = Buffer.from(JSON.stringify({ ok: false, code, error }), 'utf8');
  leave(link, encodeFrame('response', {}, body));
}
