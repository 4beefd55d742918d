// Follows every accepted task to its final state, during the load and
// after it. At the end, checks that no final state has changed since.
import { sleep } from '#shared/backoff.ts';
import { causes } from '../program.ts';
import type { Caller } from './caller.ts';
import type { Ledger } from './ledger.ts';
import { list, unfinished } from './tasks.ts';

/** Ids in one question. */
const BATCH = 100;
const EVERY_MS = 1_000;
const SETTLED_MS = 60_000;

/** Reads open tasks every second until the signal. */
export async function follow(caller: Caller, ledger: Ledger, signal: AbortSignal): Promise<void> {
  while (await sleep(EVERY_MS, signal)) {
    try {
      await readAll(caller, ledger, [...ledger.open.keys()]);
    } catch (error) {
      ledger.fail(`reading tasks back: ${causes(error)}`);
    }
  }
}

/** Waits after the load until nothing is open, in our books or in the installation's. @throws the signal's reason */
export async function settle(
  caller: Caller,
  ledger: Ledger,
  withinMs = SETTLED_MS,
  signal?: AbortSignal,
): Promise<void> {
  const deadlineMs = performance.now() + withinMs;
  for (;;) {
    signal?.throwIfAborted();
    await readAll(caller, ledger, [...ledger.open.keys()]);
    const left = await unfinished(caller);
    if (ledger.open.size === 0 && left.length === 0) break;
    if (performance.now() > deadlineMs) {
      for (const [taskId, { what }] of ledger.open) ledger.fail(`${what}: task ${taskId} has no final state`);
      for (const text of left) ledger.fail(`a task has not ended: ${text}`);
      break;
    }
    await sleep(EVERY_MS, signal);
  }
  // Each task is read again: the first final state must be the only one.
  await readAll(caller, ledger, [...ledger.settled.keys()]);
}

/** Writes down what became of these tasks. @throws Error when the installation does not answer */
export async function readAll(caller: Caller, ledger: Ledger, taskIds: readonly string[]): Promise<void> {
  for (let at = 0; at < taskIds.length; at += BATCH) {
    const ids = taskIds.slice(at, at + BATCH);
    const askedMs = performance.now();
    const rows = await list(caller, `task_ids=${ids.join(',')}`);
    const states = new Map(rows.map((row) => [String(row['id']), String(row['status'])]));
    for (const id of ids) {
      const status = states.get(id);
      if (status === undefined) ledger.missing(id);
      else ledger.saw(id, status, askedMs);
    }
  }
}
