// Calls that any container may make through its socket, by method and path. The agent lets no other call pass, and the
// scheduler checks again. The surfaces decide which of these calls a container's credential may make.

const NAME = '[^/]+';
const TASK_KINDS = 'endpoint|taskqueue|function|schedule';

const CALLS: readonly (readonly [methods: readonly string[], path: RegExp])[] = [
  [['POST'], /^\/api\/v1\/gateway\/auth\/(authorize|sign)$/],
  [['GET'], /^\/api\/v1\/gateway\/tasks$/],
  [['POST'], /^\/api\/v1\/gateway\/tasks\/(start|end)$/],
  [['POST'], /^\/api\/v1\/gateway\/(objects|stubs|volumes)$/],
  [['GET'], new RegExp(`^/api/v1/gateway/objects/${NAME}$`)],
  [['PUT'], new RegExp(`^/api/v1/gateway/objects/upload/${NAME}$`)],
  [['GET'], /^\/api\/v1\/workspace\/current$/],
  [['GET'], new RegExp(`^/api/v1/task/${NAME}/${NAME}(/subscribe)?$`)],
  [['POST'], new RegExp(`^/api/v1/output/${NAME}$`)],
  [['GET'], new RegExp(`^/api/v1/output/${NAME}/${NAME}/url$`)],
  // Maps, queues and signals of the workspace.
  [['GET'], new RegExp(`^/api/v1/map/${NAME}/(keys|entry)$`)],
  [['PUT', 'DELETE'], new RegExp(`^/api/v1/map/${NAME}/entry$`)],
  [['GET', 'POST'], new RegExp(`^/api/v1/queue/${NAME}$`)],
  [['POST'], new RegExp(`^/api/v1/queue/${NAME}/pop$`)],
  [['GET', 'PUT', 'DELETE'], new RegExp(`^/api/v1/signal/${NAME}$`)],
  // By name (its latest version, or one), or by the id of a stub.
  [['GET', 'POST'], new RegExp(`^/(${TASK_KINDS})/${NAME}(/(latest|v[0-9]{1,9}))?$`)],
  [['GET', 'POST'], new RegExp(`^/(${TASK_KINDS})/(id|public)/${NAME}$`)],
  // Applications and pods that stream: any path below their own.
  [['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'], new RegExp(`^/(asgi|pod)/${NAME}(/.*)?$`)],
];

/** @param path - without its query. Pure. */
export function isContainerCall(method: string, path: string): boolean {
  // A trailing slash is ignored, as servers do; a path that climbs is refused.
  const plain = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
  if (plain.split('/').some((part) => part === '.' || part === '..')) return false;
  return CALLS.some(([methods, pattern]) => methods.includes(method) && pattern.test(plain));
}

/** An error body that either daemon writes itself, with its text in the field that each kind of client reads. */
export const refusalBody = (code: string, message: string): string =>
  JSON.stringify({ ok: false, errMsg: message, errorMsg: message, message, code });

/** Headers that belong to one connection or to a proxy: never passed on. */
const NOT_PASSED_ON: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'forwarded',
  'host',
  'http2-settings',
  'keep-alive',
  'origin',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'via',
]);

export interface HttpHeader {
  readonly name: string;
  readonly value: string;
}

/**
 * The headers to pass on with a request or an answer. Pure. @param raw - alternating names and values, as Node has them
 */
export function headersToPass(raw: readonly string[]): HttpHeader[] {
  const passed: HttpHeader[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at] ?? '';
    const known = name.toLowerCase();
    if (NOT_PASSED_ON.has(known) || known.startsWith('x-forwarded-')) continue;
    passed.push({ name, value: raw[at + 1] ?? '' });
  }
  return passed;
}
