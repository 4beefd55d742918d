// A generator's answer: its items as events of a `text/event-stream`, each `data: <json>` and a blank line. No JSON text begins like one, so a result's text itself says which it is.
// Source: interface, invoking deployments (generator handler).

const EVENT = 'data: ';
const END = '\n\n';
const LINE_END = 0x0a;

/** Whether a result's text (or its first bytes) is that of a generator; one without items is empty, as no JSON is. */
export const isEventStream = (text: string): boolean => text === '' || text.startsWith(EVENT);

/** The same of bytes that came first. */
export const beginsEventStream = (bytes: Uint8Array): boolean =>
  bytes.length >= EVENT.length &&
  Buffer.from(bytes.buffer, bytes.byteOffset, EVENT.length).toString('latin1') === EVENT;

/** Not a part of one that was too long for a message. */
export const isWholeEvent = (bytes: Uint8Array): boolean =>
  beginsEventStream(bytes) && bytes.at(-1) === LINE_END && bytes.at(-2) === LINE_END;

/** The items of such a text as one JSON text, a list of their own texts, not parsed. */
export const itemsText = (text: string): string =>
  `[${text
    .split(END)
    .filter((event) => event !== '')
    .map((event) => event.slice(EVENT.length))
    .join(',')}]`;

/** The items, each parsed. @throws SyntaxError when it is no such text */
export const itemsOf = (text: string): unknown[] => JSON.parse(itemsText(text)) as unknown[];
