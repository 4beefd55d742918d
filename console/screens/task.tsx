// A task: how it went with its error line, its attempts, its input and result, and its lines.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { LogPage, LogRecord } from '#shared/api/rest/logs.ts';
import type { RestTask, TaskInput, TaskSummary } from '#shared/api/rest/tasks.ts';
import type { Static } from 'typebox';
import { apiErrorOf, queryOf, rest } from '../api/client.ts';
import type { ApiError } from '../api/client.ts';
import type { Explained } from '../api/explain.ts';
import { may } from '../api/session.ts';
import { useLive } from '../live/live.ts';
import { useLiveLines } from '../live/logs.ts';
import { useResource } from '../live/resource.ts';
import { Action } from '../parts/action.tsx';
import { Failure, Shown, Twin } from '../parts/notices.tsx';
import { errorLine, readResult } from '../parts/task-failure.ts';
import { State } from '../parts/state.tsx';
import { shownLine, shownText } from '../parts/hostile.ts';
import { Value } from '../parts/text.tsx';
import { agoOf, between, clockOf } from '../parts/time.ts';
import { Explanation } from './deployment.tsx';
import { LineList } from './logs.tsx';
import type { ScreenProps } from './screen.ts';
import { FailedAlike } from './task-bulk.tsx';

const MOST_LINES = 200;

type Kept = Static<typeof TaskInput>;

export function Task({ workspace, home, id }: ScreenProps & { readonly id: string }) {
  const task = useLive<RestTask>(workspace.id, `task:${encodeURIComponent(id)}`);
  return (
    <>
      <h1>
        Task <code>{shownText(id).slice(0, 8)}</code>
      </h1>
      <Shown of={task}>{(value) => <Whole task={value} workspace={workspace} home={home} id={id} />}</Shown>
    </>
  );
}

function Whole({ task, workspace, home, id }: ScreenProps & { readonly id: string; readonly task: RestTask }) {
  const isOver = task.ended_at !== null;
  const error = errorLine(task.attempts, task.failure_reason, task.result);
  const isExplained = may('GET /explain/{ws}/{id}');
  const explained = useLive<Explained>(workspace.id, isExplained ? `explain:${encodeURIComponent(id)}` : '');
  const { name, version } = task.deployment;
  return (
    <>
      <p class="head">
        <State state={task.status} /> <span class="faint">{shownText(task.failure_reason)}</span>{' '}
        {name === null ? (
          shownText(task.stub_name)
        ) : (
          <a href={`${home}/d/${encodeURIComponent(name)}`}>
            {shownText(name)} v{version}
          </a>
        )}
      </p>
      {error === '' ? null : (
        <p class="notice bad" role="status">
          <strong>{shownLine(error)}</strong>
        </p>
      )}
      <p class="actions">
        <Again task={task} workspaceId={workspace.id} home={home} />
        <FailedAlike task={task} home={home} />
      </p>
      <Runs task={task} workspaceId={workspace.id} home={home} />
      <dl class="numbers">
        <div>
          <dt>called</dt>
          <dd>{agoOf(task.created_at)}</dd>
        </div>
        <div>
          <dt>waited</dt>
          <dd>{between(task.created_at, task.started_at ?? task.ended_at)}</dd>
        </div>
        <div>
          <dt>{task.attempts.length > 1 ? 'last attempt ran' : 'ran'}</dt>
          <dd>
            {task.started_at !== null ? between(task.started_at, task.ended_at) : isOver ? 'not at all' : 'not yet'}
          </dd>
        </div>
      </dl>
      {isExplained ? <Shown of={explained}>{(value) => <Explanation of={value} />}</Shown> : null}
      <Input task={task} workspaceId={workspace.id} />
      <Result task={task} workspaceId={workspace.id} />
      <Attempts task={task} home={home} />
      {!may('GET /logs/{ws}') ? null : isOver ? (
        <Lines workspaceId={workspace.id} task={task} home={home} />
      ) : (
        <ComingLines workspaceId={workspace.id} id={id} />
      )}
    </>
  );
}

