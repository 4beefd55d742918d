import { expect, test } from 'vitest';
import { listLine, scopeOf } from '../../../console/parts/task-lines.ts';

const ALL = { statuses: '', name: '', reason: undefined, since: undefined };

test.each([
  [ALL, 'longshore task list'],
  [{ ...ALL, statuses: 'PENDING,RETRY', name: 'a b' }, "longshore task list --deployment 'a b' --status PENDING,RETRY"],
  [{ ...ALL, name: 'embed', since: '24h' }, 'longshore task list --deployment embed --since 24h'],
  // The command cannot choose by reason: a line without it would list others.
  [{ ...ALL, name: 'embed', reason: 'process_exited' }, undefined],
])('%j is listed by %j', (listed, line) => expect(listLine(listed)).toBe(line));

test.each([
  [{ status: 'PENDING,RETRY' }, 'Tasks of all deployments of this workspace, that are PENDING or RETRY.'],
  [{ deployment_name: 'embed', status: 'RUNNING' }, 'Tasks of embed, all versions, that are RUNNING.'],
  [
    { deployment_name: 'embed', failure_reasons: 'oom', created_at_start: '2030-01-01T00:00:00Z' },
    'Tasks of embed, all versions, that failed with oom, called since 2030-01-01T00:00:00Z.',
  ],
])('%j means: %s', (filter, text) => expect(scopeOf(filter)).toBe(text));
