// The input of a call: the body, which is a JSON object or nothing, and the query.
import { isUtf8 } from 'node:buffer';
import { isRecord } from '#shared/json.ts';
import { ObjectScan, scanObject } from '../json-object.ts';
import { brokenAt, notUtf8, whyNotObject } from '../not-object.ts';

export interface Input {
  /** The body's text, as it came. */
  readonly text: string;
  /** The input of that name, of any type: the address that is told of the task's end. */
  readonly callbackUrl?: unknown;
}

const NO_INPUT: Input = { text: '' };

/** Largest body that is parsed at once; larger ones are scanned in slices. */
const PARSED_BYTES = 256 * 1024;

/** Reads the body: a JSON object, or nothing; a text: why it is neither. Synchronous unless the body is large. */
export function inputOf(body: unknown): Input | string | Promise<Input | string> {
  if (!Buffer.isBuffer(body) || body.length === 0) return NO_INPUT;
  if (!isUtf8(body)) return notUtf8(body);
  if (body.length > PARSED_BYTES) return largeInputOf(body);
  const text = body.toString('utf8');
  const first = firstCharacter(text);
  if (first === '') return NO_INPUT;
  if (first !== '{') return whyNotObject(body);
  try {
    // Parsed for this look only: the text goes on as it came. A text that begins with a brace and parses is an object.
    const given = JSON.parse(text) as { readonly kwargs?: unknown; readonly callback_url?: unknown };
    const { kwargs } = given;
    // An object named `kwargs` holds the keywords.
    return { text, callbackUrl: (isRecord(kwargs) ? kwargs : given)['callback_url'] };
  } catch {
    return whyNotObject(body);
  }
}

async function largeInputOf(body: Buffer): Promise<Input | string> {
  const found = await scanObject(body);
  if (found === 'empty') return NO_INPUT;
  return found instanceof ObjectScan
    ? brokenAt(body, found)
    : { text: body.toString('utf8'), callbackUrl: found.callbackUrl };
}

function firstCharacter(text: string): string {
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return text.charAt(index);
  }
  return '';
}

export function queryOf(
  query: Readonly<Record<string, string | string[]>>,
): Readonly<Record<string, readonly string[]>> | undefined {
  let out: Record<string, readonly string[]> | undefined;
  for (const name in query) {
    const value = query[name];
    if (value === undefined || name === 'auth_token') continue;
    out ??= Object.create(null) as Record<string, readonly string[]>;
    out[name] = typeof value === 'string' ? [value] : value;
  }
  return out;
}
