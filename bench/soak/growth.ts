// The bounds of growth over a soak: two samples in, rows of a table and the exceeded bounds out. Pure.

/** An installation at rest. */
export interface Sample {
  readonly atMs: number;
  /** Resident bytes by process. */
  readonly memory: Readonly<Record<string, number>>;
  readonly descriptors: Readonly<Record<string, number>>;
  /**
   * Files of the embedded database that the scheduler holds open, beside its
   * descriptors: at most one for each table and index that was ever touched.
   */
  readonly databaseFiles: number;
  /** Keys of Redis by purpose. */
  readonly keys: Readonly<Record<string, number>>;
  /** Keys of tasks that Redis would keep for ever. */
  readonly tasksWithoutEnd: number;
  readonly redisUsedBytes: number;
  readonly containers: number;
  /** Network namespaces that wait for a container. */
  readonly holders: number;
  readonly volumes: number;
  readonly diskBytes: number;
}

export interface GrowthRow {
  readonly what: string;
  readonly before: string;
  readonly after: string;
  readonly growth: string;
  readonly bound: string;
  /** undefined: shown only. */
  readonly isWithin: boolean | undefined;
}

const MEMORY_SHARE = 0.15;
const MEMORY_BYTES = 40 * 1024 ** 2;
const DESCRIPTORS = 10;
/** A lease or a presence more or less at the moment of the sample. */
const KEYS = 5;
/**
 * The lease of a running task, and the last attempt of one that ended without its agent's word. Each expires some
 * minutes after its task has ended, so their number shows recent work.
 */
export const TASK_KEYS: readonly string[] = ['ls:lease', 'ls:last'];

/** @param before - at rest after the warm-up; @param after - at rest at the end */
export function growthRows(before: Sample, after: Sample): readonly GrowthRow[] {
  const rows: GrowthRow[] = [];
  for (const name of Object.keys(after.memory)) {
    const [from, to] = [before.memory[name] ?? 0, after.memory[name] ?? 0];
    const most = from + Math.max(from * MEMORY_SHARE, MEMORY_BYTES);
    rows.push(row(`${name}: memory`, from, to, mebibytes, '+15 % or +40 MiB', to <= most));
  }
  for (const name of Object.keys(after.descriptors)) {
    const [from, to] = [before.descriptors[name] ?? 0, after.descriptors[name] ?? 0];
    rows.push(row(`${name}: descriptors`, from, to, String, `+${DESCRIPTORS}`, to <= from + DESCRIPTORS));
  }
  rows.push(row('  files of the database', before.databaseFiles, after.databaseFiles, String, '', undefined));
  rows.push(row('redis: used memory', before.redisUsedBytes, after.redisUsedBytes, mebibytes, '', undefined));
  const [from, to] = [otherKeys(before), otherKeys(after)];
  rows.push(row('redis: keys', from, to, String, `+${KEYS}`, to <= from + KEYS));
  for (const group of groups(before, after).filter((name) => !TASK_KEYS.includes(name)))
    rows.push(row(`  ${group}`, before.keys[group] ?? 0, after.keys[group] ?? 0, String, '', undefined));
  for (const group of TASK_KEYS)
    rows.push(row(`redis: ${group}`, before.keys[group] ?? 0, after.keys[group] ?? 0, String, '', undefined));
  rows.push(
    row('  without an end', before.tasksWithoutEnd, after.tasksWithoutEnd, String, 'none', after.tasksWithoutEnd === 0),
    row('containers', before.containers, after.containers, String, 'none', after.containers === 0),
    row('holders', before.holders, after.holders, String, '+0', after.holders <= before.holders),
    row('volumes', before.volumes, after.volumes, String, '+0', after.volumes <= before.volumes),
    row('data directory', before.diskBytes, after.diskBytes, mebibytes, '', undefined),
  );
  return rows;
}

function row(
  what: string,
  before: number,
  after: number,
  text: (value: number) => string,
  bound: string,
  isWithin: boolean | undefined,
): GrowthRow {
  const difference = after - before;
  const share = before > 0 ? ` (${difference < 0 ? '' : '+'}${Math.round((difference / before) * 100)} %)` : '';
  const growth = `${difference < 0 ? '' : '+'}${text(difference)}${share}`;
  return { what, before: text(before), after: text(after), growth, bound, isWithin };
}

const mebibytes = (bytes: number): string => `${(bytes / 1024 ** 2).toFixed(1)} MiB`;

const otherKeys = (sample: Sample): number =>
  Object.entries(sample.keys).reduce((sum, [group, count]) => (TASK_KEYS.includes(group) ? sum : sum + count), 0);

const groups = (before: Sample, after: Sample): readonly string[] =>
  [...new Set([...Object.keys(before.keys), ...Object.keys(after.keys)])].toSorted();
