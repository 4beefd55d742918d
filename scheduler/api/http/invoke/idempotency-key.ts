// The Idempotency-Key of an invocation: its syntax, and the rule by which two calls are the same one. Pure. Source:
// IETF draft-ietf-httpapi-idempotency-key-header; decision 0088.
import { createHash } from 'node:crypto';
import type { Target } from '../../../domain/stub-config.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Call, CallKey } from '../../../tasks/admission/calls.ts';

const MOST_CHARACTERS = 255;
const VISIBLE_ASCII = /^[\x21-\x7e]+$/;

export const KEY_PROBLEM = `Idempotency-Key must have 1 to ${MOST_CHARACTERS} visible ASCII characters without spaces, and be sent once`;

export const KEY_REUSED = 'the Idempotency-Key stands for a call with another body or other query parameters';

/**
 * The key that a header names, plain or as a quoted string.
 * @returns undefined: no header; null: no usable key
 */
export function keyOf(header: string | readonly string[] | undefined): string | undefined | null {
  if (header === undefined) return undefined;
  if (typeof header !== 'string') return null;
  const text = header.trim();
  const key = text.length >= 2 && text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1) : text;
  return key.length <= MOST_CHARACTERS && VISIBLE_ASCII.test(key) ? key : null;
}

export function callKeyOf(
  key: string,
  { input, query }: Pick<Call, 'input' | 'query'>,
  { target, caller, asksNewest }: { target: Target; caller: Caller | null; asksNewest: boolean },
): CallKey {
  const isOwn = caller?.workspaceId === target.workspaceId;
  const others = caller === null ? 'anybody/' : `${caller.workspaceId}/`;
  return { key, fingerprint: fingerprintOf(input, query), asksNewest, isOwn, callerScope: isOwn ? '' : others };
}

/** Fingerprint of a call: the body counts byte by byte, query parameters in any order. */
function fingerprintOf(input: string, query: Call['query']): string {
  const parameters = Object.entries(query ?? {}).toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  return createHash('sha256').update(JSON.stringify(parameters)).update('\n').update(input).digest('base64url');
}
