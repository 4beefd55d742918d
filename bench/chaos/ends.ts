// How the containers of a run ended, by the rows that the scheduler has kept. The product has stopped before, because
// an embedded database can be open only once.
import { createLog } from '#shared/log.ts';
import { openDb } from '#scheduler/stores/store/db.ts';

export interface ContainerEnd {
  readonly id: string;
  readonly state: string;
  readonly reason: string;
  readonly message: string;
}

/** @param databaseUrl - undefined: the embedded database of the data directory */
export async function readContainerEnds(
  dataDir: string,
  databaseUrl: string | undefined,
): Promise<readonly ContainerEnd[]> {
  const db = await openDb({ dataDir, databaseUrl, log: createLog({ name: 'bench', level: 'silent' }) });
  try {
    const { rows } = await db.query<ContainerEnd>(
      `select id, state, coalesce(reason, '') as reason, coalesce(message, '') as message from containers order by created_at`,
    );
    return rows;
  } finally {
    await db.close();
  }
}

/** `STOPPED scaled_in` → how often. */
export function countEnds(ends: readonly ContainerEnd[]): Readonly<Record<string, number>> {
  const groups = Map.groupBy(ends, ({ state, reason }) => `${state} ${reason}`.trim());
  return Object.fromEntries([...groups].map(([what, all]) => [what, all.length]));
}

/** Why containers are told to stop in these rounds, where nothing fails, and none ends by itself. */
const WANTED = ['scaled_in', 'user_stop'];

/** Containers with any other state or reason, which nothing in these rounds may cause. Pure. */
export function wrongEnds(ends: readonly ContainerEnd[], preempts = false): readonly string[] {
  const wanted = preempts ? [...WANTED, 'preempted'] : WANTED;
  return ends
    .filter(({ state, reason }) => state !== 'STOPPED' || !wanted.includes(reason))
    .map(({ id, state, reason, message }) =>
      `wrong_end: ${id} is ${state} (${reason || 'no reason'}) ${message}`.trim(),
    );
}
