// The session of a page: which refusals end it, and whose key is forgotten then.
import { beforeAll, beforeEach, expect, test, vi } from 'vitest';

// These parts need a browser's globals when they are loaded.
const loaded = async <T>(part: 'client' | 'session'): Promise<T> =>
  (await import(`../../../console/api/${part}.ts`)) as T;
interface Session {
  readonly signedIn: { value: unknown };
  readonly endedBecause: { value: string };
  look(): Promise<void>;
  signOut(): Promise<void>;
}
interface Client {
  rest(path: string): Promise<unknown>;
}

const KEY = 'longshore-console-key';
const kept = new Map<string, string>();
const reload = vi.fn();
/** Sessions that the scheduler knows, by their keys. */
const known = new Map<string, string>();
/** Asked by a page; a test may hold the answer. */
let onAsked: (path: string) => Promise<void> = () => Promise.resolve();

const answer = (status: number, body: unknown): Response => new Response(JSON.stringify(body), { status });

let session: Session;
let client: Client;
beforeAll(async () => {
  vi.stubGlobal('location', { pathname: '/console/', origin: 'http://localhost', reload });
  vi.stubGlobal('localStorage', {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
    removeItem: (name: string) => void kept.delete(name),
  });
  vi.stubGlobal('fetch', async (path: string, { headers }: { readonly headers: Record<string, string> }) => {
    const id = known.get(headers['x-longshore-console'] ?? '');
    await onAsked(path);
    if (id === undefined) return answer(401, { code: 'unauthorized', message: 'Unauthorized' });
    if (path === '/console/session') return answer(200, { id });
    return answer(200, { workspace: { id: 'w', name: 'acme' }, rights: [], token: { scopes: [], app_id: null } });
  });
  client = await loaded<Client>('client');
  session = await loaded<Session>('session');
});

beforeEach(async () => {
  onAsked = () => Promise.resolve();
  reload.mockClear();
  known.clear();
  known.set('first', 's1');
  kept.set(KEY, 'first');
  session.signedIn.value = undefined;
  session.endedBecause.value = '';
  await session.look();
  expect(session.signedIn.value).toMatchObject({ session: { id: 's1' } });
});

const ask = (): Promise<unknown> => client.rest('/task/w').catch(() => undefined);

test('a refusal of the session ends it, and its key is forgotten', async () => {
  known.clear();
  await ask();
  await vi.waitFor(() => expect(session.signedIn.value).toBeNull());
  expect([kept.has(KEY), session.endedBecause.value]).toEqual([false, expect.stringContaining('is over')]);
});

test('a late refusal of the session before leaves the key of a new one', async () => {
  known.clear();
  // While this page's request is under way, another tab signs out and in again.
  onAsked = (path) => {
    if (path.endsWith('/task/w')) {
      known.set('second', 's2');
      kept.set(KEY, 'second');
    }
    return Promise.resolve();
  };
  await ask();
  await vi.waitFor(() => expect(reload).toHaveBeenCalledTimes(1));
  expect([kept.get(KEY), session.endedBecause.value]).toEqual(['second', '']);
});

test('a new session that comes while this one is looked at is kept, too', async () => {
  known.clear();
  onAsked = (path) => {
    if (path === '/console/session' && kept.get(KEY) === 'first') {
      known.set('second', 's2');
      kept.set(KEY, 'second');
    }
    return Promise.resolve();
  };
  await ask();
  await vi.waitFor(() => expect(reload).toHaveBeenCalledTimes(1));
  expect(kept.get(KEY)).toBe('second');
});

test('a sign-out forgets the key that it ended, and no newer one', async () => {
  onAsked = () => {
    kept.set(KEY, 'second');
    known.set('second', 's2');
    return Promise.resolve();
  };
  await session.signOut();
  expect([kept.get(KEY), reload.mock.calls.length]).toEqual(['second', 1]);
  onAsked = () => Promise.resolve();
  await session.signOut();
  expect([kept.has(KEY), session.signedIn.value]).toEqual([false, null]);
});
