// Statuses of calls that do not end with an answer. Published clients print the text of a few codes, and hide the text
// behind "Unhandled" for every other: only those few are used.
import { DecodeError } from '../http/decode.ts';
import { INTERNAL, problemOf, rpcCodeOf } from '../http/error-map.ts';

export const CODES = {
  cancelled: 1,
  unknown: 2,
  invalid_argument: 3,
  deadline_exceeded: 4,
  not_found: 5,
  resource_exhausted: 8,
  unavailable: 14,
  unauthenticated: 16,
} as const;
export type Code = (typeof CODES)[keyof typeof CODES];

const SHOWN: ReadonlySet<number> = new Set(Object.values(CODES));

/** A call that ends with a status in the place of an answer. */
export class RpcStatus extends Error {
  readonly code: Code;
  constructor(code: Code, text: string) {
    super(text);
    this.name = 'RpcStatus';
    this.code = code;
  }
}

export const INVALID_TOKEN = 'invalid or missing token';
export const STOPPING = 'this scheduler is stopping: call again';

/** The status that a thrown value becomes. */
export function statusOf(error: unknown): { readonly code: Code; readonly details: string; readonly isOurs: boolean } {
  if (error instanceof RpcStatus) return { code: error.code, details: error.message, isOurs: false };
  if (error instanceof DecodeError) return { code: CODES.invalid_argument, details: error.message, isOurs: false };
  const problem = problemOf(error);
  const code = rpcCodeOf(problem);
  const refused = problem.status < 500 ? CODES.invalid_argument : CODES.unknown;
  return {
    code: SHOWN.has(code) ? (code as Code) : refused,
    details: problem.message,
    isOurs: problem.code === INTERNAL.code,
  };
}
