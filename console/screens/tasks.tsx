// Tasks, newest first, with a filter by how they ended. The filter is in the address, so that a link carries it.
import { useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import type { TaskSummary } from '#shared/api/rest/tasks.ts';
import { queryOf, rest } from '../api/client.ts';
import { useLive } from '../live/live.ts';
import { useResource } from '../live/resource.ts';
import { Command, Shown, Twin } from '../parts/notices.tsx';
import { State } from '../parts/state.tsx';
import { shownLine, shownText } from '../parts/hostile.ts';
import { agoOf, spanOf } from '../parts/time.ts';
import type { ScreenProps } from './screen.ts';
import { TaskBulk } from './task-bulk.tsx';
import { TaskFilters, filtersOf } from './task-filters.tsx';
import type { TaskQuery } from './task-filters.tsx';

const PAGE = 50;

const LIST = 'longshore task list';

/** Filters by their names, with the statuses that each keeps. */
const KINDS = {
  all: '',
  failed: 'ERROR,TIMEOUT,EXPIRED',
  waiting: 'PENDING,RETRY',
  running: 'RUNNING',
  done: 'COMPLETE',
} as const;
type Kind = keyof typeof KINDS;
const isKind = (text: string | undefined): text is Kind => text !== undefined && Object.hasOwn(KINDS, text);

export function Tasks({ workspace, home }: ScreenProps) {
  const { query, route } = useLocation();
  const asked: TaskQuery = query;
  const { name = '', show } = asked;
  const kind: Kind = isKind(show) ? show : 'all';
  const stubs = useResource(
    `stubs ${workspace.id} ${name}`,
    async (signal) => {
      if (name === '') return '';
      const page = await rest<{ readonly data: readonly DeploymentRecord[] }>(
        `/deployment/${workspace.id}${queryOf({ name, limit: 100, show_deleted: true })}`,
        { signal },
      );
      return [...new Set(page.data.filter((one) => one.name === name).map((one) => one.stub_id))].join(',');
    },
    0,
  );
  return (
    <>
      <h1>Tasks{name === '' ? '' : ` of ${shownText(name)}`}</h1>
      <p class="filters" role="group" aria-label="Which tasks">
        {(Object.keys(KINDS) as Kind[]).map((one) => (
          <button
            key={one}
            type="button"
            aria-pressed={one === kind}
            onClick={() => route(`${home}/tasks${queryOf({ ...asked, show: one === 'all' ? undefined : one })}`)}
          >
            {one}
          </button>
        ))}
        {name === '' ? null : <a href={`${home}/tasks`}>of all deployments</a>}
      </p>
      <TaskFilters key={JSON.stringify(asked)} home={home} query={asked} />
      <Shown of={stubs}>
        {(stubIds) => {
          const filter = { status: KINDS[kind], stub_ids: stubIds, ...filtersOf(asked) };
          return (
            <>
              {kind === 'failed' ? (
                <TaskBulk kind="failed" workspaceId={workspace.id} filter={filter} name={name} />
              ) : kind === 'waiting' || kind === 'running' ? (
                <TaskBulk kind="open" workspaceId={workspace.id} filter={filter} name={name} />
              ) : null}
              <TaskTable workspace={workspace} home={home} query={{ ...filter, limit: PAGE }} hasMore />
            </>
          );
        }}
      </Shown>
      <Twin line={KINDS[kind] === '' ? LIST : `${LIST} --status ${KINDS[kind]}`} />
    </>
  );
}

interface TaskPage {
  readonly data: readonly TaskSummary[];
  readonly next: string;
}

export function TaskTable({
  workspace,
  home,
  query,
  hasMore = false,
}: ScreenProps & {
  readonly query: Readonly<Record<string, string | number | undefined>>;
  readonly hasMore?: boolean;
}) {
  const [older, setOlder] = useState<readonly TaskSummary[]>([]);
  const [cursor, setCursor] = useState<string>();
  const [held, setHeld] = useState<ReadonlySet<string>>();
  const page = useLive<TaskPage>(workspace.id, `tasks:${queryOf(query).slice(1)}`);
  const next = cursor ?? page.value?.next ?? '';
  const more = async (): Promise<void> => {
    const answer = await rest<TaskPage>(`/task-summary/${workspace.id}${queryOf({ ...query, cursor: next })}`);
    setOlder((before) => [...before, ...answer.data]);
    setCursor(answer.next);
    setHeld(undefined);
  };
  return (
    <Shown of={page}>
      {({ data }) => {
        const newest = new Set(data.map(({ id }) => id));
        const all = [...data, ...older.filter(({ id }) => !newest.has(id))];
        // Nothing moves under a pointer or a finger: new rows wait for a button, or until it left.
        const rows = held === undefined ? all : all.filter(({ id }) => held.has(id));
        const hold = (): void => setHeld((before) => before ?? new Set(all.map(({ id }) => id)));
        const free = (): void => setHeld(undefined);
        const hidden = all.length - rows.length;
        if (rows.length === 0)
          return (
            <div class="notice">
              <p>No task is like that. A call makes one:</p>
              <Command line="longshore invoke NAME" />
            </div>
          );
        return (
          <div onPointerEnter={hold} onPointerLeave={free}>
            {hidden === 0 ? null : (
              <button type="button" onClick={free}>
                ▲ {hidden} new
              </button>
            )}
            <ul class="rows tasks">
              {rows.map((task) => (
                <li key={task.id}>
                  <a href={`${home}/tasks/${task.id}`}>
                    <code>{task.id.slice(0, 8)}</code>
                  </a>{' '}
                  <State state={task.status} />{' '}
                  <span>{shownText(task.deployment_name === '' ? task.stub_name : task.deployment_name)}</span>{' '}
                  <span class="faint">
                    {task.failure_reason === '' ? '' : `${shownText(task.failure_reason)} · `}
                    {agoOf(task.created_at)}
                    {task.waited_ms === null ? '' : ` · waited ${spanOf(task.waited_ms)}`}
                    {task.duration_ms === null ? '' : ` · ran ${spanOf(task.duration_ms)}`}
                  </span>
                  {task.error === '' ? null : <div class="error">{shownLine(task.error)}</div>}
                </li>
              ))}
            </ul>
            {hasMore && next !== '' ? (
              <button type="button" onClick={() => void more()}>
                Older tasks
              </button>
            ) : null}
          </div>
        );
      }}
    </Shown>
  );
}
