// The books of a soak: how often each thing was done, and how it was answered. They hold each failure with its request
// written out, and the final states that each accepted task may have.
import type { SoakAnswer } from './caller.ts';
import { isFinal } from './tasks.ts';

/** An answer that is right for its request: a status with exactly that text (or one that matches). */
export interface Intended {
  readonly status: number;
  readonly text: string | RegExp;
  /** Final states that its task may have, where one was accepted. */
  readonly states: readonly string[];
}

interface Account {
  readonly what: string;
  readonly states: readonly string[];
  /** Time when the final state was known here, by `performance.now()`. */
  readonly settledAtMs: number;
}

const MOST_WRITTEN_OUT = 200;

export class Ledger {
  /** `warm calls: 200` → how often. */
  readonly counts = new Map<string, number>();
  readonly failures: string[] = [];
  failed = 0;
  /** Tasks whose final state has not been seen. */
  readonly open = new Map<string, Account>();
  readonly settled = new Map<string, string>();
  /** Kinds of requests whose tasks need not be known while schedulers are killed; in the end they must be. */
  readonly mayComeLate = new Set<string>();
  /** Accounts of settled tasks. */
  readonly #accounts = new Map<string, Account>();

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

  /** Nobody knew the task. The end of a call that a scheduler answered before it died comes with its agent's report. */
  missing(taskId: string): void {
    const open = this.open.get(taskId);
    const what = (open ?? this.#accounts.get(taskId))?.what ?? 'a task';
    if (open !== undefined && this.mayComeLate.has(what)) this.count(`${what}: answered, not known yet`);
    else this.fail(`${what}: task ${taskId} was accepted, and nobody knows it`);
  }

  accepted(what: string, taskId: string, states: readonly string[]): void {
    if (this.open.has(taskId) || this.settled.has(taskId)) this.fail(`${what}: task ${taskId} was accepted twice`);
    this.open.set(taskId, { what, states, settledAtMs: Number.POSITIVE_INFINITY });
  }

  /**
   * Records a state that was read. The first final state counts, and must be an expected one. After it only a late
   * COMPLETE may come, where that was expected too (an attempt that succeeded although its task had been given up).
   * Answers overtake each other: an answer asked for before the final state was known may be older.
   * @param askedMs - when the question was put, by `performance.now()`
   */
  saw(taskId: string, status: string, askedMs: number): void {
    const account = this.open.get(taskId) ?? this.#accounts.get(taskId);
    const before = this.settled.get(taskId);
    if (account === undefined || before === status) return;
    if (before === undefined) {
      if (!isFinal(status)) return;
      this.#settle(taskId, status, account);
      if (!account.states.includes(status))
        this.fail(`${account.what}: task ${taskId} ended ${status}, not ${account.states.join(' or ')}`);
      return;
    }
    const wasMeant = account.states.includes(status);
    if (askedMs <= account.settledAtMs && (!isFinal(status) || wasMeant)) return;
    if (status === 'COMPLETE' && wasMeant) {
      this.count('late COMPLETE');
      this.#settle(taskId, status, account);
    } else this.fail(`task ${taskId} was ${before} and became ${status}`);
  }

  #settle(taskId: string, status: string, account: Account): void {
    this.open.delete(taskId);
    this.settled.set(taskId, status);
    this.#accounts.set(taskId, { ...account, settledAtMs: performance.now() });
  }
}

const matches = (text: string, wanted: string | RegExp): boolean =>
  typeof wanted === 'string' ? text === wanted : wanted.test(text);
