// Actions of a deployment: calls go back to an older version, with the difference of the two seen first; stop, start,
// scale. Each asks once.
import { useState } from 'preact/hooks';
import type { DeploymentRecord } from '#shared/api/rest/deployments.ts';
import { may, signedIn } from '../api/session.ts';
import { explain } from '../api/explain.ts';
import { useResource } from '../live/resource.ts';
import { counted } from '../parts/counted.ts';
import { Action, Ask, Question } from '../parts/action.tsx';
import { configChanges, inWords } from '../parts/config-diff.ts';
import type { ConfigChange } from '../parts/config-diff.ts';
import { shownLine, shownText } from '../parts/hostile.ts';
import { Command } from '../parts/notices.tsx';
import { word } from '../parts/word.ts';

/** Kinds of which an older version can serve again. */
const ROLLED_BACK = ['endpoint', 'asgi', 'taskqueue', 'function', 'pod'];
/** Most containers that a form takes; the scheduler has the bound that counts. */
const MOST_CONTAINERS = 1_000;

type Version = Pick<
  DeploymentRecord,
  'id' | 'name' | 'version' | 'active' | 'deleted_at' | 'rollout' | 'stub_type' | 'stub' | 'object_id' | 'workspace_id'
>;

const kindOf = ({ stub_type: type }: Version): string => type.split('/', 1)[0] ?? '';
const hasServed = ({ rollout }: Version): boolean => rollout === null || rollout.state === 'done';

/** The version that calls of the name reach; undefined: none. */
export const servingOf = <T extends Version>(records: readonly T[]): T | undefined =>
  records
    .filter(({ deleted_at: deletedAt, rollout }) => deletedAt === null && rollout?.state !== 'failed')
    .toSorted((a, b) => Number(hasServed(b)) - Number(hasServed(a)) || b.version - a.version)[0];

interface Props {
  readonly record: Version;
  readonly serving: Version | undefined;
  readonly again: () => void;
}

/** Buttons of one version; nothing where the token may do none of it. */
export function VersionActions({ record, serving, again }: Props) {
  if (record.deleted_at !== null) return null;
  return (
    <span class="actions of-row">
      {record.active && record.id !== serving?.id && serving !== undefined && ROLLED_BACK.includes(kindOf(record)) ? (
        <RollBack record={record} serving={serving} again={again} />
      ) : null}
      {record.active ? <Stop record={record} again={again} /> : <Start record={record} again={again} />}
      {record.active ? <Scale record={record} again={again} /> : null}
    </span>
  );
}

const named = ({ name, version }: Version): string => word(`${name}/v${version}`);
const titled = ({ name, version }: Version): string => `${shownText(name)} v${version}`;
function RollBack({ record, serving, again }: Props & { readonly serving: Version }) {
  if (!may('POST /deployment/{ws}/rollback/{deploymentId}')) return null;
  const verb = record.version < serving.version ? 'Roll back' : 'Switch';
  return (
    <Action
      label={`${verb} to v${record.version}`}
      question={`${verb} ${shownText(record.name)} from v${serving.version} to v${record.version}?`}
      sure={`${verb} to v${record.version}`}
      call={{ method: 'POST', path: `/deployment/${record.workspace_id}/rollback/${record.id}` }}
      line={`longshore deployment rollback ${word(record.name)} v${record.version}`}
      said={() => (
        <p>
          Calls of {shownText(record.name)} reach v{record.version} now. v{serving.version} is still active: stop it
          when nobody calls it by its version.
        </p>
      )}
      onDone={again}
    >
      <Difference from={serving} to={record} />
    </Action>
  );
}

/** The difference between two versions: each value of the configuration, and whether the code does. */
function Difference({ from, to }: { readonly from: Version; readonly to: Version }) {
  const changes = configChanges(from.stub?.config ?? '', to.stub?.config ?? '').map(inWords);
  return (
    <section>
      {changes.length === 0 ? (
        <p>The configuration is the same.</p>
      ) : (
        <table class="difference">
          <thead>
            <tr>
              <th scope="col">Setting</th>
              <th scope="col">v{from.version}</th>
              <th scope="col">v{to.version}</th>
            </tr>
          </thead>
          <tbody>
            {changes.map((change) => (
              <ChangeRow key={change.field} of={change} />
            ))}
          </tbody>
        </table>
      )}
      {from.object_id === to.object_id ? (
        <p>The code is the same.</p>
      ) : (
        <p>
          The code differs. This lists its files:{' '}
          <Command line={`longshore deployment diff ${word(to.name)} v${from.version} v${to.version}`} />
        </p>
      )}
    </section>
  );
}

