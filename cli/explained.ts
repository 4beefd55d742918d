// The explanation of something that waits, in one line.
import { textField, textsField } from './json.ts';
import type { JsonObject } from './json.ts';

/** Wait of a container whose image is pulled or made; the first detail says how far that is. */
const IMAGE = 'its image';

/** @returns empty: there is no explanation */
export function waitSentence(explained: JsonObject): string {
  const [detail] = textsField(explained, 'details');
  if (detail !== undefined && textField(explained, 'waits_for') === IMAGE) return detail;
  return `${textField(explained, 'summary')}${detail === undefined ? '' : `; ${detail}`}`;
}
