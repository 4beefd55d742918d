// Routes that are neither operations of the gateway nor of the workspace REST API, as openapi.json describes them:
// invoking, uploads, and operators' pages; models and streams are in files of their own.
import { Type } from 'typebox';
import { Anything } from '#shared/api/fields.ts';
import { Count } from '#shared/api/rest/lists.ts';
import { ANSWERS, Entry, ReloadAsked } from '../../../fleet/inside/messages.ts';
import { BeginSession, BegunSession, ConsoleSession } from '#shared/api/rest/session.ts';
import { MODEL_ROUTES } from './model-routes.ts';
import { bytes, json, text } from './plain-route.ts';
import type { Content, PlainRoute, RefusalTexts } from './plain-route.ts';
import { STREAM_ROUTES } from './stream-routes.ts';
import { TaskAccepted, TasksAccepted } from '#shared/api/rest/tasks.ts';

/** Keywords of any handler; `args` are positional ones, and `kwargs`, when given, replaces all other keywords. */
export const INPUTS = Type.Object(
  {
    args: Type.Optional(Type.Array(Anything(), { description: 'positional arguments' })),
    kwargs: Type.Optional(
      Type.Record(Type.String(), Anything(), { description: 'keyword arguments; others are ignored then' }),
    ),
    callback_url: Type.Optional(Type.String({ description: 'told how the task ended' })),
  },
  { additionalProperties: true, description: 'keyword arguments of the handler' },
);

const MANY_INPUTS: Content = {
  type: 'application/x-ndjson',
  schema: Type.String({ description: 'up to 1000 calls, a JSON object on each line; answered with task_ids' }),
};

const CALLED: RefusalTexts = {
  400: 'no such deployment, version or stub; it is not active; the body is no JSON object (detail says where); the callback_url or the Idempotency-Key cannot be used',
  401: 'no token, a bad one, or one of another workspace',
  403: 'a callback_url from a container whose network is limited, or pickled inputs of a caller who may not send code',
  408: 'the body came slower than 8 KiB per second',
  413: 'the body is larger than LONGSHORE_MAX_INVOKE_BODY_BYTES',
  422: 'the Idempotency-Key stands for a call with another body or other query parameters',
  429: 'as many tasks are pending as may be, calls of the key come more often than the deployment takes them, the workspace calls more often than it may or has as many idempotency keys as it may, or too many bad tokens came from this address',
  503: 'nothing can serve it: no machine has that GPU, the database or the queues are away, the scheduler is stopping, or too many bodies are under way',
};
/** Refusals of a call whose caller waits for the handler's answer. */
const WAITED: RefusalTexts = {
  ...CALLED,
  500: 'the handler raised, its process exited, or no container of it starts: the error says which',
  422: `an input of the handler is missing, not known, or of another type than its annotation; or ${CALLED[422]}`,
  502: 'lost after it was handed to a machine; it does not run again',
  503: `${CALLED[503]}, or its deployment was stopped`,
  504: 'no container served it in time, or it ran longer than it may',
};
const WARMED: RefusalTexts = {
  400: 'no such deployment, version or stub, or it is not active',
  401: CALLED[401] ?? '',
  408: CALLED[408] ?? '',
  413: CALLED[413] ?? '',
  429: 'too many bad tokens came from this address',
  503: 'the database or the queues are away, the scheduler is stopping, or too many bodies are under way',
};

const ANSWERED: readonly Content[] = [
  json(Anything({ description: 'what the handler returned' })),
  { type: 'text/event-stream', schema: Type.String({ description: 'an event for each item that a handler yields' }) },
];

interface Kind {
  readonly kind: string;
  /** The verb of the summary; the deployment's name follows it. */
  readonly does: string;
  /** Addition to the summary of the first form. */
  readonly more?: string;
  readonly mayBePublic: boolean;
  readonly warmsUp: boolean;
  readonly waits: boolean;
}

