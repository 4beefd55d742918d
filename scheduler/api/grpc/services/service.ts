// The form of a service's table: its messages as the wire has them, and its calls with what serves each of them.
// Facts of the wire (names of fields, numbers, types) are forced by interoperability. The text is ours, and a test
// compares it with the installed client.
import type { Caller } from '../../../workspaces/identity/caller.ts';
import type { Plain } from '../descriptor.ts';

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
  readonly read?: (message: Plain) => Plain;
  readonly refuses?: (message: Plain) => string | undefined;
  readonly tell?: (answer: Plain, caller: Caller | null) => Plain;
  /** The only answer; absent: an operation answers. */
  readonly always?: Plain;
}

export const recordOf = (value: unknown): Plain => (value ?? {}) as Plain;
