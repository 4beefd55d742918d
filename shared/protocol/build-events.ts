/**
 * Lines of JSON by which an agent tells of a build or a push, on the connection that it dialled for it. `built`,
 * `pushed` or `failed` is the last; a connection that ends without one was cut off.
 */
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Value } from 'typebox/value';

/** Longest text of an event; longer lines of output are cut. */
export const MOST_EVENT_TEXT = 4000;
/** Every line is shorter. */
export const MOST_EVENT_BYTES = 64 * 1024;

const Text = Type.String({ maxLength: MOST_EVENT_TEXT });

export const BuildEvent = Type.Union([
  /** A step begins; `title` is for people. */
  Type.Object({ step: Type.Integer(), of: Type.Integer(), title: Text }),
  /** A line of output of a step. */
  Type.Object({ text: Text }),
  /** A line of the agent's own. */
  Type.Object({ note: Text }),
  Type.Object({ built: Text, bytes: Type.Number() }),
  /** The digest of the image in the registry. */
  Type.Object({ pushed: Text }),
  /** `failed` says why; `step` is the title of the failing step, empty where none began. */
  Type.Object({ failed: Text, step: Text }),
]);
export type BuildEvent = Static<typeof BuildEvent>;

/** The end of a build or of a push. */
export type LastEvent = Extract<BuildEvent, { built: string } | { pushed: string } | { failed: string }>;

export const encodeEvent = (event: BuildEvent): string => `${JSON.stringify(event)}\n`;

/** @returns undefined for a line that is no event */
export function decodeEvent(line: string): BuildEvent | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return Value.Check(BuildEvent, value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Cuts a text to the length that an event may have. */
export const cut = (text: string): string =>
  text.length <= MOST_EVENT_TEXT ? text : `${text.slice(0, MOST_EVENT_TEXT - 1)}…`;
