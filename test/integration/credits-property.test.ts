// Random sequences of what replicas, leaders and their deaths do to credits, on a real Redis and a real Postgres. In
// any order the ledger has one row of each request that ended, with the cost of its end. The balance is grants less
// costs, and no hold or pending cost is left over.
import fc from 'fast-check';
import { expect } from 'vitest';
import type { TokenUsage } from '#scheduler/domain/inference.ts';
import type { Charges } from '#scheduler/workspaces/credits/charges.ts';
import { settledCost } from '#scheduler/workspaces/credits/cost.ts';
import { aRequest, aWorkspaceId, aWorld, test, usage } from './credits-fixture.ts';
import type { CreditWorld } from './credits-fixture.ts';

const RUNS = 8;
const ACTIONS = 60;
const GRANT = 3_000;

interface Known {
  readonly request: ReturnType<typeof aRequest>;
  readonly replica: number;
  state: 'open' | 'ended' | 'orphan';
  /** Usage that the replica has, and the last that Redis was told. */
  said?: TokenUsage;
  noted?: TokenUsage;
  /** Cost of the row; undefined: there must be none. */
  cost?: number;
}

/** A sequence of numbers between 0 and 1 that a seed decides. */
function randomOf(seed: number): () => number {
  let state = seed | 1;
  return () => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

class Story {
  readonly world: CreditWorld;
  readonly random: () => number;
  readonly workspaces = [aWorkspaceId(), aWorkspaceId()] as const;
  readonly granted = [0, 0];
  readonly known: Known[] = [];
  replicas: Charges[];

  constructor(world: CreditWorld, seed: number) {
    this.world = world;
    this.random = randomOf(seed);
    this.replicas = [world.aReplica(), world.aReplica()];
  }

  below(most: number): number {
    return Math.floor(this.random() * most);
  }

  pick(state: Known['state']): Known | undefined {
    const some = this.known.filter((known) => known.state === state);
    return some[this.below(some.length)];
  }

  of(known: Known): Charges | undefined {
    return this.replicas[known.replica];
  }

  async reserve(): Promise<void> {
    const workspace = this.below(2);
    const replica = this.below(2);
    const request = aRequest(this.workspaces[workspace] ?? aWorkspaceId(), {
      isCharged: this.random() < 0.9,
      most: { promptTokens: this.below(60), completionTokens: 1 + this.below(200) },
    });
    const admitted = await this.replicas[replica]?.reserve(request);
    if (admitted?.kind === 'admitted') this.known.push({ request, replica, state: 'open' });
  }

  progress(): void {
    const known = this.pick('open');
    if (known === undefined) return;
    known.said = usage(
      this.below(known.request.most.promptTokens + 1),
      this.below(known.request.most.completionTokens),
    );
    this.of(known)?.progress(known.request.requestId, known.said);
  }

  async renew(replica: number): Promise<void> {
    await this.replicas[replica]?.renew();
    for (const known of this.known)
      if (known.state === 'open' && known.replica === replica && known.said !== undefined) known.noted = known.said;
  }

  async settle(known = this.pick('open')): Promise<void> {
    if (known === undefined) return;
    const status = (['complete', 'aborted', 'failed'] as const)[this.below(3)] ?? 'complete';
    const { request } = known;
    const used = usage(this.below(request.most.promptTokens + 1), this.below(request.most.completionTokens + 1));
    known.state = 'ended';
    known.cost = settledCost(request, used, status);
    const settling = () => this.of(known)?.settle(request.requestId, used, status);
    await (this.random() < 0.2 ? Promise.all([settling(), settling()]) : settling());
    if (this.random() < 0.2) await this.of(known)?.release(request.requestId);
  }

  async release(): Promise<void> {
    const known = this.pick('open');
    if (known === undefined) return;
    known.state = 'ended';
    await this.of(known)?.release(known.request.requestId);
  }

  /** A replica dies, and another takes its place. What it settled is on the ledger. */
  async kill(): Promise<void> {
    const dead = this.below(2);
    this.replicas[dead] = this.world.aReplica();
    for (const known of this.known) if (known.replica === dead && known.state === 'open') known.state = 'orphan';
    // A dead replica cannot put its entries on the ledger again, should Redis lose them.
    await this.world.drain();
  }

  /** The holds of the dead lapse; now and then also one of a replica that lives, which settles later itself. */
  async sweep(): Promise<void> {
    const orphans = this.known.filter(({ state }) => state === 'orphan');
    const alive = this.random() < 0.3 ? this.pick('open') : undefined;
    const lost = alive === undefined ? orphans : [...orphans, alive];
    await this.world.loseHolds(lost.map(({ request }) => request.requestId));
    // No replica can put entries of lost requests on the ledger again, should Redis lose them.
    if (orphans.length > 0 || this.random() < 0.5) await this.world.drain();
    for (const known of orphans) {
      known.state = 'ended';
      known.cost = settledCost(known.request, known.noted ?? usage(0, 0), 'lost');
    }
    if (alive !== undefined) await this.settle(alive);
  }

  async drain(): Promise<void> {
    const second = this.random() < 0.3 ? [this.world.secondDrainer.flush()] : [];
    await Promise.all([this.world.drain(), ...second]);
  }

  /** Redis comes back empty: holds of the dead are gone with it. */
  async empty(): Promise<void> {
    await this.world.client.flushall();
    for (const known of this.known) if (known.state === 'orphan') known.state = 'ended';
    for (const replica of this.replicas) await replica.redisLost();
    await Promise.all([this.renew(0), this.renew(1)]);
  }

  async grant(workspace = this.below(2), micros = this.below(500)): Promise<void> {
    this.granted[workspace] = (this.granted[workspace] ?? 0) + micros;
    await this.world.grant(this.workspaces[workspace] ?? aWorkspaceId(), micros);
  }

  async act(): Promise<void> {
    const dice = this.random();
    if (dice < 0.35) return this.reserve();
    if (dice < 0.45) return this.progress();
    if (dice < 0.5) return this.renew(this.below(2));
    if (dice < 0.72) return this.settle();
    if (dice < 0.78) return this.release();
    if (dice < 0.82) return this.kill();
    if (dice < 0.87) return this.sweep();
    if (dice < 0.94) return this.drain();
    return dice < 0.97 ? this.empty() : this.grant();
  }

  /** Ends all requests, and compares the books. */
  async close(): Promise<void> {
    for (const known of this.known) if (known.state === 'open') await this.settle(known);
    await this.sweep();
    await this.drain();
    for (const [at, workspace] of this.workspaces.entries()) {
      const rows = (await this.world.rows(workspace)).filter(({ kind }) => kind === 'request');
      const expected = this.known.filter(
        ({ request, cost }) => request.workspaceId === workspace && cost !== undefined,
      );
      expect(Object.fromEntries(rows.map((row) => [row.request_id, row.cost_micros]))).toEqual(
        Object.fromEntries(expected.map(({ request, cost }) => [request.requestId, cost])),
      );
      expect(rows).toHaveLength(expected.length);
      const costs = rows.reduce((sum, row) => sum + row.cost_micros, 0);
      const account = await this.world.account(workspace);
      expect([account.balanceMicros, account.spentMicros]).toEqual([(this.granted[at] ?? 0) - costs, costs]);
      expect(account.balanceMicros).toBeGreaterThanOrEqual(0);
      expect(await this.world.book.sums(workspace)).toEqual({ pendingMicros: 0, heldMicros: 0 });
      const kept = await this.world.client.hmget(this.world.keys.creditAccount(workspace), 'balance', 'spent');
      // An account that nothing was asked of since Redis was emptied is not there.
      expect([null, String(account.balanceMicros)]).toContain(kept[0]);
    }
    expect(await this.world.client.exists(this.world.keys.creditHolds, this.world.keys.creditUsage)).toBe(0);
  }
}

test(
  'random sequences of charges and deaths keep the books',
  { timeout: 60_000 },
  async ({ world: { client, db } }) => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const story = new Story(aWorld(client, db), seed);
        for (const workspace of story.workspaces) await story.world.change(workspace, { mode: 'prepaid' });
        await story.grant(0, GRANT);
        await story.grant(1, GRANT);
        for (let count = 0; count < ACTIONS; count++) await story.act();
        await story.close();
      }),
      { numRuns: Number(process.env['LS_PROPERTY_SEEDS'] ?? RUNS), endOnFailure: true },
    );
  },
);
