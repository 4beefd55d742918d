import { timestampOf } from '#shared/api/fields.ts';
import {
  MAX_KEY_CHARACTERS,
  MAX_NAME_CHARACTERS,
  MAX_VALUE_CHARACTERS,
  MapEntry,
  MapEntryQuery,
  MapKeys,
  MapKeysQuery,
  PopQueueItem,
  PoppedQueueItem,
  PushQueueItem,
  PutMapEntry,
  QueueState,
  SetSignal,
  SharedNameQuery,
  SharedNames,
  SharedNamesQuery,
  SignalState,
} from '#shared/api/rest/shared-state.ts';
import { Removed } from '#shared/api/rest/lists.ts';
import type { QueueItem } from '#shared/api/rest/shared-state.ts';
import { MAX_LIFE_SECONDS } from '#shared/domain/shared-life.ts';
import { AppError } from '#shared/errors.ts';
import type { SharedEntry } from '../../../stores/store/queries/shared-entries.ts';
import { SIGNAL_SECONDS } from '../../../workspaces/shared-state/service.ts';
import type { NewValue, SharedBy, SharedState } from '../../../workspaces/shared-state/service.ts';
import { nameCursorOf, pageByName, pageLimit } from './paging.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestDefinition, RestRequest, RestRoute } from './route.ts';

const MOST_KEYS = 1_000;

/** Maps, queues and signals of a workspace. A container calls them with its own credential. */
export function sharedStateRoutes(shared: SharedState): readonly RestRoute[] {
  const common = { scope: 'full', containers: true, rate: 'state' } as const satisfies Partial<
    RestDefinition<never, never, never>
  >;
  return [
    ...wholeRoutes(shared, 'map'),
    ...wholeRoutes(shared, 'queue'),
    restRoute({
      ...common,
      http: 'GET /map/{ws}/keys',
      grants: NOT_LIMITED,
      summary: 'The keys of a map, in their order',
      query: MapKeysQuery,
      answer: MapKeys,
      handle: async ({ workspaceId, query }) => {
        const name = checked('name', query.name, MAX_NAME_CHARACTERS, 'invalid_query');
        const limit = Math.min(query.limit ?? MOST_KEYS, MOST_KEYS) || MOST_KEYS;
        const [keys, count] = await Promise.all([
          shared.keys(workspaceId, name, query.after ?? '', limit),
          shared.count(workspaceId, 'map', name),
        ]);
        return { data: [...keys], next: keys.length < limit ? '' : (keys.at(-1) ?? ''), count };
      },
    }),
    restRoute({
      ...common,
      http: 'GET /map/{ws}/entry',
      grants: NOT_LIMITED,
      summary: 'The value of a key',
      query: MapEntryQuery,
      answer: MapEntry,
      errors: ['entry_not_found', 'value_not_trusted'],
      handle: async (request) => {
        const { name, key } = placeOf(request.query, 'invalid_query');
        const found = await shared.entry(request.workspaceId, name, key, byOf(request));
        return { key, ...itemOf(found) };
      },
    }),
    restRoute({
      ...common,
      http: 'PUT /map/{ws}/entry',
      summary: 'Set the value of a key',
      body: PutMapEntry,
      errors: ['shared_state_full'],
      handle: async (request) => {
        const { name, key } = placeOf(request.body);
        await shared.putEntry(request.workspaceId, name, key, valueOf(request.body), byOf(request));
        return undefined;
      },
    }),
    restRoute({
      ...common,
      http: 'DELETE /map/{ws}/entry',
      summary: 'Delete a key',
      query: MapEntryQuery,
      errors: ['entry_not_found'],
      handle: async ({ workspaceId, query }) => {
        const { name, key } = placeOf(query, 'invalid_query');
        await shared.deleteEntry(workspaceId, name, key);
        return undefined;
      },
    }),
    restRoute({
      ...common,
      http: 'GET /queue/{ws}',
      grants: NOT_LIMITED,
      summary: 'The size of a queue, and its oldest item, which stays there',
      query: SharedNameQuery,
      answer: QueueState,
      errors: ['value_not_trusted'],
      handle: async (request) => {
        const name = checked('name', request.query.name, MAX_NAME_CHARACTERS, 'invalid_query');
        const size = await shared.count(request.workspaceId, 'queue', name);
        const first = await shared.peek(request.workspaceId, name, byOf(request));
        return { size, first: first === undefined ? null : itemOf(first) };
      },
    }),
    restRoute({
      ...common,
      http: 'POST /queue/{ws}',
      summary: 'Add an item at the end of a queue',
      body: PushQueueItem,
      errors: ['shared_state_full'],
      handle: async (request) => {
        const { body } = request;
        const name = checked('name', body.name, MAX_NAME_CHARACTERS);
        const most = body.max_size === undefined || body.max_size === 0 ? undefined : body.max_size;
        await shared.push(request.workspaceId, name, valueOf(body), most, byOf(request));
        return undefined;
      },
    }),
    restRoute({
      ...common,
      http: 'POST /queue/{ws}/pop',
      summary: 'Take the oldest item of a queue; null: the queue is empty',
      body: PopQueueItem,
      answer: PoppedQueueItem,
      errors: ['value_not_trusted'],
      handle: async (request) => {
        const name = checked('name', request.body.name, MAX_NAME_CHARACTERS);
        const item = await shared.pop(request.workspaceId, name, byOf(request));
        return { item: item === undefined ? null : itemOf(item) };
      },
    }),
    restRoute({
      ...common,
      http: 'GET /signal/{ws}',
      grants: NOT_LIMITED,
      summary: 'Whether a signal is set',
      query: SharedNameQuery,
      answer: SignalState,
      handle: async ({ workspaceId, query }) => {
        const found = await shared.signal(
          workspaceId,
          checked('name', query.name, MAX_NAME_CHARACTERS, 'invalid_query'),
        );
        return { set: found !== undefined, revision: found?.id ?? 0 };
      },
    }),
    restRoute({
      ...common,
      http: 'PUT /signal/{ws}',
      summary: 'Set a signal',
      body: SetSignal,
      errors: ['shared_state_full'],
      handle: async (request) => {
        const name = checked('name', request.body.name, MAX_NAME_CHARACTERS);
        await shared.setSignal(request.workspaceId, name, lifeOf(request.body) ?? SIGNAL_SECONDS, byOf(request));
        return undefined;
      },
    }),
    restRoute({
      ...common,
      http: 'DELETE /signal/{ws}',
      summary: 'Clear a signal, set or not',
      query: SharedNameQuery,
      handle: async ({ workspaceId, query }) => {
        await shared.clearSignal(workspaceId, checked('name', query.name, MAX_NAME_CHARACTERS, 'invalid_query'));
        return undefined;
      },
    }),
  ];
}

