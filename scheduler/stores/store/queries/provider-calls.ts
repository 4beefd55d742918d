// Last calls of the programs of providers: a row for each provider and verb.
// The key column holds both, as `cloud list`, because no name of a provider has a space.
import type { Queryable } from '../db.ts';
import { many, msOf, msOrNull, storableText } from '../rows.ts';

/** Longest text of a failure that is kept. */
const MOST_FAILURE = 500;
/** Rows that a reading returns: three verbs of the most providers that a file may name, thrice. */
const MOST_CALLS = 900;

export interface ProviderCall {
  readonly provider: string;
  readonly verb: string;
  /** End of the last call. */
  readonly calledAtMs: number;
  /** Failure of the last call; null: it succeeded. */
  readonly failure: string | null;
  /** Calls in a row that failed. */
  readonly failures: number;
  /** Last complete listing, and the number of instances in it; null: none yet. */
  readonly listedAtMs: number | null;
  readonly instances: number | null;
}

interface Raw {
  provider: string;
  verb: string;
  called_at: Date;
  failure: string | null;
  failures: number;
  listed_at: Date | null;
  instances: number | null;
}

const map = (row: Raw): ProviderCall => ({
  provider: row.provider,
  verb: row.verb,
  calledAtMs: msOf(row.called_at),
  failure: row.failure,
  failures: row.failures,
  listedAtMs: msOrNull(row.listed_at),
  instances: row.instances,
});

/**
 * Keeps the last call of a provider and verb.
 * @param call - `instances`: of a complete listing; undefined: the call was no listing, or failed
 */
export async function noteProviderCall(
  db: Queryable,
  call: {
    readonly provider: string;
    readonly atMs: number;
    readonly verb: string;
    readonly failure: string | null;
    readonly instances?: number | undefined;
  },
): Promise<void> {
  const failure = call.failure === null ? null : storableText(call.failure.slice(0, MOST_FAILURE));
  await db.query(
    `insert into provider_calls as c (provider, called_at, verb, failure, failures, listed_at, instances)
     values ($1, $2, $3, $4, case when $4::text is null then 0 else 1 end, case when $5::integer is null then null else $2::timestamptz end, $5)
     on conflict (provider) do update set called_at = excluded.called_at, verb = excluded.verb, failure = excluded.failure,
       failures = case when excluded.failure is null then 0 else c.failures + 1 end,
       listed_at = coalesce(excluded.listed_at, c.listed_at), instances = coalesce(excluded.instances, c.instances)`,
    [`${call.provider} ${call.verb}`, new Date(call.atMs), call.verb, failure, call.instances ?? null],
  );
}

/** The last call of every provider and verb, newest first. */
export function providerCalls(db: Queryable): Promise<ProviderCall[]> {
  return many(
    db,
    `select split_part(provider, ' ', 1) as provider, verb, called_at, failure, failures, listed_at, instances
     from provider_calls where position(' ' in provider) > 0 order by called_at desc limit $1`,
    [MOST_CALLS],
    map,
  );
}

/** Deletes calls that ended before then, of providers that are not among the known ones. */
export async function pruneProviderCalls(db: Queryable, known: readonly string[], beforeMs: number): Promise<number> {
  const { rowCount } = await db.query(
    `delete from provider_calls where called_at < $1 and not (split_part(provider, ' ', 1) = any ($2::text[]) and position(' ' in provider) > 0)`,
    [new Date(beforeMs), known],
  );
  return rowCount;
}
