// The shared worker: holds the streams of all tabs of this browser, so that ten tabs need one connection. It has no
// storage, so each tab says the key of the session.
// Invariant: a tab that is gone is forgotten within a minute, also when it never said so.
import { keyStore, send } from '../api/client.ts';
import type { ToTab, ToWorker } from './messages.ts';
import { LiveStreams } from './streams.ts';

const ASK_MS = 20_000;

let key: string | null = null;
keyStore.read = () => key;
const streams = new LiveStreams((path, signal) => send(`/api/v1${path}`, { signal }));

interface Tab {
  readonly port: MessagePort;
  readonly follows: Map<number, () => void>;
  /** Whether it answered since it was asked. */
  isThere: boolean;
}
const tabs = new Set<Tab>();
let asking: ReturnType<typeof setInterval> | undefined;

function forget(tab: Tab): void {
  for (const end of tab.follows.values()) end();
  tab.follows.clear();
  tabs.delete(tab);
  tab.port.close();
  arm();
}

/** Tabs that follow something are asked whether they are there. */
function arm(): void {
  const isNeeded = [...tabs].some(({ follows }) => follows.size > 0);
  if (!isNeeded) {
    clearInterval(asking);
    asking = undefined;
    return;
  }
  asking ??= setInterval(() => {
    for (const tab of tabs) {
      if (!tab.isThere && tab.follows.size > 0) forget(tab);
      else {
        tab.isThere = false;
        tab.port.postMessage({ kind: 'ask' } satisfies ToTab);
      }
    }
  }, ASK_MS);
}

function heard(tab: Tab, message: ToWorker): void {
  tab.isThere = true;
  switch (message.kind) {
    case 'key':
      if (message.key === key) return;
      key = message.key;
      streams.redial();
      return;
    case 'follow': {
      const { id, follow } = message;
      tab.follows.set(
        id,
        streams.follow(follow, (told) => tab.port.postMessage({ kind: 'told', id, told } satisfies ToTab)),
      );
      arm();
      return;
    }
    case 'unfollow':
      tab.follows.get(message.id)?.();
      tab.follows.delete(message.id);
      arm();
      return;
    case 'gone':
      forget(tab);
      return;
    case 'here':
      return;
  }
}

const scope = globalThis as unknown as { onconnect: (event: MessageEvent) => void };
scope.onconnect = ({ ports: [port] }) => {
  if (port === undefined) return;
  const tab: Tab = { port, follows: new Map(), isThere: true };
  tabs.add(tab);
  port.onmessage = ({ data }) => heard(tab, data as ToWorker);
};
