// Kinds of stubs that invoke URLs serve.
export type Method = 'GET' | 'POST';

export interface InvokedKind {
  readonly methods: readonly Method[];
  /** Whether calls without a token are possible, where the stub allows them. */
  readonly mayBePublic: boolean;
  /** Whether a container can be requested without a task. */
  readonly warmsUp: boolean;
}

/** A kind with a container for each call: there is nothing to keep warm. */
const PER_CALL: InvokedKind = { methods: ['POST'], mayBePublic: false, warmsUp: false };

/** The kinds invoked with a JSON body and answered with JSON (an asynchronous one with its task's id). */
export const KINDS: Readonly<Record<string, InvokedKind>> = {
  endpoint: { methods: ['GET', 'POST'], mayBePublic: true, warmsUp: true },
  taskqueue: { methods: ['POST'], mayBePublic: true, warmsUp: true },
  function: PER_CALL,
  schedule: PER_CALL,
};
