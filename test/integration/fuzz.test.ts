/**
 * Calls everything that docs/openapi.json describes, with requests generated from it, on a real scheduler with embedded
 * stores. Every request is answered in time, as the description says, with a status that is no fault of ours, and
 * leaves nothing behind in memory. `npm run fuzz -- --requests 40000` sends more requests; the seed of a failed run is
 * printed and can be given again. There is no machine, so tasks and containers wait.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { request } from 'undici';
import { documentedRoutes, faultOf, whyExpected } from '../helpers/documented.ts';
import { requestArbitrary } from '../helpers/fuzz.ts';
import type { FuzzRequest, Who } from '../helpers/fuzz.ts';
import { growthOf, memoryReader, mib } from '../helpers/memory.ts';
import type { Held } from '../helpers/memory.ts';
import { runSchemathesis } from '../helpers/schemathesis.ts';
import { NOBODY, aPlatform } from './verbs-fixture.ts';
import type { Json, Platform } from './verbs-fixture.ts';

const REQUESTS = Number(process.env['LS_FUZZ_REQUESTS'] ?? 500);
/** The seed is fixed, so the requests are the same each time; `npm run fuzz` sets another one. */
const SEED = Number(process.env['LS_FUZZ_SEED'] ?? 1);
const AT_ONCE = 8;
const BATCH = 500;
/** A request that is answered later hangs. */
const DEADLINE_MS = 20_000;
/** Calls of handlers hang up, because no machine serves them. */
const WAITS = /^(?:\w+) \/endpoint\/(?!.*\/warmup$)/;
const HANGS_UP_MS = 300;
/**
 * Number of requests from which memory is judged. Each reading follows a collection, because
 * otherwise the heap holds 200 MiB of garbage more. Judged is the later half, when caches are as
 * full as these requests make them. A growth of 1 to 3 MiB remains. Heap snapshots of both ends show
 * code compiled meanwhile, and objects that exist: waiting tasks, and deployments with their queues.
 */
const JUDGED_FROM = 20_000;
const MOST_HEAP_GROWTH_BYTES = 8 * 1024 * 1024;
/** The allocator and the database's thread take steps. */
const MOST_RESIDENT_GROWTH_BYTES = 32 * 1024 * 1024;
const MOST_IDS = 64;

let platform: Platform;
const unhandled: unknown[] = [];
const onUnhandled = (reason: unknown): void => void unhandled.push(reason);
/** Listeners that are added and never taken away. */
const onWarning = (warning: Error): void => {
  if (warning.name === 'MaxListenersExceededWarning') unhandled.push(warning);
};
beforeAll(async () => {
  process.on('unhandledRejection', onUnhandled);
  process.on('warning', onWarning);
  platform = await aPlatform({}, 'embedded');
  await deployAgain();
});
afterAll(async () => {
  process.off('unhandledRejection', onUnhandled);
  process.off('warning', onWarning);
  await platform.stop();
});

/**
 * Deploys again the deployments that requests call by name; a run
 * may have stopped or deleted them. Schedules tick once a year.
 */
async function deployAgain(token = platform.own.token): Promise<void> {
  await platform.deploy('hello', {}, token);
  for (const kind of ['taskqueue', 'function', 'schedule']) {
    await platform.deploy('hello', { stubType: `${kind}/deployment`, extra: '{"when": "@yearly"}' }, token);
  }
}

/** Resets the limits of workspaces: generated requests may have set them so that nothing more can be made there. */
async function limitsAsBefore(): Promise<void> {
  for (const { workspaceId } of [platform.own, platform.admin]) {
    const line = `/api/v1/workspace/${workspaceId}/limits`;
    const { json } = await platform.call(`GET ${line}`, undefined, { token: platform.admin.token });
    const groups = ['concurrency', 'stub', 'tasks', 'rate', 'counts', 'bytes'].map((group) => {
      const names = Object.keys(json[group] as Json);
      return [group, Object.fromEntries(names.map((name) => [name, null]))] as const;
    });
    const put = await platform.call(`PUT ${line}`, Object.fromEntries(groups), { token: platform.admin.token });
    expect(put.status).toBe(200);
  }
}