const KINDS: readonly Kind[] = [
  { kind: 'endpoint', does: 'Call', mayBePublic: true, warmsUp: true, waits: true },
  {
    kind: 'taskqueue',
    does: 'Put a task to',
    more: "; answers with the task's id",
    mayBePublic: true,
    warmsUp: true,
    waits: false,
  },
  ...['function', 'schedule'].map((kind) => ({
    kind,
    does: 'Run',
    more: "; answers with the task's id",
    mayBePublic: false,
    warmsUp: false,
    waits: false,
  })),
];

/** Headers of every form of invoking. */
const CALL_HEADERS = {
  'Idempotency-Key':
    'The same key within 24 hours gives the same task, and a synchronous caller its answer, also while it runs; an answer of an earlier call has Idempotency-Replayed: true. 1 to 255 visible ASCII characters, plain or as a quoted string; choose a random one.',
};
const FLOW_HEADERS = {
  'X-Longshore-Key':
    'The key of flow control, instead of the field of the input: 1 to 128 characters, percent-encoded.',
};
const QUEUE_HEADERS = {
  'X-Longshore-Priority':
    'Head start in its queue in whole seconds, from -3600 to 3600, where its flow control has priorities.',
};

function invokeRoutes({ kind, does, more = '', mayBePublic, warmsUp, waits }: Kind): readonly PlainRoute[] {
  const invoked = {
    tag: 'invoke',
    headers: {
      ...CALL_HEADERS,
      ...(mayBePublic ? FLOW_HEADERS : {}),
      ...(kind === 'taskqueue' ? QUEUE_HEADERS : {}),
    },
    body: waits ? json(INPUTS) : [json(INPUTS), MANY_INPUTS],
    answer: waits ? ANSWERED : json(Type.Union([TaskAccepted, TasksAccepted])),
    refusals: waits ? WAITED : CALLED,
  } as const;
  const forms = [
    [`/${kind}/{name}`, 'the newest version'],
    [`/${kind}/{name}/latest`, 'the newest version'],
    [`/${kind}/{name}/{version}`, 'version v{n}'],
    [`/${kind}/id/{stubId}`, 'a stub'],
  ] as const;
  return [
    ...forms.map(([path, what], index) => ({
      http: `POST ${path}`,
      summary: `${does} ${what}${index === 0 ? more : ''}`,
      ...invoked,
    })),
    ...(mayBePublic
      ? [
          { http: `POST /${kind}/public/{stubId}`, summary: `${does} a public stub`, open: true, ...invoked },
          {
            http: `POST /${kind}/public/{workspace}/{name}`,
            summary: `${does} a public deployment by its name`,
            open: true,
            ...invoked,
          },
        ]
      : []),
    ...(warmsUp
      ? forms.map(([path, what]) => ({
          http: `POST ${path}/warmup`,
          summary: `Start a container of ${what}`,
          tag: 'invoke' as const,
          refusals: WARMED,
        }))
      : []),
  ];
}

const Health = Type.Object({
  status: Type.String({ description: 'ok, unavailable or draining' }),
  version: Type.Optional(Type.String({ description: 'of the scheduler that answers; absent while it drains' })),
  failing: Type.Optional(Type.Array(Type.String(), { description: 'database, redis' })),
  warnings: Type.Optional(Type.Array(Type.String(), { description: 'what the operator should know of the server' })),
});
const METRICS_READERS = ['unauthorized', 'rate_limited'];
const PROMETHEUS = text('text/plain');

const FILE_SUMMARIES = {
  GET: 'Download a file of a volume from the address that file-url gave, whole or a range',
  HEAD: 'Size and ETag of a file; at an address for PUT: how many bytes of an upload have arrived, as Upload-Offset',
  PUT: 'Upload a file of a volume to the address that file-url gave',
} as const;
const CONDITIONS = { 'If-None-Match': 'the ETag', 'If-Match': 'the ETag' };
const FILE_HEADERS: Readonly<Record<'GET' | 'HEAD' | 'PUT', Readonly<Record<string, string>>>> = {
  GET: { Range: 'one range of bytes; several are ignored', 'If-Range': 'the ETag', ...CONDITIONS },
  HEAD: CONDITIONS,
  PUT: { 'Content-Range': 'bytes FIRST-LAST/TOTAL: a part of the upload; bytes */TOTAL: how many bytes have arrived' },
};
const FILE_ERRORS = [
  'volume_not_found',
  'volume_without_home',
  'volume_file_irregular',
  'too_many_transfers',
  'machine_away',
  'volume_failed',
  'machine_silent',
  'database_unavailable',
  'database_timeout',
];
const GET_FILE_ERRORS = ['download_refused', 'volume_file_not_found', 'precondition_failed', 'range_not_satisfiable'];
const PUT_FILE_ERRORS = [
  'upload_refused',
  'upload_incomplete',
  'invalid_content_range',
  'body_too_slow',
  'upload_offset_mismatch',
  'upload_in_progress',
  'disk_full',
  'disk_read_only',
  'volume_quota_reached',
];

