// Containers that wait for a machine, by deployment: how many, why, what is kept for them, and whether a pool grows.
import type { WaitingGroup, WaitingList } from '#shared/api/rest/waiting.ts';
import { segmentOf, signedIn } from '../../api/session.ts';
import { useLive } from '../../live/live.ts';
import { counted } from '../../parts/counted.ts';
import { commandsIn, shownText } from '../../parts/hostile.ts';
import { Command, Shown, Twin } from '../../parts/notices.tsx';
import { homeOf } from '../../parts/shell.tsx';
import { Sentence } from '../../parts/text.tsx';
import { agoOf, clockOf, spanOf } from '../../parts/time.ts';

export function Waiting() {
  const list = useLive<WaitingList>(signedIn.value?.facts.workspace.id ?? '', 'waiting');
  return (
    <>
      <h1>Waiting for capacity</h1>
      <Shown of={list}>
        {({ data, groups, containers, looked_at }) =>
          data.length === 0 ? (
            <p class="notice">
              No container waits for a machine, as of {clockOf(looked_at)}. Calls that no machine could serve are
              refused, and do not wait: the overview of their workspace says why.
            </p>
          ) : (
            <>
              <p class="summary">
                {counted(containers, 'container')} waiting, of {counted(groups, 'deployment')}, as of{' '}
                {clockOf(looked_at)}.
              </p>
              <ul class="rows">
                {data.map((group) => (
                  <Group key={group.oldest_id} group={group} />
                ))}
              </ul>
              {groups > data.length ? <p class="faint">These are the {data.length} that have waited longest.</p> : null}
            </>
          )
        }
      </Shown>
      <Twin line="longshore waiting" />
    </>
  );
}

export function asksOf({ asks }: Pick<WaitingGroup, 'asks'>): string {
  const gpus = asks.gpu.length === 0 ? '' : `${asks.gpu_count}×${asks.gpu.join(' or ')}, `;
  const pool = asks.pool === '' ? '' : `, in pool ${asks.pool}`;
  return `${gpus}${asks.cpu_millicores / 1000} CPU, ${memoryOf(asks.memory_mib)}${pool}`;
}

const memoryOf = (mib: number): string => (mib % 1024 === 0 ? `${mib / 1024} GiB` : `${mib} MiB`);

function Group({ group }: { readonly group: WaitingGroup }) {
  const { workspace_name, workspace_id, name, containers, reservation, growth, step } = group;
  const home = homeOf(segmentOf({ id: workspace_id, name: workspace_name }));
  return (
    <li>
      <p>
        <strong>
          {shownText(workspace_name === '' ? workspace_id : workspace_name)}/
          {group.deployment_id === null ? (
            shownText(name)
          ) : (
            <a href={`${home}/d/${encodeURIComponent(name)}`}>{shownText(name)}</a>
          )}
        </strong>{' '}
        ×{containers} {shownText(asksOf(group))}{' '}
        <span class="faint">
          oldest {agoOf(group.oldest_at)}, gives up in {spanOf(Date.parse(group.gives_up_at) - Date.now())}
        </span>
      </p>
      <p>
        <Sentence text={group.text} />
      </p>
      {reservation === null ? null : (
        <p>
          <Sentence text={reservation.text} />
          {reservation.until === null
            ? ''
            : `: ${spanOf(Date.parse(reservation.until) - Date.now())} more at the longest`}
        </p>
      )}
      {growth.length > 0 ? null : <p class="faint">No pool makes a machine for it by itself.</p>}
      {growth.map((pool) => (
        <p key={pool.pool}>
          <Sentence text={pool.text} />
        </p>
      ))}
      {step === '' ? null : (
        <p>
          Next: <Sentence text={step} />{' '}
          {commandsIn(step)
            .filter((line) => line.startsWith('longshore '))
            .map((line) => (
              <Command key={line} line={line} />
            ))}
        </p>
      )}
      <p class="faint">
        <Command line={`longshore explain ${group.oldest_id}`} />
      </p>
    </li>
  );
}
