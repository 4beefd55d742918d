// Counts the blocks of files below folders, in a child process, because a walk over files may take long or hang.
import { NoAnswer, runInChild } from '../child.ts';

/** Bound on counts per child: starting a child stops this process for milliseconds. */
export const COUNTED_AT_ONCE = 10;
const WALK_MS = 10_000;
/** Silence after a walk's time that proves it stuck: a walk that dies of its kill does so a second after that time. */
const MARGIN_MS = 5_000;
/** Bound on hanging walks, which leaves room for volumes: child processes mount them too. */
const MOST_STUCK = 8;
/**
 * The counting script. Arguments: the program that walks, seconds, then for each count the number of folders and the
 * folders. Output: a line for each count, kibibytes or `-`. Blocks count, not lengths: a file with holes takes only its
 * blocks. A file that disappears during the count is no fault; an unreadable folder is, and so is a walk that takes too
 * long. Each walk is in the group of this shell (`--foreground`), so that both are killed together.
 */
const COUNT = `du=$1; seconds=$2; shift; shift
while [ $# -gt 0 ]; do
  one=$2; other=; [ "$1" = 2 ] && other=$3
  shift; shift; [ -n "$other" ] && shift
  { timeout --foreground -k 1 "$seconds" "$du" -skx -- "$one" \${other:+"$other"} 2>&1; echo "ended $?"; } | {
    closed=; sum=0
    while read -r line; do case $line in
      du:*"ermission denied"*|"ended 124"|"ended 137") closed=1 ;;
      [0-9]*) sum=$((sum + \${line%%[!0-9]*})) ;;
    esac; done
    if [ -z "$closed" ]; then echo "$sum"; else echo -; fi
  }
done`;

export interface Walks {
  readonly walkMs?: number;
  readonly marginMs?: number;
  readonly du?: string;
}

/**
 * Runs several counts at once. A walk that survives its kill costs no other count: earlier results are kept, and
 * another child does the later ones.
 * @param each - one or two folders for each count; at most COUNTED_AT_ONCE counts
 * @returns bytes, in the given order; undefined: a folder was unreadable or too slow
 */
export async function countEachHere(
  each: readonly (readonly string[])[],
  { walkMs = WALK_MS, marginMs = MARGIN_MS, du = 'du' }: Walks = {},
): Promise<(number | undefined)[]> {
  const counted: (number | undefined)[] = [];
  while (counted.length < each.length) {
    const args = each.slice(counted.length).flatMap((folders) => [String(folders.length), ...folders]);
    let printed = '';
    const hangs = await runInChild(COUNT, [du, String(walkMs / 1000), ...args], walkMs + marginMs, {
      onOutput: (output) => (printed = output),
      most: MOST_STUCK,
    }).then(
      () => false,
      (error: unknown) => error instanceof NoAnswer,
    );
    counted.push(...printed.split('\n').slice(0, -1).map(bytesIn));
    if (!hangs) break;
    counted.push(undefined);
  }
  return each.map((_, at) => counted[at]);
}

const bytesIn = (line: string): number | undefined => (/^\d+$/.test(line) ? Number(line) * 1024 : undefined);

/** @returns undefined when a folder was unreadable or too slow */
export const countHere = async (paths: readonly string[], walkMs = WALK_MS): Promise<number | undefined> =>
  (await countEachHere([paths], { walkMs }))[0];