const PACK = bytes('application/x-longshore-pack');
/** Answer to a pack that was written. */
const PackWritten = Type.Object({
  files: Count('files that are whole'),
  bytes: Count('of all records'),
  failures: Count('records that could not be written'),
  failed: Type.Array(Type.Object({ path: Type.String(), code: Type.String(), message: Type.String() }), {
    description: 'the first 100 of them',
  }),
});
const PACK_ERRORS = ['invalid_body', 'volume_file_not_found', ...FILE_ERRORS];

const REACHED = [
  'bad_request',
  'invalid_query',
  'unauthorized',
  'container_not_found',
  'not_found',
  'path_denied',
  'container_not_running',
  'path_conflict',
  'rate_limited',
  'too_many_connections',
  'container_failed',
  'machine_silent',
  'deadline_exceeded',
] as const;
/** Files in containers; docs/pods.md describes the WebSockets beside them. */
const CONTAINER_FILE_ROUTES: readonly PlainRoute[] = [
  {
    http: 'GET /api/v1/gateway/containers/{containerId}/files',
    tag: 'pods',
    summary: 'Read a file of a container, or a file or directory as a tar (archive=tar), or facts about it (stat=true)',
    query: ['path', 'archive', 'stat'],
    answer: [bytes('application/octet-stream'), bytes('application/x-tar'), json(Entry)],
    errors: REACHED,
  },
  {
    http: 'PUT /api/v1/gateway/containers/{containerId}/files',
    tag: 'pods',
    summary: 'Write a file of a container, whole or not at all, or unpack a tar into a directory (archive=tar)',
    query: ['path', 'archive', 'mode', 'append'],
    body: [bytes('application/octet-stream'), bytes('application/x-tar')],
    answer: json(Type.Object({ size: Type.Optional(Count('bytes')) })),
    errors: [...REACHED, 'body_too_slow', 'disk_full'],
  },
  {
    http: 'DELETE /api/v1/gateway/containers/{containerId}/files',
    tag: 'pods',
    summary: 'Delete a file of a container, or a directory with all in it (recursive=true)',
    query: ['path', 'recursive'],
    answer: json(Type.Object({})),
    errors: REACHED,
  },
  {
    http: 'POST /api/v1/gateway/containers/{containerId}/reload',
    tag: 'pods',
    summary:
      'Have a development server load its app anew, where it has loaded one of these files; loading: it still does after 20 s',
    body: json(ReloadAsked),
    answer: json(ANSWERS.reload),
    errors: REACHED.filter((code) => code !== 'invalid_query'),
  },
];

const PACK_ROUTES: readonly PlainRoute[] = [
  {
    http: 'POST /api/v1/gateway/volumes/packs/{volumeId}',
    tag: 'objects',
    summary: 'Read many files of a volume, at the address that pack-url gave; docs/volumes.md describes packs',
    open: true,
    query: ['path', 'expires', 'signature'],
    body: bytes('application/x-ndjson'),
    answer: PACK,
    errors: ['download_refused', 'body_too_large', 'body_too_slow', ...PACK_ERRORS],
  },
  {
    http: 'PUT /api/v1/gateway/volumes/packs/{volumeId}',
    tag: 'objects',
    summary: 'Write many files of a volume, at the address that pack-url gave for PUT',
    open: true,
    query: ['path', 'expires', 'signature'],
    body: PACK,
    answer: json(PackWritten),
    errors: ['volume_quota_reached', 'upload_refused', 'body_too_slow', 'disk_full', 'disk_read_only', ...PACK_ERRORS],
  },
];

