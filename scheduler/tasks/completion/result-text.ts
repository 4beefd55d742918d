// Text form of a result's bytes, for records, rows and answers. No
// byte is lost: bytes that cannot be text become JSON that names them.
import { isUtf8 } from 'node:buffer';

/**
 * Converts a result to text. UTF-8 stays as it came. Other bytes, and text with NUL (Postgres stores
 * none), become `{"base64": "…"}`: the form in which the REST API shows a result that is not JSON.
 * Source: decision 0086.
 */
export function resultTextOf(bytes: Uint8Array): string {
  const body = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (isUtf8(body) && !body.includes(0)) return body.toString('utf8');
  return JSON.stringify({ base64: body.toString('base64') });
}
