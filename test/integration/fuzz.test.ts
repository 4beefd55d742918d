/**
 * Everything that docs/openapi.json describes, called with requests that are made up from it, on a real scheduler with embedded stores: whatever is sent is answered in time, with a status that is no fault
 * of ours. `npm run fuzz -- --requests 20000` sends more of them; the seed of a run that failed is printed and can be given again. There is no machine: what would run waits.
 */
import { join, resolve } from 'node:path';
import { execa } from 'execa';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { request } from 'undici';
import { documentedRoutes, requestArbitrary } from '../helpers/fuzz.ts';
import type { FuzzRequest, Who } from '../helpers/fuzz.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Platform } from './verbs-fixture.ts';

const REQUESTS = Number(process.env['LS_FUZZ_REQUESTS'] ?? 500);
/** The same requests each time; `npm run fuzz` makes up others. */
const SEED = Number(process.env['LS_FUZZ_SEED'] ?? 1);
const AT_ONCE = 8;
const BATCH = 500;
/** A request that is answered later hangs. */
const DEADLINE_MS = 20_000;
/** Who calls a handler, or follows a stream, hangs up: nobody serves it. */
const WAITS = /^(?:\w+) (?:\/endpoint\/|\/function\/|\/api\/v1\/.*\/(?:stream|subscribe)$)/;
const HANGS_UP_MS = 300;
/** Embedded stores, caches and the heap of 20 000 requests; what leaks per request is many times more. */
const MOST_GROWTH_BYTES = 300 * 1024 * 1024;
const MOST_IDS = 64;
/** Not ours to judge: a scheduler is drained by its operator, never by a request. */
const MAY_BE: readonly { readonly route: RegExp; readonly status: number }[] = [
  // An empty part of a path makes another path of it, perhaps one that has no such method.
  { route: /^\w+ \/api\/v1\/gateway\//, status: 501 },
  // Calls that no machine serves.
  { route: /^(?:POST|GET) \/(?:endpoint|taskqueue|function|schedule)\//, status: 503 },
  // Metrics pages of machines that are not there.
  { route: /^GET \/metrics\/machines\//, status: 502 },
];

let platform: Platform;
const unhandled: unknown[] = [];
const onUnhandled = (reason: unknown): void => void unhandled.push(reason);
beforeAll(async () => {
  process.on('unhandledRejection', onUnhandled);
  platform = await aPlatform({}, 'embedded');
  await platform.deploy('hello');
  await platform.deploy('hello', { stubType: 'taskqueue/deployment' });
});
afterAll(async () => {
  process.off('unhandledRejection', onUnhandled);
  await platform.stop();
});

/** Ids that answers have shown, the newest; never of the tokens that the test itself uses. */
class Ids {
  readonly #known: string[] = [NOBODY];
  readonly #own: ReadonlySet<string>;

  constructor(tokens: readonly string[]) {
    this.#own = new Set(
      tokens.map((token) => String(JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString())['jti'])),
    );
  }

  learn(text: string): void {
    for (const [id] of text
      .slice(0, 20_000)
      .matchAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g)) {
      if (this.#own.has(id) || this.#known.includes(id)) continue;
      this.#known.push(id);
      if (this.#known.length > MOST_IDS) this.#known.splice(1, 1);
    }
  }

  fill(text: string): string {
    return text.replace(/\{\{(\d+)\}\}/g, (_all, n: string) => this.#known[Number(n) % this.#known.length] ?? NOBODY);
  }
}

test(
  `${REQUESTS} requests that are made up are answered, in time, with no fault of ours`,
  { timeout: 3_600_000 },
  async () => {
    const tokens: Readonly<Record<Who, string>> = {
      own: platform.own.token,
      admin: platform.admin.token,
      other: platform.other.token,
      restricted: platform.restricted,
      revoked: platform.revoked,
      nobody: '',
    };
    const ids = new Ids(Object.values(tokens).filter((token) => token !== ''));
    const routes = documentedRoutes();
    const arbitrary = requestArbitrary(routes, platform.own.workspaceId);
    const counts = new Map<string, number>();
    /** One for each route and status. */
    const faults = new Map<string, string>();
    const seen = new Set<string>();

    const send = async (made: FuzzRequest): Promise<void> => {
      const hangsUp = WAITS.test(made.route);
      const url = ids.fill(made.url);
      const body = made.body === undefined ? undefined : ids.fill(made.body);
      const token = tokens[made.who];
      let status: string;
      try {
        const answer = await request(`http://${platform.address}${url}`, {
          method: made.method as 'GET',
          headers: token === '' ? {} : { authorization: `Bearer ${token}` },
          ...(body === undefined ? {} : { body }),
          signal: AbortSignal.timeout(hangsUp ? HANGS_UP_MS : DEADLINE_MS),
        });
        const text = await answer.body.text();
        ids.learn(text);
        status = String(answer.statusCode);
        seen.add(made.route);
        const isFault =
          answer.statusCode >= 500 &&
          !MAY_BE.some(({ route, status: may }) => may === answer.statusCode && route.test(made.route));
        if (isFault)
          faults.set(
            `${made.route} ${status}`,
            `${made.who} ${made.method} ${url.slice(0, 300)} ${(body ?? '').slice(0, 600)}\n  ${status} ${text.slice(0, 300)}`,
          );
      } catch (error) {
        if (hangsUp && error instanceof Error && error.name === 'TimeoutError') status = 'hung up';
        else {
          status = 'no answer';
          faults.set(
            `${made.route} ${status}`,
            `${made.who} ${made.method} ${url.slice(0, 300)} ${(body ?? '').slice(0, 300)}\n  ${String(error)}`,
          );
        }
      }
      counts.set(status, (counts.get(status) ?? 0) + 1);
    };

    let rssAtStart = 0;
    for (let sent = 0; sent < REQUESTS && faults.size < 20; sent += BATCH) {
      // The first batch fills caches and pools.
      if (sent === BATCH) rssAtStart = process.memoryUsage().rss;
      const batch = fc.sample(arbitrary, { numRuns: Math.min(BATCH, REQUESTS - sent), seed: SEED + sent });
      let next = 0;
      const sender = async (): Promise<void> => {
        for (let made = batch[next++]; made !== undefined; made = batch[next++]) await send(made);
      };
      await Promise.all(Array.from({ length: AT_ONCE }, sender));
    }
    const grownBytes = rssAtStart === 0 ? 0 : process.memoryUsage().rss - rssAtStart;
    const said = [...counts].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([status, count]) => `${status}: ${count}`);
    process.stdout.write(
      `fuzz: seed ${SEED}, ${REQUESTS} requests, ${seen.size} of ${routes.length} routes answered; ${said.join(', ')}; memory ${Math.round(grownBytes / 2 ** 20)} MiB more than after the first ${BATCH}\n`,
    );
    expect([...faults.values()].join('\n')).toBe('');
    expect(unhandled).toEqual([]);
    expect(grownBytes).toBeLessThan(MOST_GROWTH_BYTES);
    // It is well afterwards.
    expect((await platform.call('GET /api/v1/health')).status).toBe(200);
  },
);

const SCHEMATHESIS = process.env['LS_FUZZ_SCHEMATHESIS'];

test('a name that no database can hold is nobody’s', async () => {
  for (const path of ['/endpoint/%00', '/endpoint/a%00/v1', '/taskqueue/%00/latest', '/endpoint/%00/warmup']) {
    const { status, json } = await platform.call(`POST ${path}`, {});
    expect([status, json]).toEqual([400, { message: 'Invalid deployment' }]);
  }
});

/** The published tool, with the same file: its own way of reading it, shapes that ours does not think of. Only with `npm run fuzz -- --schemathesis`. */
if (SCHEMATHESIS !== undefined)
  test('schemathesis finds no fault of ours either', { timeout: 3_600_000 }, async () => {
    const root = resolve(import.meta.dirname, '..', '..');
    const seed = ['--seed', String(SEED)];
    // What nobody serves waits, and a token that is deleted ends the run.
    const left = ['--exclude-path-regex', '^/(endpoint|function)/|/(stream|subscribe)$|/gateway/tokens/'];
    const bounds = [
      '--max-examples',
      process.env['LS_FUZZ_EXAMPLES'] ?? '20',
      '--request-timeout',
      '20',
      '--workers',
      '2',
    ];
    // Its coverage phase sends methods that are not described, which the gateway answers with 501, as its interface says.
    const asked = ['--checks', 'not_a_server_error', '--phases', 'examples,fuzzing', '--no-shrink', '--no-color'];
    const { exitCode, all } = await execa(
      SCHEMATHESIS,
      [
        'run',
        join(root, 'docs', 'openapi.json'),
        ...['--url', `http://${platform.address}`, '--header', `Authorization:Bearer ${platform.own.token}`],
        ...[...seed, ...left, ...bounds, ...asked],
      ],
      { all: true, reject: false, cwd: root, timeout: 3_000_000 },
    );
    process.stdout.write(`${all.slice(-6000)}\n`);
    expect(exitCode).toBe(0);
    expect(unhandled).toEqual([]);
  });