const OF_CONSOLE = ['foreign_page', 'misdirected', 'not_found'];
const CONSOLE_HEADERS = { 'X-Longshore-Console': 'the key of the session; its other half is a cookie' };

export const PLAIN_ROUTES: readonly PlainRoute[] = [
  {
    http: 'PUT /api/v1/gateway/objects/upload/{objectId}',
    tag: 'objects',
    summary: 'Upload to the address that CreateObject gave',
    open: true,
    query: ['expires', 'signature'],
    headers: {
      'Content-Range': 'bytes FIRST-LAST/TOTAL: a part of the upload; bytes */TOTAL: how many bytes have arrived',
    },
    body: bytes('application/octet-stream'),
    answer: json(Type.Object({ size: Count('bytes'), sha256: Type.String() })),
    others: {
      202: { description: 'More bytes are to come: Upload-Offset says from which on' },
    },
    errors: [
      'upload_incomplete',
      'invalid_content_range',
      'upload_refused',
      'object_not_found',
      'body_too_slow',
      'upload_offset_mismatch',
      'upload_in_progress',
      'body_too_large',
      'too_many_unfinished_uploads',
      'database_unavailable',
      'database_timeout',
      'disk_read_only',
      'disk_full',
      'object_quota_reached',
    ],
  },
  {
    http: 'HEAD /api/v1/gateway/objects/upload/{objectId}',
    tag: 'objects',
    summary: 'How many bytes of an upload have arrived: Upload-Offset, and Upload-Length of the whole',
    open: true,
    query: ['expires', 'signature'],
    errors: ['upload_refused', 'object_not_found', 'database_unavailable', 'database_timeout'],
  },
  ...(['GET', 'HEAD'] as const).map((method) => ({
    http: `${method} /api/v1/gateway/objects/download/{objectId}`,
    tag: 'objects' as const,
    summary:
      method === 'GET'
        ? 'Download from the address that download-url gave, whole or a range'
        : 'Size and ETag of an object, at the address that download-url gave',
    open: true,
    query: ['expires', 'signature'],
    headers: {
      ...(method === 'GET' ? { Range: 'one range of bytes; several are ignored', 'If-Range': 'the ETag' } : {}),
      'If-None-Match': 'the ETag',
      'If-Match': 'the ETag',
    },
    ...(method === 'GET' ? { answer: bytes('application/octet-stream') } : {}),
    others: {
      ...(method === 'GET'
        ? { 206: { description: 'A range of the bytes', content: bytes('application/octet-stream') } }
        : {}),
      304: { description: 'The client has these bytes' },
    },
    errors: [
      'download_refused',
      'object_not_found',
      'precondition_failed',
      ...(method === 'GET' ? ['range_not_satisfiable'] : []),
      'database_unavailable',
      'database_timeout',
    ],
  })),
  ...(['GET', 'HEAD', 'PUT'] as const).map((method) => ({
    http: `${method} /api/v1/gateway/volumes/files/{volumeId}`,
    tag: 'objects' as const,
    summary: FILE_SUMMARIES[method],
    open: true,
    query: ['path', 'expires', 'signature'],
    headers: FILE_HEADERS[method],
    ...(method === 'PUT'
      ? { body: bytes('application/octet-stream'), answer: json(Type.Object({ size: Count('bytes') })) }
      : {}),
    ...(method === 'GET' ? { answer: bytes('application/octet-stream') } : {}),
    others:
      method === 'PUT'
        ? { 202: { description: 'More bytes are to come: Upload-Offset says from which on' } }
        : {
            ...(method === 'GET'
              ? { 206: { description: 'A range of the bytes', content: bytes('application/octet-stream') } }
              : {}),
            304: { description: 'The client has these bytes' },
          },
    errors: [...(method === 'PUT' ? PUT_FILE_ERRORS : GET_FILE_ERRORS), ...FILE_ERRORS],
  })),
  ...PACK_ROUTES,
  ...CONTAINER_FILE_ROUTES,
  ...KINDS.flatMap(invokeRoutes),
  ...STREAM_ROUTES,
  ...MODEL_ROUTES,
  {
    http: 'GET /metrics',
    tag: 'operations',
    summary: 'Prometheus metrics; without a token from this host itself',
    answer: PROMETHEUS,
    errors: METRICS_READERS,
  },
  {
    http: 'GET /metrics/machines/{id}',
    tag: 'operations',
    summary: "Prometheus metrics of a machine, through its agent's link",
    answer: PROMETHEUS,
    errors: [...METRICS_READERS, 'machine_not_found', 'machine_away', 'too_many_pages', 'machine_silent'],
  },
  {
    http: 'GET /api/v1/discovery/prometheus',
    tag: 'operations',
    summary: 'Every page of metrics there is, as http_sd of Prometheus reads it',
    answer: json(
      Type.Array(
        Type.Object({ targets: Type.Array(Type.String()), labels: Type.Record(Type.String(), Type.String()) }),
      ),
    ),
    errors: METRICS_READERS,
  },
  {
    http: 'GET /api/v1/health',
    tag: 'operations',
    summary: 'Ready for traffic',
    open: true,
    answer: json(Health),
    others: { 503: { description: 'not ready: failing says why', content: json(Health) } },
  },
  { http: 'GET /api/v1/health/live', tag: 'operations', summary: 'Alive', open: true, answer: json(Health) },
  {
    http: 'GET /install/agent',
    tag: 'operations',
    summary: 'The script that installs an agent on a machine',
    open: true,
    query: ['channel'],
    answer: text('text/x-shellscript'),
    errors: ['release_not_found'],
  },
  {
    http: 'GET /install/releases/{file}',
    tag: 'operations',
    summary: 'The archive that the script installs, or with .asc its signature',
    open: true,
    answer: bytes('application/gzip'),
    errors: ['release_not_found'],
  },
  ...(['GET', 'HEAD'] as const).flatMap((method): readonly PlainRoute[] => [
    {
      http: `${method} /install`,
      tag: 'operations',
      summary: 'A page with lines that install the command line and the Python module',
      open: true,
      ...(method === 'GET' ? { answer: text('text/html') } : {}),
      errors: ['package_not_found'],
    },
    {
      http: `${method} /install/{file}`,
      tag: 'operations',
      summary: 'A package of the command line or the Python module',
      open: true,
      headers: { 'If-None-Match': 'the ETag' },
      ...(method === 'GET' ? { answer: [bytes('application/gzip'), bytes('application/zip')] } : {}),
      others: { 304: { description: 'the file that If-None-Match names is still the same' } },
      errors: ['package_not_found'],
    },
  ]),
  {
    http: 'POST /console/session',
    tag: 'operations',
    summary: 'Sign a browser in to the web console, by the code of a link or by a token',
    open: true,
    body: json(BeginSession),
    answer: json(BegunSession),
    errors: ['bad_request', 'unauthorized', 'invalid_body', 'rate_limited', ...OF_CONSOLE],
  },
  {
    http: 'GET /console/session',
    tag: 'operations',
    summary: 'The session of a browser, by its cookie and its key',
    open: true,
    headers: CONSOLE_HEADERS,
    answer: json(ConsoleSession),
    errors: ['unauthorized', 'rate_limited', ...OF_CONSOLE],
  },
  {
    http: 'DELETE /console/session',
    tag: 'operations',
    summary: 'Sign a browser out',
    open: true,
    headers: CONSOLE_HEADERS,
    errors: ['unauthorized', 'rate_limited', ...OF_CONSOLE],
  },
  {
    http: 'GET /openapi.json',
    tag: 'operations',
    summary: 'This description',
    open: true,
    answer: json(Type.Object({}, { additionalProperties: true })),
  },
  { http: 'GET /docs', tag: 'operations', summary: 'The same as a page', open: true, answer: text('text/html') },
  {
    http: 'GET /docs/{file}',
    tag: 'operations',
    summary: 'Files of that page',
    open: true,
    answer: [text('text/javascript'), text('text/css'), bytes('image/png')],
    errors: ['not_found'],
    others: { 304: { description: 'the file that If-None-Match names is still the same' } },
  },
];
