// Topics that a screen follows. A tab in view follows by the shared worker, which has one stream for all tabs; where a
// browser has no such worker, by a stream of its own. A hidden tab follows nothing, and keeps what it has.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, keyOf, root, send, sessionEnd } from '../api/client.ts';
import type { ToTab, ToWorker } from './messages.ts';
import { resourceOf } from './resource.ts';
import type { Read, Resource } from './resource.ts';
import { LiveStreams } from './streams.ts';
import type { Follow, Problem, Told } from './streams.ts';

/** Follows a topic while it is wanted. */
type Follows = (follow: Follow, tell: (told: Told) => void) => () => void;

let follows: Follows | undefined;

/** Follows a topic by whatever this browser has. */
function followLive(follow: Follow, tell: (told: Told) => void): () => void {
  follows ??= byWorker() ?? byTab();
  return follows(follow, tell);
}

function byTab(): Follows {
  const streams = new LiveStreams((path, signal) => send(`/api/v1${path}`, { signal }));
  return (follow, tell) => streams.follow(follow, tell);
}

interface Followed {
  readonly follow: Follow;
  readonly tell: (told: Told) => void;
  end: (() => void) | undefined;
}

function byWorker(): Follows | undefined {
  const url = workerUrl();
  if (url === undefined || typeof SharedWorker === 'undefined') return undefined;
  const followed = new Map<number, Followed>();
  let last = 0;
  let own: Follows | undefined;
  let worker: SharedWorker;
  try {
    worker = new SharedWorker(url, { name: 'longshore' });
  } catch {
    return undefined;
  }
  const { port } = worker;
  const post = (message: ToWorker): void => port.postMessage(message);
  // A worker that cannot be loaded never answers: the tab goes on by itself.
  worker.addEventListener('error', () => {
    own ??= byTab();
    for (const one of followed.values()) one.end ??= own(one.follow, one.tell);
  });
  port.addEventListener('message', ({ data }: MessageEvent<ToTab>) => {
    if (data.kind === 'ask') post({ kind: 'here' });
    else followed.get(data.id)?.tell(data.told);
  });
  port.start();
  // A page that comes back from the browser's cache follows anew.
  addEventListener('pagehide', () => {
    for (const id of followed.keys()) post({ kind: 'unfollow', id });
  });
  addEventListener('pageshow', ({ persisted }) => {
    if (persisted) for (const [id, { follow }] of followed) post({ kind: 'follow', id, follow });
  });
  return (follow, tell) => {
    last += 1;
    const id = last;
    followed.set(id, { follow, tell, end: own?.(follow, tell) });
    if (own === undefined) {
      post({ kind: 'key', key: keyOf() });
      post({ kind: 'follow', id, follow });
    }
    return () => {
      followed.get(id)?.end?.();
      followed.delete(id);
      if (own === undefined) post({ kind: 'unfollow', id });
    };
  };
}

interface Policy {
  createScriptURL(text: string): string;
}
interface PolicyFactory {
  createPolicy(name: string, rules: { createScriptURL: (text: string) => string }): Policy;
}

/** The address of the worker's script, which the page names; undefined: it names none. */
function workerUrl(): string | undefined {
  const name = document.querySelector<HTMLElement>('#app')?.dataset['worker'] ?? '';
  if (!/^worker-[A-Z0-9]+\.js$/.test(name)) return undefined;
  const url = `${root}/assets/${name}`;
  const { trustedTypes } = globalThis as { readonly trustedTypes?: PolicyFactory };
  // The only policy of the page: it trusts this one script.
  const policy = trustedTypes?.createPolicy('longshore', {
    createScriptURL: (text) => {
      if (text !== url) throw new TypeError('only the script of the worker is trusted');
      return text;
    },
  });
  return policy?.createScriptURL(url) ?? url;
}

/** Says that the session is over where that is why the stream broke. A topic may also be closed to the token. */
function noteEnd({ problem: { status, message }, isLost }: Extract<Told, { readonly kind: 'failed' }>): void {
  if (isLost && status === 401 && message === 'Unauthorized') sessionEnd.tell();
}

const errorOf = ({ status, code, message, retryAfterSeconds }: Problem): ApiError =>
  new ApiError(status, { code, message }, retryAfterSeconds === undefined ? null : String(retryAfterSeconds));

/** Runs while the tab is in view. @returns a function that ends it */
export function whileVisible(begin: () => () => void): () => void {
  let end: (() => void) | undefined;
  const look = (): void => {
    if (document.visibilityState === 'visible') end ??= begin();
    else {
      end?.();
      end = undefined;
    }
  };
  document.addEventListener('visibilitychange', look);
  look();
  return () => {
    document.removeEventListener('visibilitychange', look);
    end?.();
  };
}

/** Follows a topic of logs from a line on. */
export const followLines = (follow: Follow, tell: (told: Told) => void): (() => void) =>
  followLive(follow, (told) => {
    if (told.kind === 'failed') noteEnd(told);
    tell(told);
  });

/**
 * The answer of a topic, kept fresh: `overview`, `deployment:NAME`, `task:ID`, `tasks:FILTER`. The scheduler's list of
 * topics is `scheduler/api/http/rest/live-topics.ts`; a value in a topic is written by `encodeURIComponent`.
 * @param topic - empty: nothing is followed
 */
export function useLive<T>(workspaceId: string, topic: string): Resource<T> {
  const key = `${workspaceId} ${topic}`;
  const [state, setState] = useState<Read<T>>();
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (topic === '') return undefined;
    const take = (told: Told): void => {
      if (told.kind === 'value') setState({ key, value: told.value as T, failure: undefined, atMs: told.atMs });
      if (told.kind !== 'failed') return;
      noteEnd(told);
      const failure = errorOf(told.problem);
      setState((before) =>
        before?.key === key
          ? // The value was right until now.
            { ...before, failure, atMs: before.failure === undefined ? Date.now() : before.atMs }
          : { key, value: undefined, failure, atMs: 0 },
      );
    };
    return whileVisible(() => followLive({ workspaceId, topic }, take));
  }, [key, turn]);
  return resourceOf(state, key, () => setTurn((before) => before + 1));
}
