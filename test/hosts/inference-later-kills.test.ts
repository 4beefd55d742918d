// Calls that are answered later (`Prefer: respond-async`) while schedulers, Redis and Postgres are killed (-9) at
// random moments, and servers break off: each accepted call ends in one final status, a repeated key orders no second
// call, and the ledger has each call at most once. `LS_KILL_ROUNDS=30 npm run hosts -- inference-later` runs more.
import { setTimeout as after } from 'node:timers/promises';
import { Client } from 'pg';
import { expect } from 'vitest';
import { isTerminalTask } from '#shared/domain/status.ts';
import type { TaskStatus } from '#shared/domain/status.ts';
import { EVENT_COLUMNS, eventsOf } from '#scheduler/stores/store/queries/events.ts';
import type { RawEvent } from '#scheduler/stores/store/queries/events.ts';
import { chatByOrder } from '../helpers/model-scripts.ts';
import { killInTurn, paidModel } from '../helpers/paid-model.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { ScriptedModelServer } from '../helpers/scripted-model-server.ts';
import { test, waitFor } from '../helpers/services.ts';

const ROUNDS = Number(process.env['LS_KILL_ROUNDS'] ?? 5);
const CALLERS = 4;
/** Time until leases of dead replicas have run out, their calls are over, and every record is in the database. */
const OVER_MS = 240_000;

interface Told {
  readonly taskId: string;
  readonly tokens: number;
  readonly breaks: boolean;
}

test(
  'each call that was accepted ends once, whatever is killed',
  async ({ postgres, redis, onTestFinished }) => {
    const server = await new ScriptedModelServer().start();
    const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
    onTestFinished(async () => {
      await set.stop();
      await server.stop();
    });
    server.script('/chat/completions', (request) => {
      const text = JSON.stringify(request.body);
      return text.includes('break') ? { frames: [{ raw: '{"choi' }, 'break'] } : chatByOrder(request);
    });
    const replicas = [await set.add(), await set.add()] as const;
    const { tenant, account } = await paidModel(set, server);

    const told: Told[] = [];
    const over = new AbortController();
    let keys = 0;
    const callers = Array.from({ length: CALLERS }, async () => {
      while (!over.signal.aborted) {
        const key = `later-${++keys}`;
        // The same key is sent until it is answered, to whichever replica runs.
        for (let isTold = false; !isTold && !over.signal.aborted;) {
          const replica = set.running[Math.floor(Math.random() * set.running.length)];
          isTold = replica !== undefined && (await ask(replica.url, tenant.token, key, told).catch(() => false));
          await after(isTold ? 20 : 100);
        }
      }
    });

    for (let round = 0; round < ROUNDS; round += 1) {
      await after(500 + Math.random() * 1_500);
      await killInTurn(round, set, replicas, { redis, postgres });
      const before = told.length;
      await waitFor(() => told.length > before, `calls are accepted again after round ${round}`, 90_000);
    }
    over.abort();
    await Promise.all(callers);

    const sql = new Client({ connectionString: postgres.url });
    await sql.connect();
    try {
      const ids = [...new Set(told.map(({ taskId }) => taskId))];
      // A key that was sent again is the same task.
      expect(ids).toHaveLength(told.length);
      const open = async (): Promise<number> => {
        const { rows } = await sql.query<{ count: string }>(
          'select count(*) from tasks where id = any ($1::text[]) and rank >= 3',
          [ids],
        );
        return ids.length - Number(rows[0]?.count);
      };
      await waitFor(async () => (await open()) === 0, 'every accepted call is over', OVER_MS);
      const { rows: tasks } = await sql.query<{ id: string; status: string; result: string | null }>(
        'select id, status, result from tasks where id = any ($1::text[])',
        [ids],
      );
      const byId = new Map(tasks.map((task) => [task.id, task]));
      for (const { taskId, tokens, breaks } of told) {
        const task = byId.get(taskId);
        expect([taskId, task?.status, task?.result]).toEqual([
          taskId,
          breaks ? 'ERROR' : 'COMPLETE',
          expect.stringContaining(breaks ? 'backend_error' : `word${tokens}`),
        ]);
      }
      // No event tells of two final statuses of a task.
      const { rows } = await sql.query<RawEvent>(`select ${EVENT_COLUMNS} from events where workspace_id = $1`, [
        tenant.id,
      ]);
      const ends = rows
        .flatMap(eventsOf)
        .filter(({ data }) => isTerminalTask(String(data['status']) as TaskStatus))
        .map(({ taskId }) => taskId);
      expect(ends.filter((taskId, at) => ends.indexOf(taskId) !== at)).toEqual([]);
      await waitFor(async () => (await account())['held_micros'] === 0, 'no hold is left', OVER_MS);
      const costs = async (): Promise<number> => {
        const { rows } = await sql.query<{ request_id: string; status: string; cost_micros: string }>(
          `select request_id, status, cost_micros from credit_ledger where workspace_id = $1 and kind = 'request'`,
          [tenant.id],
        );
        expect(new Set(rows.map(({ request_id }) => request_id)).size).toBe(rows.length);
        return rows.reduce((sum, { cost_micros }) => sum + Number(cost_micros), 0);
      };
      const expected = told.filter(({ breaks }) => !breaks).reduce((sum, { tokens }) => sum + 11 + 2 * tokens + 5, 0);
      await waitFor(async () => (await costs()) >= expected, 'the ledger has every call that completed', OVER_MS);
      // Calls whose 202 was lost with its replica may be on the ledger, too; their keys were sent again.
      process.stdout.write(
        `${ROUNDS} kills: ${told.length} calls were accepted and ended; costs ${await costs()}, expected ${expected}\n`,
      );
      await waitFor(
        async () => {
          const { rows } = await sql.query(`select 1 from deferred_calls where state in ('waiting', 'running')`);
          return rows.length === 0;
        },
        'no call is left open',
        OVER_MS,
      );
    } finally {
      await sql.end();
    }
    expect(told.length).toBeGreaterThan(ROUNDS);
  },
  180_000 + ROUNDS * 60_000,
);

/** Orders a call. @returns whether it was accepted */
async function ask(url: string, token: string, key: string, told: Told[]): Promise<boolean> {
  const number = Number(key.split('-')[1]);
  const tokens = 1 + (number % 9);
  const breaks = number % 7 === 0;
  const order = { tokens, first_ms: (number % 5) * 200 };
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${token}`,
      prefer: 'respond-async',
      'idempotency-key': key,
    },
    body: JSON.stringify({
      model: 'dear',
      messages: [{ role: 'user', content: breaks ? 'break' : JSON.stringify(order) }],
      max_tokens: 20,
    }),
    signal: AbortSignal.timeout(20_000),
  });
  const body = (await answer.json()) as { id?: string };
  if (answer.status !== 202 || body.id === undefined) return false;
  told.push({ taskId: body.id, tokens, breaks });
  return true;
}