const ChangeRow = ({ of: { field, from, to } }: { readonly of: ConfigChange }) => (
  <tr>
    <th scope="row">{shownLine(field)}</th>
    <td>{from === undefined ? 'not set' : shownLine(from)}</td>
    <td>{to === undefined ? 'not set' : shownLine(to)}</td>
  </tr>
);

function Stop({ record, again }: Omit<Props, 'serving'>) {
  if (!may('POST /deployment/{ws}/stop/{deploymentId}')) return null;
  return (
    <Action
      label="Stop"
      question={`Stop ${titled(record)}?`}
      sure={`Stop v${record.version}`}
      call={{ method: 'POST', path: `/deployment/${record.workspace_id}/stop/${record.id}` }}
      line={`longshore deployment stop ${named(record)}`}
      said={() => <p>{titled(record)} is stopped. It can be started again.</p>}
      onDone={again}
    >
      <p>Its containers end, and calls of it are refused, until it is started again.</p>
    </Action>
  );
}

/** The button that starts a version. */
export function Start({ record, again }: Omit<Props, 'serving'>) {
  if (!may('POST /deployment/{ws}/start/{deploymentId}')) return null;
  return (
    <Action
      label="Start"
      question={`Start ${titled(record)}?`}
      sure={`Start v${record.version}`}
      call={{ method: 'POST', path: `/deployment/${record.workspace_id}/start/${record.id}` }}
      line={`longshore deployment start ${named(record)}`}
      said={() => <p>{titled(record)} takes calls again.</p>}
      onDone={again}
    >
      <p>Calls of it are taken again, and start containers as they need them.</p>
    </Action>
  );
}

/** An operation of the gateway counts for the token's own workspace. */
function Scale({ record, again }: Omit<Props, 'serving'>) {
  if (!may('POST /gateway/deployments/{id}/scale')) return null;
  if (signedIn.value?.facts.workspace.id !== record.workspace_id) return null;
  return <Ask label="Scale">{() => <ScaleQuestion record={record} again={again} />}</Ask>;
}

function ScaleQuestion({ record, again }: Omit<Props, 'serving'>) {
  const [typed, setTyped] = useState('');
  const { workspace_id: workspaceId } = record;
  const now = useResource(
    `scale ${record.id}`,
    (signal) => (may('GET /explain/{ws}/{id}') ? explain(workspaceId, record.id, signal) : Promise.resolve(undefined)),
    0,
  );
  const scaling = now.value?.scaling;
  const containers = /^\d{1,4}$/.test(typed) ? Number(typed) : undefined;
  return (
    <Question
      question={`Scale ${titled(record)}?`}
      sure={containers === undefined ? 'Scale' : containers === 0 ? 'Scale by calls' : `Keep ${containers}`}
      call={
        containers === undefined || containers > MOST_CONTAINERS
          ? undefined
          : { method: 'POST', path: `/gateway/deployments/${record.id}/scale`, body: { containers } }
      }
      line={`longshore deployment scale ${named(record)} ${containers ?? 'CONTAINERS'}`}
      said={() => (
        <p>
          {containers === 0
            ? 'It scales by its calls again.'
            : `It has ${containers} containers from now on, as soon as machines have room.`}
        </p>
      )}
      onDone={again}
    >
      {scaling === undefined || scaling === null ? null : (
        <p>
          Now: {counted(scaling.live, 'container')}; there may be {scaling.min_containers} to {scaling.max_containers}.
        </p>
      )}
      <p>
        <label>
          Containers to keep{' '}
          <input
            type="number"
            min="0"
            max={MOST_CONTAINERS}
            required
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </label>
      </p>
      <p>
        A number keeps that many running, whatever calls come. 0 turns that off: it scales by its calls again, within
        the bounds of the app.
      </p>
    </Question>
  );
}
