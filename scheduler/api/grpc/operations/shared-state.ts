// Maps, queues and signals, by the rules of their REST routes: the same checks, bounds and rates. Published clients
// pickle every value; a value that another client wrote as JSON is told pickled.
import type { TObject } from 'typebox';
import {
  MapCountResponse,
  MapKeyRequest,
  MapKeysResponse,
  MapSetRequest,
  NameRequest,
  QueueEmptyResponse,
  QueuePutRequest,
  QueueSizeResponse,
  SignalMonitorResponse,
  SignalSetRequest,
  ValueResponse,
} from '#shared/api/shared-state.ts';
import { Done } from '#shared/api/fields.ts';
import { MAX_KEY_CHARACTERS, MAX_NAME_CHARACTERS, MAX_VALUE_CHARACTERS } from '#shared/api/rest/shared-state.ts';
import { AppError } from '#shared/errors.ts';
import type { SharedEntry } from '../../../stores/store/queries/shared-entries.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { SIGNAL_SECONDS } from '../../../workspaces/shared-state/service.ts';
import type { NewValue, SharedBy, SharedState } from '../../../workspaces/shared-state/service.ts';
import type { SignalWatch } from '../../../workspaces/shared-state/signal-watch.ts';
import { checked, lifeOf, valueOf } from '../../http/rest/shared-state.ts';
import { unrouted } from '../../operations/operation.ts';
import type { OperationDefinition, UnroutedOperation } from '../../operations/operation.ts';
import { CODES, RpcStatus } from '../statuses.ts';
import { pickleOf } from './pickle.ts';

export interface SharedStateParts {
  readonly sharedState: SharedState;
  readonly signalWatch: Pick<SignalWatch, 'watch'>;
  /** Counts a request in the workspace's rate. @throws AppError `rate_limited` */
  readonly mayAsk: (caller: Caller, kind: 'rest' | 'state') => Promise<void>;
}

/** Keys that an answer holds, as pages of the service give them. */
const PAGE = 1_000;
/** Characters of keys in an answer: clients take no longer message. */
const MOST_CHARACTERS = 4_000_000;
/** Bytes of a value, which the store keeps as base64. */
const MOST_VALUE = Math.floor(MAX_VALUE_CHARACTERS / 4) * 3;

const OK = { ok: true, errMsg: '' };
const byOf = ({ container }: Caller): SharedBy => container?.stubId;
const nameOf = ({ name }: { readonly name: string }): string => checked('name', name, MAX_NAME_CHARACTERS);
const keyOf = ({ key }: { readonly key: string }): string => checked('key', key, MAX_KEY_CHARACTERS);

/** @throws AppError `invalid_body` */
function pickled(value: Uint8Array, ttl = 0): NewValue {
  if (value.byteLength > MOST_VALUE)
    throw new AppError('invalid_body', `value must have at most ${MOST_VALUE} bytes once it is pickled`);
  const text = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64');
  return valueOf({ encoding: 'pickle', value: text, ttl_seconds: ttl });
}

const bytesOf = ({ encoding, value }: SharedEntry): Uint8Array =>
  encoding === 'pickle' ? Buffer.from(value, 'base64') : pickleOf(value);

