// The books of a soak: how often each thing was done and how it was answered, what went wrong (the request written out), and the final state that each accepted task may have.
import type { SoakAnswer } from './caller.ts';
import { isFinal } from './tasks.ts';

/** An answer that is right for what was done: a status with exactly that text (or one that matches). */
export interface Intended {
  readonly status: number;
  readonly text: string | RegExp;
  /** Final states that its task may have, where one was accepted. */
  readonly states: readonly string[];
}

const MOST_WRITTEN_OUT = 200;

export class Ledger {
  /** `warm calls: 200` → how often. */
  readonly counts = new Map<string, number>();
  readonly failures: string[] = [];
  failed = 0;
  /** Tasks whose final state has not been seen. */
  readonly open = new Map<string, { readonly what: string; readonly states: readonly string[] }>();
  readonly settled = new Map<string, string>();
  readonly #settledAtMs = new Map<string, number>();

  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  fail(text: string): void {
    this.failed += 1;
    if (this.failures.length < MOST_WRITTEN_OUT) this.failures.push(`${new Date().toISOString()} ${text}`);
  }

  /** Judges an answer and opens the account of its task. @returns what was meant, or undefined when nothing matches */
  judge(what: string, answer: SoakAnswer, intended: readonly Intended[]): Intended | undefined {
    const found = intended.find(({ status, text }) => status === answer.status && matches(answer.text, text));
    if (found === undefined) {
      this.fail(`${what}: ${answer.asked} was answered ${answer.status} ${answer.text.slice(0, 500)}`);
      if (answer.taskId !== '') this.accepted(what, answer.taskId, ['COMPLETE', 'ERROR', 'CANCELLED', 'TIMEOUT']);
      return undefined;
    }
    this.count(`${what}: ${answer.status}`);
    if (answer.taskId !== '') this.accepted(what, answer.taskId, found.states);
    return found;
  }

  accepted(what: string, taskId: string, states: readonly string[]): void {
    if (this.open.has(taskId) || this.settled.has(taskId)) this.fail(`${what}: task ${taskId} was accepted twice`);
    this.open.set(taskId, { what, states });
  }

  /**
   * A state that was read: the first final one counts, and must be one that was meant; another final one is wrong whenever it comes, one that is not final only when it was asked for
   * after the final one was known (answers overtake each other).
   * @param askedMs - when the question was put, by `performance.now()`
   */
  saw(taskId: string, status: string, askedMs: number): void {
    const account = this.open.get(taskId);
    if (account === undefined) {
      const before = this.settled.get(taskId);
      if (before === undefined || before === status) return;
      if (isFinal(status) || askedMs > (this.#settledAtMs.get(taskId) ?? 0))
        this.fail(`task ${taskId} was ${before} and became ${status}`);
      return;
    }
    if (!isFinal(status)) return;
    this.open.delete(taskId);
    this.settled.set(taskId, status);
    this.#settledAtMs.set(taskId, performance.now());
    if (!account.states.includes(status))
      this.fail(`${account.what}: task ${taskId} ended ${status}, not ${account.states.join(' or ')}`);
  }
}

const matches = (text: string, wanted: string | RegExp): boolean =>
  typeof wanted === 'string' ? text === wanted : wanted.test(text);
