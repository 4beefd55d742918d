// The form of a service's table: its messages as the wire has them, and its calls with what serves each of them.
// Facts of the wire (names of fields, numbers, types) are forced by interoperability. The text is ours, and a test
// compares it with the installed client.
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Plain } from '../descriptor.ts';

export type Headers = Readonly<Record<string, string>>;

export interface Service {
  /** Package of the messages, `gateway`. */
  readonly pack: string;
  /** Name within the package, `GatewayService`; absent: messages that others use. */
  readonly name?: string;
  /**
   * Fields of each message, as `name number type`; a text has no type. `[]` repeats, `?` may be absent, `time` is a
   * Timestamp, `enum` the number of one. Fields of answers that are never filled in are left out.
   */
  readonly messages: Readonly<Record<string, string>>;
  readonly calls?: Readonly<Record<string, Adapter>>;
}

/** How a call is served, and where the messages differ. */
export interface Adapter {
  /** Name of the operation; absent: that of the call. */
  readonly operation?: string;
  /** Name of the messages, where it is not that of the call. */
  readonly messages?: string;
  /** Whole name of the request's message, where it is not that of the messages. */
  readonly asks?: string;
  /**
   * Clients repeat the call under one id until it is answered, so a failure that passes is UNAVAILABLE.
   * once: a repeated call gets the first answer · anew: it changes nothing, and is done again.
   */
  readonly repeats?: 'once' | 'anew';
  /** The message, or the answer, has a piece of a file: its bytes are booked before. */
  readonly isLarge?: boolean;
  /** Whether clients come back to a stream that broke off, so that it ends when the scheduler begins to stop. */
  readonly comesBack?: boolean;
  /** @param headers - metadata of the call, by names of lower case */
  readonly read?: (message: Plain, headers: Headers) => Plain;
  readonly refuses?: (message: Plain) => string | undefined;
  readonly tell?: (answer: Plain, caller: Caller | null) => Plain;
  /** The only answer; absent: an operation answers. */
  readonly always?: Plain;
}

/** The messages of a call. */
export const messagesOf = (pack: string, call: string, { messages = call, asks = `${messages}Request` }: Adapter) => ({
  request: `${pack}.${asks}`,
  response: `${pack}.${messages}Response`,
});

export const recordOf = (value: unknown): Plain => (value ?? {}) as Plain;
