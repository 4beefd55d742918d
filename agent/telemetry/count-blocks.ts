// How much room the files below some folders take, counted by a program: in a child, because a walk over files may take long or hang.
import { runInChild } from '../volumes/child.ts';

const WALK_MS = 10_000;
/** Blocks, not lengths: a file with holes takes what it takes. What goes while it counts is no fault; a folder that is closed to this user is. */
const COUNT = `du -skx -- "$@" 2>&1 | {
  closed=; sum=0
  while read -r line; do case $line in
    du:*"ermission denied"*) closed=1 ;;
    [0-9]*) sum=$((sum + \${line%%[!0-9]*})) ;;
  esac; done
  [ -z "$closed" ] && printf %s "$sum"
}`;

/** @returns undefined: not all of it may be read here, or not in time */
export const countHere = (paths: readonly string[], deadlineMs = WALK_MS): Promise<number | undefined> =>
  runInChild(COUNT, paths, deadlineMs).then(
    (text) => Number(text) * 1024,
    () => undefined,
  );