/** The newest ids that answers have shown, without those of the test's own tokens. */
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
  `${REQUESTS} requests that are made up are answered, in time, as described, with no fault of ours`,
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
    const count = (what: string): void => void counts.set(what, (counts.get(what) ?? 0) + 1);
    /** A fault for each route and kind. */
    const faults = new Map<string, string>();
    const seen = new Set<string>();

    const send = async (made: FuzzRequest): Promise<void> => {
      const hangsUp = WAITS.test(made.route);
      const url = ids.fill(made.url);
      const body = made.body === undefined ? undefined : ids.fill(made.body);
      const token = tokens[made.who];
      const blame = (fault: string, text: string): void => {
        const sent = `${made.who} ${made.method} ${url.slice(0, 300)} ${(body ?? '').slice(0, 600)}`;
        faults.set(`${made.route} ${fault.slice(0, 60)}`, `${sent}\n  ${fault}\n  ${text.slice(0, 300)}`);
      };
      try {
        const answer = await request(`http://${platform.address}${url}`, {
          method: made.method as 'GET',
          headers: token === '' ? {} : { authorization: `Bearer ${token}` },
          ...(body === undefined ? {} : { body }),
          signal: AbortSignal.timeout(hangsUp ? HANGS_UP_MS : DEADLINE_MS),
        });
        seen.add(made.route);
        if (answer.statusCode === 200 && String(answer.headers['content-type']).startsWith('text/event-stream')) {
          // A stream lasts, so its caller leaves.
          count('200 (a stream)');
          answer.body.on('error', () => undefined).destroy();
          return;
        }
        const text = await answer.body.text();
        ids.learn(text);
        const answered = { method: made.method, url, status: answer.statusCode, text };
        const why = whyExpected(routes, answered);
        count(why === undefined ? String(answer.statusCode) : `${answer.statusCode} (${why})`);
        const fault = faultOf(routes, answered);
        if (fault !== undefined) blame(fault, text);
      } catch (error) {
        if (hangsUp && error instanceof Error && error.name === 'TimeoutError') return count('hung up');
        count('no answer');
        blame('no answer', String(error));
      }
    };

    const read = memoryReader();
    const samples: Held[] = [];
    for (let sent = 0; sent < REQUESTS && faults.size < 20; sent += BATCH) {
      const batch = fc.sample(arbitrary, { numRuns: Math.min(BATCH, REQUESTS - sent), seed: SEED + sent });
      let next = 0;
      const sender = async (): Promise<void> => {
        for (let made = batch[next++]; made !== undefined; made = batch[next++]) await send(made);
      };
      await Promise.all(Array.from({ length: AT_ONCE }, sender));
      await limitsAsBefore();
      if ((sent / BATCH) % 4 === 3) await deployAgain();
      if (REQUESTS >= JUDGED_FROM) samples.push(read(sent + batch.length));
    }
    const said = [...counts].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([status, times]) => `${status}: ${times}`);
    process.stdout.write(
      `fuzz: seed ${SEED}, ${REQUESTS} requests, ${seen.size} of ${routes.length} routes answered; ${said.join(', ')}\n`,
    );
    expect([...faults.values()].join('\n')).toBe('');
    expect(unhandled).toEqual([]);
    // The scheduler is healthy afterwards.
    expect((await platform.call('GET /api/v1/health')).status).toBe(200);
    if (REQUESTS >= JUDGED_FROM) judgeMemory(samples);
  },
);

function judgeMemory(samples: readonly Held[]): void {
  const every = Math.max(1, Math.floor(samples.length / 16));
  // The first samples are shown whole, because most growth is there.
  const shown = samples.filter((_held, index) => index < 4 || (index + 1) % every === 0);
  for (const { sent, heapBytes, outsideBytes, rssBytes } of shown) {
    process.stdout.write(
      `fuzz: after ${sent} requests: heap ${mib(heapBytes)}, beside it ${mib(outsideBytes)}, resident ${mib(rssBytes)}\n`,
    );
  }
  const later = samples.filter(({ sent }) => sent > REQUESTS / 2);
  const heap = growthOf(later, (held) => held.heapBytes + held.outsideBytes);
  const resident = growthOf(later, (held) => held.rssBytes);
  process.stdout.write(`fuzz: the later half grew by ${mib(heap)} of heap, ${mib(resident)} resident\n`);
  expect(heap).toBeLessThan(MOST_HEAP_GROWTH_BYTES);
  expect(resident).toBeLessThan(MOST_RESIDENT_GROWTH_BYTES);
}

test('a name that no database can hold is nobody’s', async () => {
  for (const path of ['/endpoint/%00', '/endpoint/a%00/v1', '/taskqueue/%00/latest', '/endpoint/%00/warmup']) {
    const { status, json } = await platform.call(`POST ${path}`, {});
    expect([status, json]).toEqual([400, { message: 'Invalid deployment' }]);
  }
  const { workspaceId } = platform.own;
  for (const [route, name] of [
    [`PUT /api/v1/secret/${workspaceId}/%00`, 'name'],
    [`DELETE /api/v1/secret/${workspaceId}/a%00`, 'name'],
    [`GET /api/v1/model/${workspaceId}/%00`, 'modelId'],
  ] as const) {
    const { status, json } = await platform.call(route, { value: 'a' });
    expect([status, json['message']], route).toEqual([400, `${name} must be text without NUL`]);
  }
});

/**
 * The published tool, with the same file: the tool reads it in its own way, and thinks of shapes that ours does not.
 * Runs only with `npm run fuzz -- --schemathesis`.
 */
const SCHEMATHESIS = process.env['LS_FUZZ_SCHEMATHESIS'];
if (SCHEMATHESIS !== undefined)
  test('schemathesis finds no fault of ours either', { timeout: 3_600_000 }, async () => {
    // The administrator may do everything, and has what others have.
    const { token } = platform.admin;
    await deployAgain(token);
    const made = await platform.deploy('called', {}, token);
    const queue = await platform.deploy('put', { stubType: 'taskqueue/deployment' }, token);
    const task = await platform.call('POST /taskqueue/put', {}, { token });
    const own = await platform.deploy('theirs');
    const taskId = String(task.json['task_id']);
    const ran = await runSchemathesis(SCHEMATHESIS, {
      address: platform.address,
      token,
      seed: SEED,
      examples: Number(process.env['LS_FUZZ_EXAMPLES'] ?? 20),
      workspaceId: platform.own.workspaceId,
      known: {
        id: [made.id, own.id, taskId],
        deploymentId: [made.id, own.id],
        stubId: [made.stubId, queue.stubId],
        taskId: [taskId],
        name: ['hello', 'put'],
        version: ['v1', 'v2'],
      },
    });
    process.stdout.write(`${ran.summary}\n`);
    expect(ran.faults.join('\n')).toBe('');
    expect(ran.untried).toEqual([]);
    expect(unhandled).toEqual([]);
    // The token was good to the end.
    expect((await platform.call('GET /api/v1/workspace/current', undefined, { token })).status).toBe(200);
  });
