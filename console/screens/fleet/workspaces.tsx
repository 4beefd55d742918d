// Workspaces of the installation, and a new one with its limits: its token is shown once, and kept nowhere here.
import { useState } from 'preact/hooks';
import type { CreatedWorkspace, WorkspaceList } from '#shared/api/rest/workspaces.ts';
import type { Static } from 'typebox';
import { apiErrorOf, rest } from '../../api/client.ts';
import type { ApiError } from '../../api/client.ts';
import { allWorkspaces, may, segmentOf } from '../../api/session.ts';
import { useResource } from '../../live/resource.ts';
import { shownText } from '../../parts/hostile.ts';
import { Command, Failure, Shown, Twin } from '../../parts/notices.tsx';
import { homeOf } from '../../parts/shell.tsx';
import { agoOf } from '../../parts/time.ts';
import { word } from '../../parts/word.ts';

const EVERY_MS = 10_000;

type List = Static<typeof WorkspaceList>;

export function Workspaces() {
  const list = useResource('workspaces', allWorkspaces, EVERY_MS);
  return (
    <>
      <h1>Workspaces</h1>
      {may('POST /workspace') ? <Create again={list.again} /> : null}
      <Shown of={list}>
        {({ data }) => (
          <ul class="rows">
            {data.map((workspace) => (
              <Row key={workspace.id} workspace={workspace} />
            ))}
          </ul>
        )}
      </Shown>
      <Twin line="longshore workspace list" />
    </>
  );
}

function Row({ workspace }: { readonly workspace: List['data'][number] }) {
  const { id, name, concurrency_limit: limit, share, deleting_at } = workspace;
  const shown = name === '' ? id : name;
  const bounds = [
    typeof limit?.gpu_limit !== 'number' ? '' : `${limit.gpu_limit} GPUs at most`,
    typeof limit?.cpu_millicore_limit !== 'number' ? '' : `${limit.cpu_millicore_limit / 1000} CPU at most`,
    typeof share?.weight !== 'number' ? '' : `weight ${share.weight}`,
  ].filter((text) => text !== '');
  return (
    <li>
      <p>
        <strong>
          <a href={homeOf(segmentOf(workspace))}>{shownText(shown)}</a>
        </strong>{' '}
        <span class="faint">
          made {agoOf(workspace.created_at)}
          {bounds.length === 0 ? '' : ` · ${bounds.join(' · ')}`}
          {deleting_at === undefined ? '' : ' · is being deleted'}
        </span>
      </p>
      <p class="faint">
        <code>{id}</code>
      </p>
    </li>
  );
}

interface Made {
  readonly workspace: Static<typeof CreatedWorkspace>;
  /** The limits were refused, though the workspace is there. */
  readonly refused: ApiError | undefined;
}

function Create({ again }: { readonly again: () => void }) {
  const [name, setName] = useState('');
  const [gpus, setGpus] = useState('');
  const [cores, setCores] = useState('');
  const [made, setMade] = useState<Made>();
  const [failure, setFailure] = useState<ApiError>();
  const [isRunning, setRunning] = useState(false);
  const create = async (): Promise<void> => {
    setRunning(true);
    setFailure(undefined);
    setMade(undefined);
    try {
      const body = { name: name.trim() };
      const workspace = await rest<Static<typeof CreatedWorkspace>>('/workspace', { method: 'POST', body });
      setMade({ workspace, refused: await bound(workspace.id) });
      setName('');
      again();
    } catch (error) {
      setFailure(apiErrorOf(error));
    } finally {
      setRunning(false);
    }
  };
  const bound = async (id: string): Promise<ApiError | undefined> => {
    const concurrency = {
      ...(gpus === '' ? {} : { gpu_limit: Number(gpus) }),
      ...(cores === '' ? {} : { cpu_millicore_limit: Math.round(Number(cores) * 1000) }),
    };
    if (Object.keys(concurrency).length === 0) return undefined;
    return await rest(`/workspace/${id}/limits`, { method: 'PUT', body: { concurrency } }).then(
      () => undefined,
      apiErrorOf,
    );
  };
  return (
    <section>
      <h2>Make a workspace</h2>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          if (!isRunning) void create();
        }}
      >
        <label>
          Name <input value={name} maxLength={100} required onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label>
          GPUs at most{' '}
          <input type="number" min="0" value={gpus} onInput={(event) => setGpus(event.currentTarget.value)} />
        </label>
        <label>
          CPU cores at most{' '}
          <input type="number" min="0" value={cores} onInput={(event) => setCores(event.currentTarget.value)} />
        </label>
        <button type="submit" disabled={isRunning}>
          Make it
        </button>
      </form>
      {failure === undefined ? null : <Failure failure={failure} />}
      {made === undefined ? null : (
        <div class="notice" role="status">
          <p>
            <strong>{shownText(made.workspace.name)}</strong> is made. Its token is shown only here: copy it now.
          </p>
          <Command line={made.workspace.token} />
          {made.refused === undefined ? null : (
            <>
              <p>The limits were not set:</p>
              <Failure failure={made.refused} />
            </>
          )}
        </div>
      )}
      <Twin line={`longshore workspace create ${name === '' ? 'NAME' : word(name)}`} />
    </section>
  );
}
