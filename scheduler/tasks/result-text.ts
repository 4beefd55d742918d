// A result's bytes as the text that records, rows and answers carry. No byte is lost on the way: bytes that no text can carry become JSON that names them.
import { isUtf8 } from 'node:buffer';

/**
 * UTF-8 stays as it came. Other bytes, and text with NUL (Postgres stores none), become `{"base64": "…"}`: the form in which the REST API shows a result that is not JSON.
 * Source: decision 0086.
 */
export function resultTextOf(bytes: Uint8Array): string {
  const body = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (isUtf8(body) && !body.includes(0)) return body.toString('utf8');
  return JSON.stringify({ base64: body.toString('base64') });
}
