// Containers: live ones with what they use beside what they asked for, and those that ended, with the reason, the exit
// code and the last lines.
import type { ContainerRecord, EndedContainer } from '#shared/api/rest/containers.ts';
import type { ListContainersResponse } from '#shared/api/containers.ts';
import type { Static } from 'typebox';
import { gateway, rest } from '../api/client.ts';
import { may, mayReach, signedIn } from '../api/session.ts';
import { useResource } from '../live/resource.ts';
import { Action } from '../parts/action.tsx';
import { bytesOf } from '../parts/bytes.ts';
import { shownLine, shownText } from '../parts/hostile.ts';
import { Rows, useList } from '../parts/list.tsx';
import { Command, Shown, Twin } from '../parts/notices.tsx';
import { TerminalLink } from '../parts/terminal-link.tsx';
import { State } from '../parts/state.tsx';
import { Value } from '../parts/text.tsx';
import { agoOf, between } from '../parts/time.ts';
import type { ScreenProps } from './screen.ts';

const EVERY_MS = 5_000;
/** Live containers that are shown. */
const MOST_LIVE = 200;

type Used = ListContainersResponse['containers'][number]['usage'];
type Ended = Static<typeof EndedContainer>;

interface Live {
  readonly records: readonly ContainerRecord[];
  readonly used: ReadonlyMap<string, Used>;
}

export function Containers({ workspace, home }: ScreenProps) {
  // The use of containers is told of the token's own workspace.
  const isOwn = signedIn.value?.facts.workspace.id === workspace.id;
  const live = useResource<Live>(
    `containers ${workspace.id}`,
    async (signal) => {
      const records = await rest<readonly ContainerRecord[]>(`/container/${workspace.id}`, { signal });
      if (!isOwn || records.length === 0 || !may('GET /gateway/containers')) return { records, used: new Map() };
      const { containers } = await gateway<ListContainersResponse>('/containers', { signal });
      return { records, used: new Map(containers.map(({ containerId, usage }) => [containerId, usage])) };
    },
    EVERY_MS,
  );
  const ended = useList<Ended>(`/ended-container/${workspace.id}`);
  return (
    <>
      <h1>Containers</h1>
      <section>
        <h2>Live</h2>
        <Shown of={live}>
          {({ records, used }) =>
            records.length === 0 ? (
              <div class="notice">
                <p>No container runs. A call starts one:</p>
                <Command line="longshore invoke NAME" />
              </div>
            ) : (
              <>
                <ul class="rows">
                  {records.slice(0, MOST_LIVE).map((record) => (
                    <LiveRow
                      key={record.container_id}
                      record={record}
                      used={used.get(record.container_id) ?? null}
                      home={home}
                      again={live.again}
                    />
                  ))}
                </ul>
                {records.length > MOST_LIVE ? (
                  <p class="faint">
                    These are {MOST_LIVE} of {records.length}. The command lists all.
                  </p>
                ) : null}
              </>
            )
          }
        </Shown>
        <Twin line="longshore container list" />
      </section>
      {may('GET /ended-container/{ws}') ? (
        <section>
          <h2>Ended</h2>
          <Rows of={ended} none="No container has ended in the time that is kept." first="longshore container list">
            {(record) => <EndedRow key={record.container_id} record={record} home={home} />}
          </Rows>
          <Twin line="longshore container list --ended" />
        </section>
      ) : null}
    </>
  );
}

function LiveRow({
  record,
  used,
  home,
  again,
}: {
  readonly record: ContainerRecord;
  readonly used: Used;
  readonly home: string;
  readonly again: () => void;
}) {
  const { container_id: id, machine_id: machine } = record;
  return (
    <li>
      <State state={record.status} /> <code>{id}</code>{' '}
      <span class="faint">
        {machine === '' ? 'has no machine yet' : `on ${machine.slice(0, 8)}`}
        {record.started_at === 0 ? '' : ` · started ${agoOf(new Date(record.started_at * 1000).toISOString())}`}
      </span>
      <dl class="numbers">
        <div>
          <dt>CPU, used of asked</dt>
          <dd>
            {used === null ? '?' : (used.cpuMillicores / 1000).toFixed(2)} of {record.cpu / 1000}
          </dd>
        </div>
        <div>
          <dt>memory</dt>
          <dd>
            {used === null ? '?' : bytesOf(Number(used.memoryBytes))} of {bytesOf(record.memory * 2 ** 20)}
          </dd>
        </div>
        {record.gpu_count === 0 ? null : (
          <div>
            <dt>
              {record.gpu_count} {shownText(record.gpu)}
            </dt>
            <dd>
              {used === null || used.gpu === null
                ? '?'
                : `${Math.round(used.gpu.utilizationPct ?? 0)} % busy, ${bytesOf(Number(used.gpu.memoryUsedBytes ?? 0))}`}
            </dd>
          </div>
        )}
      </dl>
      <span class="actions of-row">
        {may('GET /logs/{ws}/stream') ? <a href={`${home}/logs?container=${encodeURIComponent(id)}`}>Logs</a> : null}
        {record.status === 'RUNNING' && mayReach(record.workspace_id) ? <TerminalLink home={home} id={id} /> : null}
        {may('POST /gateway/containers/{containerId}/stop') &&
        signedIn.value?.facts.workspace.id === record.workspace_id ? (
          <Action
            label="Stop"
            question={`Stop container ${id.slice(-8)}?`}
            sure="Stop it"
            call={{ method: 'POST', path: `/gateway/containers/${encodeURIComponent(id)}/stop`, body: {} }}
            line={`longshore container stop ${id}`}
            said={() => <p>It stops: its tasks end or run elsewhere, and the next call may start another.</p>}
            onDone={again}
          >
            <p>Calls that run in it are cut off. A deployment that needs it starts another.</p>
          </Action>
        ) : null}
      </span>
    </li>
  );
}

function EndedRow({ record, home }: { readonly record: Ended; readonly home: string }) {
  return (
    <li>
      <State state={record.state} /> <code>{record.container_id}</code>{' '}
      <span class="faint">
        {shownText(record.stub_name)} · {agoOf(record.ended_at)}
        {record.started_at === null ? ' · it was never ready' : ` · ran ${between(record.started_at, record.ended_at)}`}
      </span>
      <p>
        {shownText(record.reason)}
        {record.exit_code === null ? '' : `, exit code ${record.exit_code}`}
        {may('GET /logs/{ws}/stream') ? (
          <>
            {' '}
            · <a href={`${home}/logs?container=${encodeURIComponent(record.container_id)}`}>Logs</a>
          </>
        ) : null}
      </p>
      {record.message === '' ? null : record.message.includes('\n') ? (
        <details>
          <summary>{shownLine(record.message.trimEnd().split('\n').at(-1) ?? '')}</summary>
          <Value text={record.message} label="Last lines" />
        </details>
      ) : (
        <p class="error">{shownLine(record.message)}</p>
      )}
    </li>
  );
}
