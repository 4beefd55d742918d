// Starts of a deployment's containers: how long each phase took, as bars and as numbers, and the starts that failed.
import type { EventRecord } from '#shared/api/rest/events.ts';
import { queryOf, rest } from '../api/client.ts';
import { useResource } from '../live/resource.ts';
import { shownLine, shownText } from '../parts/hostile.ts';
import { Shown, Twin } from '../parts/notices.tsx';
import { PHASES, phasesOf, startsOf } from '../parts/starts.ts';
import type { Start } from '../parts/starts.ts';
import { agoOf, spanOf } from '../parts/time.ts';

/** Events that are read: a start has up to ten. */
const MOST_EVENTS = 500;
/** Starts that are listed. */
const MOST_STARTS = 20;
const EVERY_MS = 15_000;

export function Starts({ workspaceId, stubId }: { readonly workspaceId: string; readonly stubId: string }) {
  const path = `/events/${workspaceId}/history${queryOf({ event_types: 'container.lifecycle', stub_id: stubId, limit: MOST_EVENTS })}`;
  const events = useResource(
    path,
    (signal) => rest<{ readonly events: readonly EventRecord[] }>(path, { signal }),
    EVERY_MS,
  );
  return (
    <>
      <Shown of={events}>
        {({ events: read }) => {
          const starts = startsOf(read);
          return starts.length === 0 ? (
            <p>No container of it has started in the time that is kept.</p>
          ) : (
            <Phases starts={starts} />
          );
        }}
      </Shown>
      <Twin line={`longshore events --type container.lifecycle --stub ${stubId}`} />
    </>
  );
}

function Phases({ starts }: { readonly starts: readonly Start[] }) {
  const { all, phases } = phasesOf(starts);
  const most = Math.max(1, ...phases.map(({ p50Ms }) => p50Ms));
  return (
    <>
      <p role="status">
        {all.count === 0
          ? 'None of them got ready.'
          : all.count === 1
            ? `It took ${spanOf(all.p50Ms)} to get ready, once.`
            : `Half of ${all.count} starts took at most ${spanOf(all.p50Ms)}, 95 of 100 at most ${spanOf(all.p95Ms)}.`}
        {phases[0] === undefined ? '' : ` Most of it is ${phases[0].title}.`}
      </p>
      {phases.length === 0 ? null : (
        <table>
          <caption class="hidden">Phases of starts, the longest first</caption>
          <thead>
            <tr>
              <th scope="col">phase</th>
              <th scope="col" class="number">
                half within
              </th>
              <th scope="col" class="number">
                95 of 100 within
              </th>
            </tr>
          </thead>
          <tbody>
            {phases.map(({ id, title, p50Ms, p95Ms }) => (
              <tr key={id}>
                <th scope="row">{title}</th>
                <td class="number">
                  <meter aria-hidden="true" min={0} max={most} value={p50Ms} /> {spanOf(p50Ms)}
                </td>
                <td class="number">{spanOf(p95Ms)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <h3>Last starts</h3>
      <ul class="rows">
        {starts.slice(0, MOST_STARTS).map((start) => (
          <li key={`${start.containerId} ${start.endedAt}`}>
            {start.isReady ? `ready after ${spanOf(start.tookMs)}` : <strong class="error">failed</strong>}{' '}
            <span class="faint">
              {agoOf(start.endedAt)} · <code>{shownText(start.containerId)}</code>
            </span>
            {start.why === '' ? null : <div class="error">{shownLine(start.why)}</div>}
            <div class="faint">
              {PHASES.filter(({ id }) => start.phases.has(id))
                .map(({ id, title }) => `${title} ${spanOf(start.phases.get(id) ?? 0)}`)
                .join(' · ')}
            </div>
          </li>
        ))}
      </ul>
    </>
  );
}