export function sharedStateOperations(parts: SharedStateParts): readonly UnroutedOperation[] {
  const { sharedState: shared, signalWatch, mayAsk } = parts;
  const state = <Request extends TObject, Response extends TObject>(
    definition: Omit<OperationDefinition<'full', Request, Response>, 'http' | 'scope'>,
  ): UnroutedOperation =>
    unrouted<'full', Request, Response>({
      scope: 'full',
      containers: true,
      ...definition,
      handle: async (caller, request, origin) => {
        await mayAsk(caller, 'state');
        return await definition.handle(caller, request, origin);
      },
    });
  return [
    state({
      name: 'MapSet',
      request: MapSetRequest,
      response: Done,
      handle: async (caller, sent) => {
        await shared.putEntry(
          caller.workspaceId,
          nameOf(sent),
          keyOf(sent),
          pickled(sent.value, sent.ttl),
          byOf(caller),
        );
        return OK;
      },
    }),
    state({
      name: 'MapGet',
      request: MapKeyRequest,
      response: ValueResponse,
      handle: async (caller, sent) => {
        const found = await shared.entry(caller.workspaceId, nameOf(sent), keyOf(sent), byOf(caller));
        return { ...OK, value: bytesOf(found) };
      },
    }),
    state({
      name: 'MapDelete',
      request: MapKeyRequest,
      response: Done,
      handle: async (caller, sent) => {
        await shared.deleteEntry(caller.workspaceId, nameOf(sent), keyOf(sent));
        return OK;
      },
    }),
    state({
      name: 'MapCount',
      request: NameRequest,
      response: MapCountResponse,
      handle: async ({ workspaceId }, sent) => ({
        ...OK,
        count: await shared.count(workspaceId, 'map', nameOf(sent)),
      }),
    }),
    state({
      name: 'MapKeys',
      request: NameRequest,
      response: MapKeysResponse,
      handle: async ({ workspaceId }, sent) => ({ ...OK, keys: await allKeys(shared, workspaceId, nameOf(sent)) }),
    }),
    state({
      name: 'SimpleQueuePut',
      request: QueuePutRequest,
      response: Done,
      handle: async (caller, sent) => {
        await shared.push(caller.workspaceId, nameOf(sent), pickled(sent.value), undefined, byOf(caller));
        return OK;
      },
    }),
    ...(['pop', 'peek'] as const).map((take) =>
      state({
        name: take === 'pop' ? 'SimpleQueuePop' : 'SimpleQueuePeek',
        request: NameRequest,
        response: ValueResponse,
        handle: async (caller, sent) => {
          const item = await shared[take](caller.workspaceId, nameOf(sent), byOf(caller));
          // No pickled value has no bytes: an empty queue has none.
          return { ...OK, value: item === undefined ? new Uint8Array() : bytesOf(item) };
        },
      }),
    ),
    state({
      name: 'SimpleQueueEmpty',
      request: NameRequest,
      response: QueueEmptyResponse,
      handle: async ({ workspaceId }, sent) => ({
        ...OK,
        empty: (await shared.count(workspaceId, 'queue', nameOf(sent))) === 0,
      }),
    }),
    state({
      name: 'SimpleQueueSize',
      request: NameRequest,
      response: QueueSizeResponse,
      handle: async ({ workspaceId }, sent) => ({
        ...OK,
        size: await shared.count(workspaceId, 'queue', nameOf(sent)),
      }),
    }),
    state({
      name: 'SignalSet',
      request: SignalSetRequest,
      response: Done,
      handle: async (caller, sent) => {
        const seconds = lifeOf({ ttl_seconds: sent.ttl }) ?? SIGNAL_SECONDS;
        await shared.setSignal(caller.workspaceId, nameOf(sent), seconds, byOf(caller));
        return OK;
      },
    }),
    state({
      name: 'SignalClear',
      request: NameRequest,
      response: Done,
      handle: async ({ workspaceId }, sent) => {
        await shared.clearSignal(workspaceId, nameOf(sent));
        return OK;
      },
    }),
    state({
      name: 'SignalMonitor',
      request: NameRequest,
      response: SignalMonitorResponse,
      handle: async ({ workspaceId }, sent) => ({
        ...OK,
        set: (await shared.signal(workspaceId, nameOf(sent))) !== undefined,
      }),
      stream: async function* (caller, sent, signal) {
        await mayAsk(caller, 'state');
        for await (const set of signalWatch.watch(caller.workspaceId, nameOf(sent), signal)) yield { ...OK, set };
      },
    }),
  ];
}

/** @throws RpcStatus because the keys do not fit into a message. Without a status the client would see an empty map. */
async function allKeys(shared: SharedState, workspaceId: Caller['workspaceId'], name: string): Promise<string[]> {
  const keys: string[] = [];
  let characters = 0;
  for (;;) {
    const page = await shared.keys(workspaceId, name, keys.at(-1) ?? '', PAGE);
    for (const key of page) characters += key.length;
    if (characters > MOST_CHARACTERS)
      throw new RpcStatus(
        CODES.resource_exhausted,
        `the keys of map ${name} have more than ${MOST_CHARACTERS} characters together`,
      );
    keys.push(...page);
    if (page.length < PAGE) return keys;
  }
}
