// Asks for every task that was accepted once the load has ended: by its id, and in the lists of its app.
import type { Caller } from '../soak/caller.ts';
import { objectOf } from '../soak/caller.ts';
import type { Ledger } from '../soak/ledger.ts';
import { rowsOf } from '../soak/tasks.ts';
import type { Books, Kept, Sent } from './audit.ts';

/**
 * @returns the stored record of each task, and the final states
 * that were seen of it: the caller's answer, then its record
 */
export async function readBack(
  { sent, ledger }: { readonly sent: readonly Sent[]; readonly ledger: Ledger },
  caller: Caller,
  apps: readonly { readonly stubId: string }[],
): Promise<Pick<Books, 'kept' | 'seen'>> {
  const kept = new Map<string, Kept>();
  const listed = new Map<string, string>();
  for (const { stubId } of apps)
    for (const row of await rowsOf(caller, stubId)) listed.set(String(row['id']), String(row['status']));
  for (const { taskId } of sent.filter((one) => one.taskId !== '')) {
    const answer = await caller.ask(`/api/v1/task/${caller.workspaceId}/${taskId}`);
    const task = answer.status === 200 ? objectOf(answer.text) : undefined;
    if (task === undefined) continue;
    const status = String(task['status']);
    kept.set(taskId, { status, result: JSON.stringify(task['result']), listed: listed.get(taskId) });
  }
  const again = (taskId: string): readonly string[] => [kept.get(taskId)?.status ?? []].flat();
  return { kept, seen: new Map([...ledger.settled].map(([taskId, status]) => [taskId, [status, ...again(taskId)]])) };
}
