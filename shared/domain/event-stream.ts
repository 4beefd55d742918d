// A generator's answer: its items as events of a `text/event-stream`, each `data: <json>`
// and a blank line. No JSON text begins so, which tells the two apart by the text itself.
// Source: interface, invoking deployments (generator handler).

const EVENT = 'data: ';
const END = '\n\n';
const LINE_END = 0x0a;

/**
 * Whether a result's text (or its start) is a generator's; a
 * generator without items has an empty text, which no JSON is.
 */
export const isEventStream = (text: string): boolean => text === '' || text.startsWith(EVENT);

/** As `isEventStream`, for the first bytes. */
export const beginsEventStream = (bytes: Uint8Array): boolean =>
  bytes.length >= EVENT.length &&
  Buffer.from(bytes.buffer, bytes.byteOffset, EVENT.length).toString('latin1') === EVENT;

/** False for a part of an event that was too long for a message. */
export const isWholeEvent = (bytes: Uint8Array): boolean =>
  beginsEventStream(bytes) && bytes.at(-1) === LINE_END && bytes.at(-2) === LINE_END;

/** The items as the text of a JSON list, not parsed. */
export const itemsText = (text: string): string =>
  `[${text
    .split(END)
    .filter((event) => event !== '')
    .map((event) => event.slice(EVENT.length))
    .join(',')}]`;
