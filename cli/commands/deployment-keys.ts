// `longshore deployment keys`: the keys of a deployment's flow control.
import { counted } from '../format.ts';
import { listField, numberField, textField } from '../json.ts';
import { note } from '../print.ts';
import { shown, shownDeployment } from './deployment-reference.ts';
import { showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';

export async function runDeploymentKeys(
  reference: string,
  { limit }: { readonly limit: number },
  invocation: Invocation,
): Promise<void> {
  await withClient(invocation, async (client) => {
    const deployment = await shownDeployment(client, reference);
    const answer = await client.rest(
      `/deployment/${await client.workspaceId()}/flow/${deployment.id}?limit=${String(limit)}`,
    );
    const most = numberField(answer, 'concurrency');
    const limits = listField(answer, 'limits');
    const throttle = textField(answer, 'throttle');
    const rate = textField(answer, 'rate');
    const hasPriorities = typeof answer['priority'] === 'number';
    if (most === 0 && limits.length === 0 && throttle === '' && rate === '' && !hasPriorities)
      note(`${shown(deployment)} has no flow control (flow=Flow(…) of its task_queue)`);
    showList(invocation, listField(answer, 'data'), ['KEY', 'RUNNING', 'MOST', 'WAITING'], (row) => [
      textField(row, 'key') || '(none)',
      String(numberField(row, 'running')),
      most === 0 ? '-' : String(most),
      String(numberField(row, 'waiting')),
    ]);
    if (invocation.options.json === true) return;
    for (const limit of limits)
      note(
        `limit ${textField(limit, 'name')}: ${numberField(limit, 'running')} of ${numberField(limit, 'most')} run, ${numberField(limit, 'waiting')} wait`,
      );
    if (throttle !== '') {
      const delayed = numberField(answer, 'delayed');
      note(
        `tasks of a key start at ${throttle} at most; ${counted(delayed, 'task')} ${delayed === 1 ? 'waits' : 'wait'} for a turn or a retry`,
      );
    }
    if (rate !== '') note(`calls of a key are taken at ${rate} at most`);
    const held = numberField(answer, 'held');
    if (held > 0) note(`${counted(held, 'task')} of ${shown(deployment)} ${held === 1 ? 'waits' : 'wait'} for others`);
  });
}
