// Log lines as they come. The list follows the newest line only while it is scrolled to its end, so that nothing moves
// under a reader; a button leads back to the end.
import { useEffect, useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import type { LogRecord } from '#shared/api/rest/logs.ts';
import { queryOf, rest } from '../api/client.ts';
import { MOST_KEPT, useLiveLines } from '../live/logs.ts';
import { useResource } from '../live/resource.ts';
import { Shown, Twin } from '../parts/notices.tsx';
import { shownLine, shownText } from '../parts/hostile.ts';
import { clockOf, zonedOf } from '../parts/time.ts';
import { word } from '../parts/word.ts';
import type { ScreenProps } from './screen.ts';

/** Lines in the document at once. */
const MOST_ROWS = 400;

export function Logs({ workspace, home }: ScreenProps) {
  const { query, route } = useLocation();
  const {
    name = '',
    text = '',
    container,
  } = query as {
    readonly name?: string;
    readonly text?: string;
    readonly container?: string;
  };
  const [typed, setTyped] = useState(text);
  const app = useResource(
    `newest ${workspace.id} ${name}`,
    async (signal) => {
      if (name === '') return '';
      const page = await rest<{ readonly data: readonly DeploymentRecord[] }>(
        `/deployment/${workspace.id}${queryOf({ name, limit: 100, active: true })}`,
        { signal },
      );
      return page.data.find((one) => one.name === name)?.id ?? '';
    },
    0,
  );
  return (
    <>
      <h1>
        Logs
        {container !== undefined ? ` of ${shownText(container).slice(-8)}` : null}
        {container !== undefined || name === '' ? null : (
          <>
            {' '}
            of <a href={`${home}/d/${encodeURIComponent(name)}`}>{shownText(name)}</a>
          </>
        )}
      </h1>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          route(`${home}/logs${queryOf({ name, text: typed, container })}`);
        }}
      >
        <label>
          Lines with <input type="search" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <button type="submit">Filter</button>
        {name === '' && container === undefined ? null : (
          <a href={`${home}/logs${queryOf({ text })}`}>of all deployments</a>
        )}
      </form>
      <Shown of={app}>
        {(deploymentId) =>
          name !== '' && deploymentId === '' ? (
            <p class="notice">
              No version of {shownText(name)} takes calls now: `longshore deployment start` starts one.
            </p>
          ) : (
            <Live workspaceId={workspace.id} deploymentId={deploymentId} text={text} container={container} />
          )
        }
      </Shown>
      <Twin
        line={
          container !== undefined
            ? `longshore logs --container ${word(container)} --follow`
            : name === ''
              ? 'longshore logs --follow'
              : `longshore logs ${word(name)} --follow`
        }
      />
    </>
  );
}

function Live({
  workspaceId,
  deploymentId,
  text,
  container,
}: {
  readonly workspaceId: string;
  readonly deploymentId: string;
  readonly text: string;
  readonly container: string | undefined;
}) {
  const about = {
    container_id: container,
    deployment_id: deploymentId === '' ? undefined : deploymentId,
    query: text === '' ? undefined : text,
  };
  const { lines, state, why } = useLiveLines(workspaceId, about);
  return (
    <>
      <p class="faint" role="status">
        {state === 'live'
          ? '● live'
          : state === 'loading'
            ? 'Reading …'
            : `✕ not live: ${why === '' ? 'the tab was hidden' : why}; dialling again`}
        {lines.length >= MOST_KEPT ? ` · the last ${MOST_KEPT} lines; older ones are on disk` : ''}
      </p>
      {lines.length === 0 && state === 'live' ? (
        <p class="notice">
          Nothing was printed{text === '' ? '' : ` with ${shownText(text)}`} yet. New lines appear here by themselves.
        </p>
      ) : (
        <LineList lines={lines} label="Log lines" follows />
      )}
    </>
  );
}

/** Lines in their order. @param follows - stays at the newest line while it is in view */
export function LineList({
  lines,
  label,
  follows = false,
}: {
  readonly lines: readonly LogRecord[];
  readonly label: string;
  readonly follows?: boolean;
}) {
  const box = useRef<HTMLOListElement>(null);
  const [isAtEnd, setAtEnd] = useState(true);
  useEffect(() => {
    if (follows && isAtEnd && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, isAtEnd, follows]);
  const onScroll = (): void => {
    const { current } = box;
    if (current !== null) setAtEnd(current.scrollHeight - current.scrollTop - current.clientHeight < 8);
  };
  return (
    <>
      <ol class="lines" ref={box} onScroll={onScroll} tabIndex={0} aria-label={label}>
        {lines.slice(-MOST_ROWS).map((line) => (
          <li key={line.seq_num} class={line.stream}>
            <time dateTime={line.timestamp} title={zonedOf(line.timestamp)}>
              {clockOf(line.timestamp)}
            </time>
            {line.stream === 'stderr' ? <span class="hidden">on stderr: </span> : null}
            <span class="message">{shownLine(line.message)}</span>
          </li>
        ))}
      </ol>
      {follows && !isAtEnd ? (
        <button type="button" onClick={() => setAtEnd(true)}>
          To the newest line
        </button>
      ) : null}
    </>
  );
}
