// A model with prices on an installation of several replicas, a workspace that pays for it, and kills of its parts: the
// ground of the tests that compare the ledger with what callers were told.
import { setTimeout as after } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Answer } from './platform.ts';
import { jsonOf } from './platform.ts';
import type { Replica, ReplicaSet } from './replicas.ts';
import type { ScriptedModelServer } from './scripted-model-server.ts';

type Json = Readonly<Record<string, unknown>>;

/** Micro-units that the workspace is granted. */
export const GRANT = 1_000_000_000;
const PRICES = { prompt_micros_per_million: 1_000_000, completion_micros_per_million: 2_000_000, request_micros: 5 };

interface Killed {
  crash(): Promise<void>;
  restart(): Promise<void>;
}

export interface PaidModel {
  readonly tenant: { readonly id: string; readonly token: string };
  /** The account of the workspace. */
  readonly account: () => Promise<Json>;
}

/** Makes the model `dear`, which the server answers, and the workspace. */
export async function paidModel(set: ReplicaSet, server: ScriptedModelServer): Promise<PaidModel> {
  const call = (path: string, body?: Json, method = body === undefined ? 'GET' : 'POST'): Promise<Answer> =>
    set.call(set.running[0] as Replica, path, { ...(body === undefined ? {} : { body }), method });
  const backends = [{ kind: 'external', base_url: server.baseUrl }];
  const model = { id: 'dear', type: 'chat', visibility: 'public', prices: PRICES, backends };
  expect((await call(`/api/v1/model/${set.workspaceId}`, model)).status).toBe(201);
  const tenant = jsonOf<{ id: string; token: string }>(await call('/api/v1/workspace', { name: 'payer' }));
  expect((await call(`/api/v1/credit/${tenant.id}`, { mode: 'prepaid' }, 'PUT')).status).toBe(200);
  expect((await call(`/api/v1/credit/${tenant.id}/grant`, { amount_micros: GRANT })).status).toBe(200);
  return { tenant, account: async () => jsonOf<Json>(await call(`/api/v1/credit/${tenant.id}`)) };
}

const VICTIMS = ['first replica', 'second replica', 'redis', 'postgres', 'both replicas'] as const;

/** Kills (-9) the victim of that round, one after the other, and starts it again. */
export async function killInTurn(
  round: number,
  set: ReplicaSet,
  replicas: readonly [Replica, Replica],
  stores: { readonly redis: Killed; readonly postgres: Killed },
): Promise<void> {
  const victim = VICTIMS[round % VICTIMS.length];
  if (victim === 'redis' || victim === 'postgres') {
    await stores[victim].crash();
    await after(Math.random() * 500);
    await stores[victim].restart();
    return;
  }
  const killed = victim === 'both replicas' ? replicas : [replicas[victim === 'first replica' ? 0 : 1]];
  await Promise.all(killed.map((replica) => replica.daemon.kill()));
  for (const replica of killed) await set.start(replica);
}
