// A Firefox for tests, as this system packages it, driven by WebDriver BiDi. Playwright drives a Firefox of its own
// alone, and the library for any other one is 25 packages. Source: https://w3c.github.io/webdriver-bidi/
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { WebSocket } from 'ws';
import { findProgram, freePort, missingService, startProgram, tempDirectory, waitFor } from './programs.ts';
import type { Cookie, Tab } from './tab.ts';

const STARTED_MS = 120_000;
/** Nothing is asked of the makers, and no first page is shown. */
const PREFERENCES = {
  'app.normandy.enabled': false,
  'app.update.disabledForTesting': true,
  'browser.aboutwelcome.enabled': false,
  'browser.region.network.url': '',
  'browser.safebrowsing.update.enabled': false,
  'datareporting.policy.dataSubmissionEnabled': false,
  'dom.disable_open_during_load': false,
  'extensions.update.enabled': false,
  'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false,
  'services.settings.server': 'data:,#remote-settings-dummy/v1',
  'toolkit.telemetry.server': '',
};

interface Answer {
  readonly id?: number;
  readonly type: 'success' | 'error' | 'event';
  readonly message?: string;
  readonly result?: Readonly<Record<string, unknown>>;
}
interface Context {
  readonly context: string;
  readonly url: string;
  readonly children: readonly Context[] | null;
}

/** Starts Firefox with a profile of its own. */
export async function startFirefox(): Promise<{ readonly tab: Tab; readonly close: () => Promise<void> }> {
  const program = findProgram('firefox-esr') ?? findProgram('firefox');
  if (program === undefined) throw missingService('Firefox');
  const profile = tempDirectory('firefox');
  const lines = Object.entries(PREFERENCES).map(([name, value]) => `user_pref("${name}", ${JSON.stringify(value)});\n`);
  writeFileSync(join(profile.path, 'user.js'), lines.join(''));
  const port = await freePort();
  const run = await startProgram(
    program,
    ['--headless', '--no-remote', '--remote-debugging-port', String(port), '--profile', profile.path, 'about:blank'],
    { env: { ...process.env, HOME: profile.path, MOZ_DISABLE_CONTENT_SANDBOX: '1' } },
  );
  await waitFor(() => /WebDriver BiDi listening/.test(run.output()), 'Firefox listens', STARTED_MS);
  const session = await Session.open(`ws://127.0.0.1:${port}/session`);
  await session.ask('session.new', { capabilities: {} });
  const { contexts } = (await session.ask('browsingContext.getTree', {})) as { contexts: readonly Context[] };
  const context = contexts[0]?.context ?? '';
  const tab: Tab = {
    goto: async (url) => {
      // A tab that a page has opened is in front of it.
      await session.ask('browsingContext.activate', { context });
      await session.ask('browsingContext.navigate', { context, url, wait: 'complete' });
    },
    evaluate: async <T>(expression: string): Promise<T> => {
      const { type, result, exceptionDetails } = (await session.ask('script.evaluate', {
        expression: `Promise.resolve(${expression}).then((value) => JSON.stringify(value ?? null))`,
        target: { context },
        awaitPromise: true,
        userActivation: true,
      })) as { type: string; result?: { value?: string }; exceptionDetails?: { text: string } };
      if (type !== 'success') throw new Error(exceptionDetails?.text ?? type);
      return JSON.parse(result?.value ?? 'null') as T;
    },
    cookies: async () => {
      const { cookies } = (await session.ask('storage.getCookies', {})) as {
        cookies: readonly (Omit<Cookie, 'value'> & { readonly value: { readonly value: string } })[];
      };
      return cookies.map(({ name, domain, path, value }) => ({ name, domain, path, value: value.value }));
    },
    frames: async () => {
      const tree = (await session.ask('browsingContext.getTree', { root: context })) as { contexts: Context[] };
      return (tree.contexts[0]?.children ?? []).map(({ url }) => url);
    },
  };
  return {
    tab,
    close: async () => {
      session.close();
      await run.end();
      profile.remove();
    },
  };
}

/** Commands to the browser and their answers. */
class Session {
  readonly #socket: WebSocket;
  readonly #asked = new Map<number, PromiseWithResolvers<Readonly<Record<string, unknown>>>>();
  #last = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on('message', (data: Buffer) => this.#heard(JSON.parse(data.toString()) as Answer));
    socket.on('close', () => {
      for (const { reject } of this.#asked.values()) reject(new Error('Firefox has ended'));
    });
  }

  static async open(url: string): Promise<Session> {
    const socket = new WebSocket(url);
    const session = new Session(socket);
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    return session;
  }

  ask(method: string, params: Readonly<Record<string, unknown>>): Promise<Readonly<Record<string, unknown>>> {
    const id = (this.#last += 1);
    const asked = Promise.withResolvers<Readonly<Record<string, unknown>>>();
    this.#asked.set(id, asked);
    this.#socket.send(JSON.stringify({ id, method, params }));
    return asked.promise;
  }

  #heard({ id, type, message, result }: Answer): void {
    const asked = id === undefined ? undefined : this.#asked.get(id);
    if (id === undefined || asked === undefined) return;
    this.#asked.delete(id);
    if (type === 'success') asked.resolve(result ?? {});
    else asked.reject(new Error(message ?? 'Firefox refused a command'));
  }

  close(): void {
    this.#socket.close();
  }
}
