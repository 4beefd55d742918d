// The calls that published clients make, made from the tables of services: an operation serves a call, or an answer
// that is always the same. Adapters say where the two messages differ.
import type { Caller } from '../../workspaces/identity/caller.ts';
import type { Operation, UnroutedOperation } from '../operations/operation.ts';
import { compileDecoder } from '../http/decode.ts';
import { compileEncoder } from '../http/encode.ts';
import type { Plain } from './descriptor.ts';
import { SERVICES } from './services/index.ts';
import { REFUSED_CALLS } from './services/refused.ts';
import type { RefusedCall } from './services/refused.ts';
import { messagesOf, recordOf } from './services/service.ts';
import type { Adapter, Headers } from './services/service.ts';

type Permission = Pick<Operation, 'name' | 'scope' | 'containers' | 'grants' | 'refusal'>;

/** A call as it is served. */
export interface Rpc
  extends
    Permission,
    Pick<Operation, 'handle' | 'stream' | 'duplex' | 'withinMs'>,
    Pick<Adapter, 'comesBack' | 'repeats' | 'isLarge'> {
  /** `/gateway.GatewayService/ListTasks` */
  readonly path: string;
  /** Messages in the table of fields. */
  readonly request: string;
  readonly response: string;
  /** The request of the handler, from the message. @throws DecodeError */
  readonly read: (message: Plain, headers: Headers) => unknown;
  /** The text of a refusal of what the message asks for; undefined: none. */
  readonly refuses: (message: Plain) => string | undefined;
  /** The message of the answer, by names of operations. */
  readonly tell: (answer: unknown, caller: Caller | null) => Plain;
  /** The only answer, which no handler makes; absent: a handler answers. */
  readonly refused?: RefusedCall;
}

const none = (): undefined => undefined;

/** Every call that is served. @throws Error where an operation is not there */
export function allRpcs(operations: readonly UnroutedOperation[]): readonly Rpc[] {
  const byName = new Map(operations.map((operation) => [operation.name, operation]));
  return SERVICES.flatMap(({ pack, name: service, calls = {} }) =>
    Object.entries(calls).map(([name, adapter]) => {
      const operation = byName.get(adapter.operation ?? name);
      if (operation === undefined) throw new Error(`no operation serves ${pack}.${service}/${name}`);
      return {
        path: `/${pack}.${service}/${name}`,
        ...messagesOf(pack, name, adapter),
        ...served(operation, adapter),
        ...(adapter.comesBack === undefined ? {} : { comesBack: adapter.comesBack }),
        ...(adapter.repeats === undefined ? {} : { repeats: adapter.repeats }),
        ...(adapter.isLarge === undefined ? {} : { isLarge: adapter.isLarge }),
        name,
      };
    }),
  );
}

/** Calls that every caller with a good token is refused. @param served - a call that is served is not refused */
export function refusedRpcs(served: readonly Pick<Rpc, 'path'>[]): readonly Rpc[] {
  const known = new Set(served.map(({ path }) => path));
  return REFUSED_CALLS.filter(({ path }) => !known.has(path)).map((refused) => ({
    name: refused.path,
    path: refused.path,
    scope: 'any',
    containers: true,
    grants: {},
    refusal: refused.text,
    request: '',
    response: '',
    read: recordOf,
    refuses: none,
    handle: () => Promise.reject(new Error('a refused call has no handler')),
    tell: recordOf,
    refused,
  }));
}

/** An answer that is always the same has the permissions of the operation that would do it. */
function served(operation: UnroutedOperation, adapter: Adapter): Omit<Rpc, 'path' | 'request' | 'response'> {
  const { always, read = (message) => message, refuses = none, tell = (answer) => answer } = adapter;
  const { name, scope, containers, grants, refusal, stream, duplex, withinMs, handle } = operation;
  const permission = { name, scope, containers, grants, refusal };
  if (always !== undefined)
    return {
      ...permission,
      read: (message) => message,
      refuses: none,
      handle: () => Promise.resolve(always),
      tell: recordOf,
    };
  const decode = compileDecoder(operation.request);
  const encode = compileEncoder(operation.response);
  return {
    ...permission,
    handle,
    ...(stream === undefined ? {} : { stream }),
    ...(duplex === undefined ? {} : { duplex }),
    ...(withinMs === undefined ? {} : { withinMs }),
    read: (message, headers) => decode(read(message, headers)),
    refuses,
    tell: (answer, caller) => tell(recordOf(encode(answer)), caller),
  };
}
