// Charged calls of a model while schedulers, Redis and Postgres are killed (-9) at random moments: the ledger has each
// usage that a caller was told, exactly once, and the balance is the grant less the ledger's costs.
// `LS_KILL_ROUNDS=50 npm run hosts -- inference-kills` runs more rounds.
/* oxlint-disable no-empty-pattern */
import { setTimeout as after } from 'node:timers/promises';
import { Client } from 'pg';
import { expect } from 'vitest';
import { chatByOrder } from '../helpers/model-scripts.ts';
import { GRANT, killInTurn, paidModel } from '../helpers/paid-model.ts';
import { ReplicaSet } from '../helpers/replicas.ts';
import { ScriptedModelServer } from '../helpers/scripted-model-server.ts';
import { test, waitFor } from '../helpers/services.ts';

const ROUNDS = Number(process.env['LS_KILL_ROUNDS'] ?? 8);
const CALLERS = 6;
/** Time until holds of dead replicas are settled, and every entry is in the database. */
const SETTLED_MS = 180_000;

/** A call that got an answer's head. */
interface Asked {
  readonly requestId: string;
  readonly tokens: number;
  /** Usage that the caller was told; undefined: the answer broke off. */
  told: { readonly prompt: number; readonly completion: number } | undefined;
}

interface Row {
  readonly request_id: string;
  readonly status: string;
  readonly prompt_tokens: string;
  readonly completion_tokens: string;
  readonly cost_micros: string;
}

test(
  'the ledger has what callers were told, whatever is killed',
  async ({ postgres, redis, onTestFinished }) => {
    const server = await new ScriptedModelServer().start();
    const set = new ReplicaSet(postgres, redis, postgres.url, { LONGSHORE_WEBHOOK_ALLOW: '127.0.0.1' });
    onTestFinished(async () => {
      await set.stop();
      await server.stop();
    });
    server.script('/chat/completions', chatByOrder);
    const replicas = [await set.add(), await set.add()] as const;
    const { tenant, account } = await paidModel(set, server);

    const asked: Asked[] = [];
    const over = new AbortController();
    const callers = Array.from({ length: CALLERS }, async () => {
      while (!over.signal.aborted) {
        const replica = set.running[Math.floor(Math.random() * set.running.length)];
        if (replica === undefined) await after(50);
        else await ask(replica.url, tenant.token, asked).catch(() => after(50));
      }
    });

    for (let round = 0; round < ROUNDS; round += 1) {
      await after(300 + Math.random() * 1_500);
      await killInTurn(round, set, replicas, { redis, postgres });
      const before = toldOf(asked).length;
      await waitFor(() => toldOf(asked).length > before, `calls are served again after round ${round}`, 90_000);
    }
    over.abort();
    await Promise.all(callers);

    await waitFor(async () => (await account())['held_micros'] === 0, 'no hold is left', SETTLED_MS);
    const sql = new Client({ connectionString: postgres.url });
    await sql.connect();
    try {
      const rowsOf = async (): Promise<ReadonlyMap<string, Row>> => {
        const { rows } = await sql.query<Row>(
          `select * from credit_ledger where workspace_id = $1 and kind = 'request'`,
          [tenant.id],
        );
        // The request id is unique in the table.
        return new Map(rows.map((row) => [row.request_id, row]));
      };
      const missing = async (): Promise<readonly string[]> => {
        const rows = await rowsOf();
        return toldOf(asked)
          .map(({ requestId }) => requestId)
          .filter((id) => !rows.has(id));
      };
      await waitFor(
        async () => (await missing()).length === 0,
        'the ledger has every usage that was told',
        SETTLED_MS,
      ).catch(async () => {
        const lines = replicas.flatMap(({ name, daemon }) =>
          daemon
            .log()
            .split('\n')
            .filter((line) => line.includes('ledger'))
            .slice(-20)
            .map((line) => `${name}: ${line}`),
        );
        expect(await missing(), lines.join('\n')).toEqual([]);
      });
      const rows = await rowsOf();
      const usages = (one: Asked) => {
        const row = rows.get(one.requestId);
        return [row?.status, Number(row?.prompt_tokens), Number(row?.completion_tokens)];
      };
      for (const one of toldOf(asked))
        expect([one.requestId, ...usages(one)]).toEqual([
          one.requestId,
          'complete',
          one.told?.prompt,
          one.told?.completion,
        ]);
      const broken = asked.filter(({ told, requestId }) => told === undefined && rows.has(requestId));
      // Usage of an answer that broke off is estimated by its characters: at most two tokens for a word.
      for (const one of broken)
        expect(Number(rows.get(one.requestId)?.completion_tokens)).toBeLessThanOrEqual(2 * one.tokens + 1);
      let costs = 0;
      for (const row of rows.values()) {
        // A request whose scheduler died before any output costs nothing.
        const [prompt, completion] = [Number(row.prompt_tokens), Number(row.completion_tokens)];
        const cost = prompt + completion === 0 ? 0 : prompt + 2 * completion + 5;
        expect([row.status, Number(row.cost_micros)]).toEqual([row.status, cost]);
        costs += Number(row.cost_micros);
      }
      await waitFor(
        async () => (await account())['balance_micros'] === GRANT - costs,
        'the balance is the grant less the costs',
        30_000,
      );
      process.stdout.write(
        `${ROUNDS} kills: ${toldOf(asked).length} calls were told their usage, ${broken.length} broken ones are on the ledger, ${rows.size} rows\n`,
      );
    } finally {
      await sql.end();
    }
    expect(toldOf(asked).length).toBeGreaterThan(ROUNDS);
  },
  120_000 + ROUNDS * 60_000,
);

const toldOf = (asked: readonly Asked[]): readonly Asked[] => asked.filter(({ told }) => told !== undefined);

/** Asks for some tokens, streamed or whole, and notes what the answer says of its usage. */
async function ask(url: string, token: string, asked: Asked[]): Promise<void> {
  const tokens = 1 + Math.floor(Math.random() * 40);
  const stream = Math.random() < 0.7;
  const order = { tokens, pause_ms: 5 + Math.floor(Math.random() * 20) };
  const answer = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({
      model: 'dear',
      messages: [{ role: 'user', content: JSON.stringify(order) }],
      ...(stream ? { stream, stream_options: { include_usage: true } } : {}),
    }),
    signal: AbortSignal.timeout(60_000),
  });
  const one: Asked = { requestId: answer.headers.get('x-request-id') ?? '', tokens, told: undefined };
  asked.push(one);
  const text = await answer.text();
  if (answer.status !== 200) {
    await after(50);
    return;
  }
  const parts = stream
    ? text.split('\n\n').flatMap((frame) => (frame.startsWith('data: {') ? [frame.slice('data: '.length)] : []))
    : [text];
  for (const part of parts) {
    const { usage } = JSON.parse(part) as { usage?: { prompt_tokens: number; completion_tokens: number } | null };
    if (usage) one.told = { prompt: usage.prompt_tokens, completion: usage.completion_tokens };
  }
}
