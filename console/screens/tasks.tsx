// Tasks, newest first, with a filter by how they ended. The filter is in the address, so that a link carries it.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { TaskSummary } from '#shared/api/rest/tasks.ts';
import { queryOf, rest } from '../api/client.ts';
import { useLive } from '../live/live.ts';
import { isKeyOf } from '../parts/choice.ts';
import { Command, Shown, Twin } from '../parts/notices.tsx';
import { curlOf } from '../parts/curl.ts';
import { State } from '../parts/state.tsx';
import { listLine } from '../parts/task-lines.ts';
import { shownLine, shownText } from '../parts/hostile.ts';
import { agoOf, spanOf } from '../parts/time.ts';
import type { ScreenProps } from './screen.ts';
import { TaskBulk } from './task-bulk.tsx';
import { TaskFilters, filtersOf } from './task-filters.tsx';
import type { TaskQuery } from './task-filters.tsx';

const PAGE = 50;

/** Filters by their names, with the statuses that each keeps. */
const KINDS = {
  all: '',
  failed: 'ERROR,TIMEOUT,EXPIRED',
  waiting: 'PENDING,RETRY',
  running: 'RUNNING',
  done: 'COMPLETE',
} as const;
type Kind = keyof typeof KINDS;

export function Tasks({ workspace, home }: ScreenProps) {
  const { query, route } = useLocation();
  const asked: TaskQuery = query;
  const { name = '', show } = asked;
  const kind: Kind = isKeyOf(KINDS, show) ? show : 'all';
  const filter = { status: KINDS[kind], deployment_name: name, ...filtersOf(asked) };
  const bulk = kind === 'failed' ? 'failed' : kind === 'waiting' || kind === 'running' ? 'open' : undefined;
  const since = filter.created_at_start === undefined ? undefined : asked.since;
  const line = listLine({ statuses: KINDS[kind], name, reason: asked.reason, since });
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
      <TaskTable
        key={JSON.stringify(asked)}
        workspace={workspace}
        home={home}
        query={{ ...filter, limit: PAGE }}
        hasMore
      >
        {bulk === undefined ? null : <TaskBulk kind={bulk} workspaceId={workspace.id} filter={filter} />}
      </TaskTable>
      <Twin line={line ?? curlOf({ method: 'GET', path: `/task-summary/${workspace.id}${queryOf(filter)}` })} />
    </>
  );
}

interface TaskPage {
  readonly data: readonly TaskSummary[];
  readonly next: string;
}

/** @param children - changes of the tasks: drawn where there are some */
export function TaskTable({
  workspace,
  home,
  query,
  hasMore = false,
  children,
}: ScreenProps & {
  readonly query: Readonly<Record<string, string | number | undefined>>;
  readonly hasMore?: boolean;
  readonly children?: ComponentChildren;
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
            {children}
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
                  <State state={task.status} /> <TaskName task={task} home={home} />{' '}
                  <span class="faint">
                    {task.failure_reason === '' ? '' : `${shownText(task.failure_reason)} · `}
                    {agoOf(task.created_at)}
                    {task.waited_ms === null ? '' : ` · waited ${spanOf(task.waited_ms)}`}
                    {task.duration_ms === null ? '' : ` · ran ${spanOf(task.duration_ms)}`}
                  </span>
                  {task.error === '' ? null : (
                    <a class="error line" href={`${home}/tasks/${task.id}`}>
                      {shownLine(task.error)}
                    </a>
                  )}
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

/** The name of a task's deployment, with the version that ran it. */
function TaskName({ task, home }: { readonly task: TaskSummary; readonly home: string }) {
  const { deployment_name: name, deployment_version: version } = task;
  if (name === '') return <span>{shownText(task.stub_name)}</span>;
  return (
    <a href={`${home}/d/${encodeURIComponent(name)}`}>
      {shownText(name)}
      {version === null ? '' : ` v${version}`}
    </a>
  );
}