/** A long result does not come with the topic, and is read when it is asked for. */
function Result({ task, workspaceId }: { readonly task: RestTask; readonly workspaceId: string }) {
  const [read, setRead] = useState<RestTask>();
  const [failure, setFailure] = useState<ApiError>();
  const show = async (): Promise<void> => {
    try {
      setRead(await rest<RestTask>(`/task/${workspaceId}/${task.id}`));
      setFailure(undefined);
    } catch (error) {
      setFailure(apiErrorOf(error));
    }
  };
  const own = read?.id === task.id ? read : undefined;
  const result = task.result_left_out === true ? own?.result : task.result;
  const isShown = result !== null && result !== undefined;
  if (!isShown && task.result_left_out !== true) return null;
  const parts = readResult(result);
  if (parts.error !== '' && task.failure_reason !== '')
    return (
      <section>
        <h2>Error</h2>
        <Value label="Error" text={parts.error} />
        {parts.rest === undefined ? null : (
          <Value label="More of the result" text={JSON.stringify(parts.rest, null, 2)} />
        )}
      </section>
    );
  return (
    <section>
      <h2>Result</h2>
      {failure === undefined ? null : <Failure failure={failure} />}
      {isShown ? (
        <Value label="Result" text={JSON.stringify(result, null, 2)} />
      ) : (
        <button type="button" onClick={() => void show()}>
          Show the long result
        </button>
      )}
    </section>
  );
}

/** The input is shown when it is asked for: it may hold what is nobody else's business. */
function Input({ task, workspaceId }: { readonly task: RestTask; readonly workspaceId: string }) {
  const [kept, setKept] = useState<Kept>();
  const [failure, setFailure] = useState<ApiError>();
  const read = async (): Promise<void> => {
    try {
      setKept(await rest<Kept>(`/task/${workspaceId}/${task.id}/input`));
    } catch (error) {
      setFailure(apiErrorOf(error));
    }
  };
  if (task.input === null) return null;
  return (
    <section>
      <h2>Input</h2>
      {failure === undefined ? null : <Failure failure={failure} />}
      {kept !== undefined ? (
        <Value label="Input" text={kept.input === '' ? 'There was none.' : kept.input} />
      ) : !task.input.kept ? (
        <p>It is not kept: {shownText(task.input.why_not)}.</p>
      ) : may('GET /task/{ws}/{taskId}/input') ? (
        <button type="button" onClick={() => void read()}>
          Show the input ({task.input.bytes ?? 0} bytes)
        </button>
      ) : (
        <p>It is kept. This token may not read it: it lacks the scope invoke, or all rights.</p>
      )}
    </section>
  );
}

function Attempts({ task, home }: { readonly task: RestTask; readonly home: string }) {
  const { attempts } = task;
  if (attempts.length === 0)
    return <p>{task.ended_at === null ? 'No container has begun it yet.' : 'No container began it.'}</p>;
  return (
    <section>
      <h2>Attempts</h2>
      <ol>
        {attempts.map((one) => (
          <li key={one.attempt}>
            {shownText(one.outcome)} in <ContainerLog home={home} id={one.container_id} />
            {one.started_at === null
              ? ''
              : ` at ${clockOf(one.started_at)}, ran ${between(one.started_at, one.ended_at)}`}
            {one.error === '' ? null : <div class="faint">{shownLine(one.error)}</div>}
          </li>
        ))}
      </ol>
    </section>
  );
}

/** A container by its id, which leads to its lines. */
function ContainerLog({ home, id }: { readonly home: string; readonly id: string }) {
  const name = <code>{shownText(id)}</code>;
  return may('GET /logs/{ws}/stream') ? <a href={`${home}/logs?container=${encodeURIComponent(id)}`}>{name}</a> : name;
}

