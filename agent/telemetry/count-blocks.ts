// How much room the files below some folders take, counted by a program: in a child, because a walk over files may take long or hang.
import { runInChild } from '../volumes/child.ts';

/** Starting a child stops this process for milliseconds: one counts for so many. */
export const COUNTED_AT_ONCE = 10;
const WALK_MS = 10_000;
/** For a child that its own deadlines do not end. */
const ALL_MS = 3 * WALK_MS;
/**
 * Seconds, then the number of folders and the folders, for each that is counted; a line for each: kibibytes, or `-`. Blocks, not lengths: a file with holes takes what it takes. A file that goes while it
 * counts is no fault; a folder that is closed to this user is, and so is a walk that takes too long.
 */
const COUNT = `seconds=$1; shift
while [ $# -gt 0 ]; do
  one=$2; other=; [ "$1" = 2 ] && other=$3
  shift; shift; [ -n "$other" ] && shift
  { timeout -k 1 "$seconds" du -skx -- "$one" \${other:+"$other"} 2>&1; echo "ended $?"; } | {
    closed=; sum=0
    while read -r line; do case $line in
      du:*"ermission denied"*|"ended 124"|"ended 137") closed=1 ;;
      [0-9]*) sum=$((sum + \${line%%[!0-9]*})) ;;
    esac; done
    if [ -z "$closed" ]; then echo "$sum"; else echo -; fi
  }
done`;

/**
 * Counts for several at once.
 * @param each - one or two folders each; at most COUNTED_AT_ONCE
 * @returns bytes, in their order; undefined: not all of it may be read here, or not in time
 */
export async function countEachHere(
  each: readonly (readonly string[])[],
  deadlineMs = WALK_MS,
): Promise<(number | undefined)[]> {
  if (each.length === 0) return [];
  const args = each.flatMap((folders) => [String(folders.length), ...folders]);
  const counted = await runInChild(COUNT, [String(deadlineMs / 1000), ...args], Math.max(ALL_MS, 2 * deadlineMs)).then(
    (text) => text.split('\n'),
    () => [],
  );
  return each.map((_, at) => (/^\d+$/.test(counted[at] ?? '') ? Number(counted[at]) * 1024 : undefined));
}

/** @returns undefined: not all of it may be read here, or not in time */
export const countHere = async (paths: readonly string[], deadlineMs = WALK_MS): Promise<number | undefined> =>
  (await countEachHere([paths], deadlineMs))[0];
