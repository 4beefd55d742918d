// How much room the files below some folders take, counted by a program: in a child, because a walk over files may take long or hang.
import { runInChild } from '../volumes/child.ts';
import { NoAnswer } from '../volumes/driver.ts';

/** Starting a child stops this process for milliseconds: one counts for so many. */
export const COUNTED_AT_ONCE = 10;
const WALK_MS = 10_000;
/** A walk that says nothing for so long after its time does not die of its kill, which comes a second after that time. */
const MARGIN_MS = 5_000;
/**
 * The program that walks, seconds, then the number of folders and the folders, for each that is counted; a line for each: kibibytes, or `-`. Blocks, not lengths: a file with holes takes what it takes. A file that
 * goes while it counts is no fault; a folder that is closed to this user is, and so is a walk that takes too long. A walk is in the group of this shell (`--foreground`), so that both are killed together.
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
 * Counts for several at once. A walk that no kill ends costs no other its count: what is printed before it is kept, and another child counts those after it.
 * @param each - one or two folders each; at most COUNTED_AT_ONCE
 * @returns bytes, in their order; undefined: not all of it may be read here, or not in time
 */
export async function countEachHere(
  each: readonly (readonly string[])[],
  { walkMs = WALK_MS, marginMs = MARGIN_MS, du = 'du' }: Walks = {},
): Promise<(number | undefined)[]> {
  const counted: (number | undefined)[] = [];
  while (counted.length < each.length) {
    const args = each.slice(counted.length).flatMap((folders) => [String(folders.length), ...folders]);
    let printed = '';
    const hangs = await runInChild(
      COUNT,
      [du, String(walkMs / 1000), ...args],
      walkMs + marginMs,
      (output) => (printed = output),
    ).then(
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

/** @returns undefined: not all of it may be read here, or not in time */
export const countHere = async (paths: readonly string[], walkMs = WALK_MS): Promise<number | undefined> =>
  (await countEachHere([paths], { walkMs }))[0];
