// Many calls in one request: a body of `application/x-ndjson`, whose lines are the inputs of one call each. Only kinds
// whose callers get a task's id take them. The lines are cut at line ends and passed on as they came.
import { isAscii } from 'node:buffer';
import type { Submission } from '../../../tasks/admission/calls.ts';
import type { Input } from './input.ts';
import { inputOf } from './input.ts';

/** Most calls of a request. */
export const MOST_CALLS = 1_000;
/** Calls that are queued side by side: their rows are committed together. */
const AT_ONCE = 64;
const LINE_END = 0x0a;

const NDJSON = /^application\/x-ndjson *(?:;|$)/i;

export const isManyCalls = (contentType: string | undefined): boolean =>
  contentType !== undefined && NDJSON.test(contentType.trim());

/** The inputs of a body; a text: why the body cannot be used. */
export async function inputsOf(body: unknown): Promise<readonly Input[] | string> {
  const lines = Buffer.isBuffer(body) ? linesOf(body) : [];
  if (lines.length === 0) return 'the body has no calls: send one JSON object per line';
  if (lines.length > MOST_CALLS) return `the body has ${lines.length} calls: ${MOST_CALLS} are the most`;
  const inputs: Input[] = [];
  for (const [at, line] of lines.entries()) {
    const input = await inputOf(line);
    if (typeof input === 'string') return `line ${at + 1} is not a JSON object: ${input}`;
    if (input.callbackUrl !== undefined && input.callbackUrl !== null)
      return `line ${at + 1} has a callback_url, which is for single calls`;
    inputs.push(input);
  }
  return inputs;
}

/** The lines that are not blank. */
function linesOf(body: Buffer): readonly Buffer[] {
  const lines: Buffer[] = [];
  for (let from = 0; from < body.length && lines.length <= MOST_CALLS;) {
    const end = body.indexOf(LINE_END, from);
    const line = body.subarray(from, end < 0 ? body.length : end);
    if (!isBlank(line)) lines.push(line);
    if (end < 0) break;
    from = end + 1;
  }
  return lines;
}

const isBlank = (line: Buffer): boolean =>
  line.length === 0 || (line.length < 16 && isAscii(line) && line.toString('latin1').trim() === '');

export type ManyCalls =
  /** Ids in the order of the lines; null: this call was not taken, or dropped. `refused` is why the first was not. */
  | { readonly kind: 'taken'; readonly taskIds: readonly (string | null)[]; readonly refused?: Refused }
  /** No call was taken. */
  | { readonly kind: 'refused'; readonly refused: Refused };

export type Refused = Exclude<Submission, { readonly kind: 'accepted' }>;

/** Submits the calls in their order, and none after a group in which a call was refused. */
export async function submitMany(count: number, submit: (at: number) => Promise<Submission>): Promise<ManyCalls> {
  const taskIds: (string | null)[] = Array.from({ length: count }, () => null);
  let refused: Refused | undefined;
  for (let first = 0; first < count && refused === undefined; first += AT_ONCE) {
    const group = Array.from({ length: Math.min(AT_ONCE, count - first) }, (_, at) => submit(first + at));
    for (const [at, submission] of (await Promise.all(group)).entries()) {
      if (submission.kind === 'accepted' || submission.kind === 'skipped') taskIds[first + at] = submission.taskId;
      else refused ??= submission;
    }
  }
  if (refused === undefined) return { kind: 'taken', taskIds };
  return taskIds.every((id) => id === null) ? { kind: 'refused', refused } : { kind: 'taken', taskIds, refused };
}
