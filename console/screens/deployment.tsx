// A deployment's name: its state with the whole explanation, its containers and last decisions, its versions, its last
// tasks, and how to call it.
import type { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import { queryOf, rest } from '../api/client.ts';
import type { Explained } from '../api/explain.ts';
import { may, mayReach } from '../api/session.ts';
import { useLive } from '../live/live.ts';
import { useResource } from '../live/resource.ts';
import { counted, readyOf } from '../parts/counted.ts';
import { latestOf } from '../parts/call-lines.ts';
import { CallStatistics } from '../parts/calls.tsx';
import { Command, Shown, Twin } from '../parts/notices.tsx';
import { TerminalLink } from '../parts/terminal-link.tsx';
import { State } from '../parts/state.tsx';
import { commandsIn, shownLine, shownText, withoutSubject } from '../parts/hostile.ts';
import { Sentence } from '../parts/text.tsx';
import { agoOf, between, clockOf } from '../parts/time.ts';
import { word } from '../parts/word.ts';
import { CallPart } from './call-part.tsx';
import { Start, VersionActions, servingOf } from './deployment-actions.tsx';
import type { ScreenProps } from './screen.ts';
import { StartsPart } from './starts-part.tsx';
import { TaskTable } from './tasks.tsx';

const VERSIONS_EVERY_MS = 30_000;
const MOST_SHOWN = 100;

export function Deployment({ workspace, home, name }: ScreenProps & { readonly name: string }) {
  const isExplained = may('GET /explain/{ws}/{id}');
  const explained = useLive<Explained>(workspace.id, isExplained ? `deployment:${encodeURIComponent(name)}` : '');
  const versions = useResource(
    `versions ${workspace.id} ${name}`,
    async (signal) => {
      const page = await rest<{ readonly data: readonly DeploymentRecord[] }>(
        `/deployment/${workspace.id}${queryOf({ name, limit: MOST_SHOWN, show_deleted: true })}`,
        {
          signal,
        },
      );
      return page.data.filter((record) => record.name === name);
    },
    VERSIONS_EVERY_MS,
  );
  return (
    <>
      <h1>{shownText(name)}</h1>
      <p class="links">
        {may('GET /logs/{ws}/stream') ? <a href={`${home}/logs?name=${encodeURIComponent(name)}`}>Logs</a> : null}
        <a href={`${home}/tasks?name=${encodeURIComponent(name)}`}>Tasks</a>
      </p>
      {isExplained ? (
        <Shown of={explained}>{(value) => <Explanation of={value} home={mayReach(workspace.id) ? home : ''} />}</Shown>
      ) : null}
      {may('GET /task-stats/{ws}') && versions.value !== undefined && versions.value.length > 0 ? (
        <CallStatistics workspaceId={workspace.id} deploymentIds={versions.value.slice(0, 10).map(({ id }) => id)} />
      ) : null}
      <Shown of={versions}>{(records) => <Versions records={records} home={home} again={versions.again} />}</Shown>
      {versions.value === undefined || versions.value.length === 0 || !may('GET /task-summary/{ws}') ? null : (
        <section>
          <h2>Last tasks</h2>
          <TaskTable workspace={workspace} home={home} query={{ deployment_name: name, limit: 10 }} />
        </section>
      )}
    </>
  );
}

/**
 * A whole explanation: the sentence, what is awaited, the details, and the steps with their commands.
 * @param home - the address of the workspace where shells may be opened; empty: they may not
 */
export function Explanation({ of, home = '' }: { readonly of: Explained; readonly home?: string }) {
  const { scaling } = of;
  return (
    <section class="explanation">
      <p class="head">
        <State state={of.state} /> {of.since === null ? null : <span class="faint">for {between(of.since, null)}</span>}
      </p>
      <p class="summary" role="status">
        <Sentence text={withoutSubject(of.summary, of.deployment?.name ?? '', of.state)} />
      </p>
      {of.waits_for === '' ? null : (
        <p>
          Waits for <Sentence text={of.waits_for} />
          {of.until === null ? '' : `, until ${clockOf(of.until)}`}.
        </p>
      )}
      {of.details.length === 0 ? null : (
        <ul>
          {of.details.map((text) => (
            <li key={text}>
              <Sentence text={text} />
            </li>
          ))}
        </ul>
      )}
      {of.next_steps.length === 0 ? null : (
        <>
          <h2>Next steps</h2>
          <ul>
            {of.next_steps.map((text) => (
              <li key={text}>
                <Sentence text={text} />
                {commandsIn(text)
                  .filter((line) => line.startsWith('longshore '))
                  .map((line) => (
                    <div key={line}>
                      <Command line={line} />
                    </div>
                  ))}
              </li>
            ))}
          </ul>
        </>
      )}
      {of.leader_answered ? null : (
        <p class="notice wait">
          The scheduler that leads did not answer, so the numbers are missing. The page asks again.
        </p>
      )}
      {scaling === null ? null : <Scaling of={scaling} home={home} />}
      <Twin line={`longshore explain ${of.kind === 'deployment' ? word(of.deployment?.name ?? of.id) : of.id}`} />
    </section>
  );
}

function Scaling({ of, home }: { readonly of: NonNullable<Explained['scaling']>; readonly home: string }) {
  return (
    <>
      <dl class="numbers">
        <Number label="ready" value={readyOf(of.ready, of.wanted ?? of.live)} />
        <Number label="calls that wait" value={of.waiting} />
        <Number label="calls that run" value={of.running} />
        <Number label="containers may be" value={`${of.min_containers} to ${of.max_containers}`} />
      </dl>
      {of.breaker.last_message === '' ? null : (
        <>
          <h2>Last lines of a failed start</h2>
          <pre class="value" tabIndex={0}>
            {shownLine(of.breaker.last_message)}
          </pre>
        </>
      )}
      {of.containers.length === 0 ? null : (
        <details>
          <summary>{counted(of.containers.length, 'container')}</summary>
          <ul>
            {of.containers.map((container) => (
              <li key={container.container_id}>
                <State state={container.state} /> <code>{container.container_id}</code>{' '}
                {container.attempts === null ? '' : `${container.attempts} of ${container.slots} places taken`}
                {container.main_rejection === '' ? '' : `: ${container.main_rejection}`}{' '}
                {home !== '' && container.state === 'RUNNING' ? (
                  <TerminalLink home={home} id={container.container_id} />
                ) : null}
              </li>
            ))}
          </ul>
        </details>
      )}
      {of.decisions.length === 0 ? null : (
        <details>
          <summary>Last decisions about its containers</summary>
          <ul>
            {of.decisions.map((decision) => (
              <li key={`${decision.at} ${decision.text}`}>
                {decision.at === null ? '' : `${clockOf(decision.at)} `}
                <Sentence text={decision.text} />
                {decision.times > 1 ? ` (${decision.times} times)` : ''}
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

const Number = ({ label, value }: { readonly label: string; readonly value: string | number }) => (
  <div>
    <dt>{label}</dt>
    <dd>{value}</dd>
  </div>
);

function Versions({
  records,
  home,
  again,
}: {
  readonly records: readonly DeploymentRecord[];
  readonly home: string;
  readonly again: () => void;
}) {
  const [newest] = records;
  const serving = servingOf(records);
  if (newest === undefined)
    return <p class="notice">There is no deployment of this name: `longshore deploy` makes one.</p>;
  return (
    <>
      <section>
        <h2>Call it</h2>
        <p class="faint">{latestOf((serving ?? newest).invoke_url, serving ?? newest)}</p>
        {serving !== undefined && !serving.active ? (
          <div class="notice">
            <p>v{serving.version} is stopped, so calls of it are refused until it is started.</p>
            <Start record={serving} again={again} />
          </div>
        ) : null}
        <CallPart record={serving ?? newest} home={home} />
      </section>
      <StartsPart workspaceId={newest.workspace_id} stubId={(serving ?? newest).stub_id} name={newest.name} />
      <section>
        <h2>Versions</h2>
        <ul class="rows">
          {records.map((record) => (
            <li key={record.id}>
              <strong>v{record.version}</strong>{' '}
              {record.id === serving?.id && record.active ? (
                <span class="state good">
                  <span aria-hidden="true">● </span>gets calls
                </span>
              ) : record.deleted_at === null && record.active ? (
                <span class="faint">active</span>
              ) : (
                <State state={record.deleted_at === null ? 'STOPPED' : 'DELETED'} />
              )}{' '}
              <span class="faint">
                deployed {agoOf(record.created_at)} · <code>{record.id}</code>
              </span>
              <VersionActions record={record} serving={serving} again={again} />
            </li>
          ))}
        </ul>
        <Twin line={`longshore deployment show ${word(newest.name)}`} />
      </section>
    </>
  );
}