/** Routes for persons, about maps or queues as wholes. */
const wholeRoutes = (shared: SharedState, kind: 'map' | 'queue'): readonly RestRoute[] => [
  restRoute({
    http: `GET /${kind}/{ws}/names`,
    scope: 'full',
    rate: 'state',
    grants: NOT_LIMITED,
    summary: `The ${kind}s that have something, by name`,
    query: SharedNamesQuery,
    answer: SharedNames,
    errors: ['invalid_cursor'],
    handle: async ({ workspaceId, query }) => {
      const limit = pageLimit(query);
      const { page, next } = pageByName(await shared.names(workspaceId, kind, nameCursorOf(query), limit + 1), limit);
      return { data: [...page], next };
    },
  }),
  restRoute({
    http: `DELETE /${kind}/{ws}`,
    scope: 'full',
    rate: 'state',
    summary: `Delete all that a ${kind} has`,
    query: SharedNameQuery,
    answer: Removed,
    handle: async ({ workspaceId, query }) => {
      const name = checked('name', query.name, MAX_NAME_CHARACTERS, 'invalid_query');
      const { removed, isComplete } = await shared.clear(workspaceId, kind, name);
      return { removed, complete: isComplete };
    },
  }),
];

const byOf = ({ caller }: Pick<RestRequest, 'caller'>): SharedBy => caller.container?.stubId;

const itemOf = (entry: SharedEntry): QueueItem => ({
  encoding: entry.encoding,
  value: entry.value,
  expires_at: timestampOf(entry.expiresAtMs),
});

type Code = 'invalid_body' | 'invalid_query';

function placeOf(
  sent: { readonly name?: string; readonly key?: string },
  code: Code = 'invalid_body',
): { name: string; key: string } {
  return {
    name: checked('name', sent.name, MAX_NAME_CHARACTERS, code),
    key: checked('key', sent.key, MAX_KEY_CHARACTERS, code),
  };
}

/** @throws AppError `invalid_body` */
export function valueOf(sent: {
  readonly encoding: string;
  readonly value: string;
  readonly ttl_seconds?: number;
}): NewValue {
  const { encoding, value } = sent;
  if (encoding !== 'json' && encoding !== 'pickle') throw invalid('encoding must be json or pickle');
  if (value.length > MAX_VALUE_CHARACTERS) throw invalid(`value must have at most ${MAX_VALUE_CHARACTERS} characters`);
  return { encoding, value, livesSeconds: lifeOf(sent) };
}

/** The seconds that a value lives; undefined: not said. @throws AppError `invalid_body` */
export function lifeOf({ ttl_seconds: seconds }: { readonly ttl_seconds?: number }): number | undefined {
  if (seconds === undefined || seconds === 0) return undefined;
  if (seconds > 0 && seconds <= MAX_LIFE_SECONDS) return seconds;
  throw invalid(`ttl_seconds must be a whole number from 1 to ${MAX_LIFE_SECONDS}`);
}

/** @throws AppError `invalid_body`, `invalid_query` */
export function checked(field: string, text: string | undefined, most: number, code: Code = 'invalid_body'): string {
  if (text === undefined || text === '' || text.length > most || text.includes('\0'))
    throw new AppError(code, `${field} must be a text of 1 to ${most} characters`);
  return text;
}

const invalid = (text: string): AppError => new AppError('invalid_body', text);
