// Changes of all tasks that a filter means: they run again, or are cancelled. They are counted first, and the question
// names the count. A request changes a bounded number, so that it is sent until none is left.
import type { CancelledTasks, RerunTasks, RestTask } from '#shared/api/rest/tasks.ts';
import { queryOf } from '../api/client.ts';
import { may } from '../api/session.ts';
import { useResource } from '../live/resource.ts';
import { Ask, Question, perform } from '../parts/action.tsx';
import { shownText } from '../parts/hostile.ts';
import { Shown } from '../parts/notices.tsx';
import { scopeOf } from '../parts/task-lines.ts';

/** Reasons of refusals that are shown. */
const MOST_REASONS = 3;
/** The command line has fewer filters, so that it could change others: the request alone is shown. */
const ONE_REQUEST = 'It changes 200 tasks at most, and says how to go on.';
/** Requests that one question sends at most. */
const MOST_CALLS = 50;

export type TaskFilter = Readonly<Record<string, string | number | undefined>>;

interface Props {
  readonly workspaceId: string;
  /** As the list has it: status, deployments, reasons, time. */
  readonly filter: TaskFilter;
}

/** @param kind - which of the two changes the listed tasks can have */
export function TaskBulk({ kind, ...props }: Props & { readonly kind: 'failed' | 'open' }) {
  // Tasks that come while the question is open are not meant.
  const asked = (): Props => ({ ...props, filter: { ...props.filter, created_at_end: new Date().toISOString() } });
  if (kind === 'failed')
    return may('POST /task/{ws}/rerun') ? (
      <Ask label="Run all again">{() => <RerunQuestion {...asked()} />}</Ask>
    ) : null;
  return may('POST /task/{ws}/cancel') ? <Ask label="Cancel all">{() => <CancelQuestion {...asked()} />}</Ask> : null;
}

const pathOf = ({ workspaceId, filter }: Props, verb: 'rerun' | 'cancel', more: TaskFilter = {}): string =>
  `/task/${workspaceId}/${verb}${queryOf({ ...filter, ...more })}`;

function RerunQuestion(props: Props) {
  const count = useResource(
    `count ${pathOf(props, 'rerun')}`,
    () => perform<RerunTasks>({ method: 'POST', path: pathOf(props, 'rerun', { dry_run: 'true' }) }),
    0,
  );
  const { value } = count;
  return (
    <Question<Done>
      question="Run all of them again?"
      sure={value === undefined ? 'Run again' : `Run ${said(value.matched, value.next !== '')} again`}
      call={value === undefined || value.matched === 0 ? undefined : { method: 'POST', path: pathOf(props, 'rerun') }}
      act={async (tell, signal) => {
        const done: Done = { count: 0, refused: [] };
        let cursor = '';
        for (let calls = 0; calls < MOST_CALLS && !signal.aborted; calls += 1) {
          const path = pathOf(props, 'rerun', { cursor });
          const answer = await perform<RerunTasks>({ method: 'POST', path });
          done.count += answer.rerun.length;
          done.refused.push(...answer.refused.map(({ error }) => error));
          tell(`${done.count} run again …`);
          cursor = answer.next;
          if (cursor === '') break;
        }
        return done;
      }}
      remark={ONE_REQUEST}
      said={(done) => <DoneText of={done} what="run again" />}
    >
      <p>{shownText(scopeOf(props.filter))}</p>
      <Shown of={count}>
        {({ matched, left_out: leftOut, next }) => (
          <>
            <p>
              <strong>{said(matched, next !== '')}</strong> would run again, each as a new task with the input that it
              had, on the version that serves now.
            </p>
            {leftOut === 0 ? null : <p>Left out: {said(leftOut, false)} with a run again already.</p>}
          </>
        )}
      </Shown>
    </Question>
  );
}

function CancelQuestion(props: Props) {
  const count = useResource(
    `count ${pathOf(props, 'cancel')}`,
    () => perform<CancelledTasks>({ method: 'POST', path: pathOf(props, 'cancel', { dry_run: 'true' }) }),
    0,
  );
  const { value } = count;
  return (
    <Question<Done>
      question="Cancel all of them?"
      sure={value === undefined ? 'Cancel them' : `Cancel ${said(value.matched, value.more)}`}
      call={value === undefined || value.matched === 0 ? undefined : { method: 'POST', path: pathOf(props, 'cancel') }}
      act={async (tell, signal) => {
        const done: Done = { count: 0, refused: [] };
        for (let calls = 0; calls < MOST_CALLS && !signal.aborted; calls += 1) {
          const answer = await perform<CancelledTasks>({ method: 'POST', path: pathOf(props, 'cancel') });
          done.count += answer.cancelled.length;
          done.refused.push(...answer.refused.map(({ error }) => error));
          tell(`${done.count} cancelled …`);
          if (!answer.more || answer.cancelled.length === 0) break;
        }
        return done;
      }}
      remark={ONE_REQUEST}
      said={(done) => <DoneText of={done} what="cancelled" />}
    >
      <p>{shownText(scopeOf(props.filter))}</p>
      <Shown of={count}>
        {({ matched, more }) => (
          <p>
            <strong>{said(matched, more)}</strong> would end as CANCELLED, those that run, too.
          </p>
        )}
      </Shown>
    </Question>
  );
}

interface Done {
  count: number;
  readonly refused: string[];
}

const said = (count: number, isMore: boolean): string =>
  `${isMore ? 'more than ' : ''}${count} ${count === 1 ? 'task' : 'tasks'}`;

function DoneText({ of: { count, refused }, what }: { readonly of: Done; readonly what: string }) {
  const reasons = [...new Set(refused)];
  return (
    <>
      <p>
        {said(count, false)} {what}.
      </p>
      {refused.length === 0 ? null : (
        <>
          <p>{said(refused.length, false)} not:</p>
          <ul>
            {reasons.slice(0, MOST_REASONS).map((why) => (
              <li key={why}>{shownText(why)}</li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** Leads to the tasks that failed with the same reason: their errors may differ. */
export function FailedAlike({ task, home }: { readonly task: RestTask; readonly home: string }) {
  if (task.failure_reason === '' || !may('GET /task-summary/{ws}')) return null;
  const { name } = task.deployment;
  const query = queryOf({ name: name ?? undefined, show: 'failed', reason: task.failure_reason });
  return (
    <a href={`${home}/tasks${query}`}>
      All that failed with <code>{shownText(task.failure_reason)}</code>
    </a>
  );
}