/** Lines of a task that is over: the newest ones. */
function Lines({
  workspaceId,
  task,
  home,
}: {
  readonly workspaceId: string;
  readonly task: RestTask;
  readonly home: string;
}) {
  const { id } = task;
  const begun = task.attempts.length > 0 || task.container_id === '';
  const path = `/logs/${workspaceId}${queryOf({ task_id: id, limit: MOST_LINES })}`;
  const page = useResource(path, (signal) => rest<Static<typeof LogPage>>(path, { signal }), 0);
  return (
    <LogSection id={id}>
      {begun ? null : (
        <p>
          Lines of a start are those of its container: <ContainerLog home={home} id={task.container_id} />
        </p>
      )}
      <Shown of={page}>
        {({ logs }) => (logs.length === 0 && !begun ? null : <LinesOrNone lines={logs} none="It printed nothing." />)}
      </Shown>
    </LogSection>
  );
}

/** Lines of a task that goes on. */
function ComingLines({ workspaceId, id }: { readonly workspaceId: string; readonly id: string }) {
  const { lines, state, why } = useLiveLines(workspaceId, { task_id: id });
  return (
    <LogSection id={id}>
      {state === 'lost' ? <p class="notice wait">Lines do not come now: {shownText(why)}; dialling again.</p> : null}
      <LinesOrNone lines={lines} none="It printed nothing yet." />
    </LogSection>
  );
}

const LinesOrNone = ({ lines, none }: { readonly lines: readonly LogRecord[]; readonly none: string }) =>
  lines.length === 0 ? <p>{none}</p> : <LineList lines={lines} label="Lines of this task" />;

function LogSection({ id, children }: { readonly id: string; readonly children: ComponentChildren }) {
  return (
    <section>
      <h2>Log</h2>
      {children}
      <Twin line={`longshore logs --task ${id}`} />
    </section>
  );
}

/** Runs the task again with its input, after a question. */
function Again({ task, workspaceId, home }: Ran) {
  const { route } = useLocation();
  if (task.ended_at === null || task.input?.kept !== true || !may('POST /task/{ws}/{taskId}/rerun')) return null;
  return (
    <Action<{ readonly task_id: string }>
      label="Run again"
      question="Run it again?"
      sure="Run it now"
      call={{ method: 'POST', path: `/task/${workspaceId}/${task.id}/rerun`, body: {} }}
      line={`longshore task rerun ${task.id}`}
      said={() => <p>It runs again.</p>}
      onDone={({ task_id: id }) => route(`${home}/tasks/${id}`)}
    >
      <p>It becomes a new task with the input of this one, on the version that gets calls now.</p>
    </Action>
  );
}

interface Ran {
  readonly task: RestTask;
  readonly workspaceId: string;
  readonly home: string;
}

/** Tasks among which runs of the same input are looked for: the newest since it ended. */
const MOST_SOUGHT = 100;

/** The task that this one is a run of, and those that are runs of it. */
function Runs({ task, workspaceId, home }: Ran) {
  const mayList = task.ended_at !== null && may('GET /task-summary/{ws}');
  const { name } = task.deployment;
  const query = {
    ...(name === null ? { stub_ids: task.stub_id } : { deployment_name: name }),
    created_at_start: task.ended_at ?? undefined,
    limit: MOST_SOUGHT,
  };
  const later = useResource(
    `runs of ${task.id} ${mayList}`,
    async (signal) => {
      if (!mayList) return [];
      const path = `/task-summary/${workspaceId}${queryOf(query)}`;
      const { data } = await rest<{ readonly data: readonly TaskSummary[] }>(path, { signal });
      return data.filter(({ rerun_of: of }) => of === task.id).map(({ id }) => id);
    },
    0,
  );
  const link = (id: string) => (
    <a key={id} href={`${home}/tasks/${id}`}>
      <code>{id.slice(0, 8)}</code>
    </a>
  );
  return (
    <>
      {task.rerun_of === '' ? null : <p>A run again of task {link(task.rerun_of)}.</p>}
      {(later.value ?? []).length === 0 ? null : (
        <p>It ran again as task {later.value?.map((id) => [link(id), ' '])}</p>
      )}
    </>
  );
}
