// Requests of the console: all through the passage below `/console/api`, with the key that is the session's other half.
// A refusal becomes an ApiError with the scheduler's own sentence, so that every screen can say what happened.
// Invariant: no token is ever kept here.
import { onceMore } from './once-more.ts';

/** Where the console is served, such as `/console`; a proxy may put a path before it. */
export const root = ((): string => {
  const { pathname } = location;
  const at = pathname.indexOf('/console');
  return at < 0 ? '/console' : pathname.slice(0, at + '/console'.length);
})();

const KEY = 'longshore-console-key';

export class ApiError extends Error {
  /** 0: no answer came. */
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly retryAfterSeconds: number | undefined;

  constructor(
    status: number,
    said: { readonly code?: unknown; readonly message?: unknown; readonly request_id?: unknown },
    retryAfter: string | null = null,
  ) {
    super(typeof said.message === 'string' && said.message !== '' ? said.message : `the scheduler answered ${status}`);
    this.name = 'ApiError';
    this.status = status;
    this.code = typeof said.code === 'string' ? said.code : '';
    this.requestId = typeof said.request_id === 'string' ? said.request_id : '';
    this.retryAfterSeconds = retryAfter === null ? undefined : Number(retryAfter);
  }
}

/** Where the key is read; a worker has no storage. */
export const keyStore = { read: (): string | null => localStorage.getItem(KEY) };
/** An error as a refusal; one that is no answer has no status. */
export const apiErrorOf = (error: unknown): ApiError =>
  error instanceof ApiError ? error : new ApiError(0, { message: String(error) });

export const keyOf = (): string | null => keyStore.read();
export const keepKey = (key: string): void => localStorage.setItem(KEY, key);
export const forgetKey = (): void => localStorage.removeItem(KEY);

/** Told when the scheduler refused a session; `session.ts` listens, and looks whether there is one now. */
export const sessionEnd: { tell: () => void } = { tell: () => undefined };

interface Sent {
  readonly method?: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE';
  readonly body?: unknown;
  readonly signal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Refusals of a session that is over, as the REST API and the gateway word them. */
const NO_SESSION: ReadonlySet<string> = new Set(['Unauthorized', 'invalid or missing token']);

/** Sends a request below `/console` with the session's key, and gives the answer of any status. @throws ApiError */
export function sendBelow(path: string, { headers = {}, ...init }: RequestInit): Promise<Response> {
  const key = keyOf();
  const own = key === null ? {} : { 'x-longshore-console': key };
  const once = () =>
    fetch(`${root}${path}`, {
      ...init,
      cache: 'no-store',
      credentials: 'same-origin',
      headers: { ...(headers as Readonly<Record<string, string>>), ...own },
    });
  const isRead = init.method === undefined || init.method === 'GET';
  return onceMore(once, () => isRead && init.signal?.aborted !== true).catch((error: unknown) => {
    if (init.signal?.aborted === true) throw error;
    throw new ApiError(0, { message: 'the scheduler does not answer' });
  });
}

/** Sends a request below `/console`. @throws ApiError */
export async function send(path: string, { method = 'GET', body, signal, headers = {} }: Sent = {}): Promise<Response> {
  const answer = await sendBelow(path, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(signal === undefined ? {} : { signal }),
  });
  if (answer.ok) return answer;
  const said: unknown = await answer.json().catch(() => ({}));
  const problem = typeof said === 'object' && said !== null ? said : {};
  const refusal = new ApiError(answer.status, problem, answer.headers.get('retry-after'));
  // A right that the token lacks has a sentence of its own.
  if (path.startsWith('/api/') && refusal.status === 401 && NO_SESSION.has(refusal.message)) sessionEnd.tell();
  throw refusal;
}

/** The answer of a route of the REST API. @throws ApiError */
export async function rest<T>(path: string, sent: Sent = {}): Promise<T> {
  const answer = await send(`/api/v1${path}`, sent);
  const text = await answer.text();
  return (text === '' ? undefined : JSON.parse(text)) as T;
}

/** The answer of an operation of the gateway, which says `ok: false` where it refuses. @throws ApiError */
export async function gateway<T>(path: string, sent: Sent = {}): Promise<T> {
  const { headers = {}, ...rest_ } = sent;
  const answer = await rest<T & Refusal>(`/gateway${path}`, {
    ...rest_,
    headers: { ...headers, 'x-longshore-fields': '1' },
  });
  if (answer.ok === false) throw new ApiError(400, { message: answer.errMsg ?? answer.errorMsg });
  return answer;
}

interface Refusal {
  readonly ok?: boolean;
  readonly errMsg?: string;
  readonly errorMsg?: string;
}

/** A query string of those that are given. */
export function queryOf(values: Readonly<Record<string, string | number | boolean | undefined>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values))
    if (value !== undefined && value !== '') query.set(name, String(value));
  const text = query.toString();
  return text === '' ? '' : `?${text}`;
}
