// Results as published clients read them: pickled. A runner writes JSON where JSON gives the same value back, and it
// pickles every other value. JSON goes out as a pickle that has the client read it: nothing is parsed here, and no
// digit of a number is lost. Pure.
import { isRecord } from '#shared/json.ts';

/** The form in which runners write a pickled result. */
const PICKLED = /^\{"(?:base64|encoding)"/;
const ENCODING = 'cloudpickle';

/** Protocol 4, and the function that is called with the text behind it: `json.loads`. */
const READ_JSON = Buffer.from('\x80\x04cjson\nloads\n', 'latin1');
const TEXT = 0x58;
/** A tuple of the text, the call, and the end. */
const CALL = Buffer.from('\x85R.', 'latin1');

/** The pickled bytes of a result. */
export function pickledResult(text: string): Buffer {
  if (PICKLED.test(text)) {
    const value: unknown = JSON.parse(text);
    if (isRecord(value) && value['encoding'] === ENCODING && Object.keys(value).length === 2)
      return Buffer.from(String(value['base64']), 'base64');
  }
  return pickleOf(text);
}

/** The pickled bytes of a JSON text. */
export function pickleOf(text: string): Buffer {
  const bytes = Buffer.from(text, 'utf8');
  const head = Buffer.alloc(5);
  head.writeUInt8(TEXT);
  head.writeUInt32LE(bytes.length, 1);
  return Buffer.concat([READ_JSON, head, bytes, CALL]);
}
