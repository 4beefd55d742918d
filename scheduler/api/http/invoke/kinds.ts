// Kinds of stubs that invoke URLs serve.
export type Method = 'GET' | 'POST';

export interface InvokedKind {
  readonly methods: readonly Method[];
  /** Whether calls without a token are possible, where the stub allows them. */
  readonly mayBePublic: boolean;
  /** Whether a container can be requested without a task. */
  readonly warmsUp: boolean;
  /** Whether inputs may be pickled: where no call is public, and each caller has a token. */
  readonly takesPickled?: boolean;
}

/** A kind with a container for each call: there is nothing to keep warm. */
const PER_CALL: InvokedKind = { methods: ['POST'], mayBePublic: false, warmsUp: false, takesPickled: true };

/** The kinds invoked with a JSON body and answered with JSON (an asynchronous one with its task's id). */
export const KINDS: Readonly<Record<string, InvokedKind>> = {
  endpoint: { methods: ['GET', 'POST'], mayBePublic: true, warmsUp: true },
  taskqueue: { methods: ['POST'], mayBePublic: true, warmsUp: true },
  function: PER_CALL,
  schedule: PER_CALL,
};

/** The kinds whose callers speak with an application in the container: any method, any path below. */
export const STREAMED_KINDS: Readonly<Record<string, Omit<InvokedKind, 'methods'>>> = {
  asgi: { mayBePublic: true, warmsUp: true },
  pod: { mayBePublic: true, warmsUp: false },
};

export const isStreamed = (kind: string): boolean => Object.hasOwn(STREAMED_KINDS, kind);
export const isInvoked = (kind: string): boolean => Object.hasOwn(KINDS, kind) || isStreamed(kind);
