// Volumes and their files: folders are opened, a name is sought, a small file is saved or brought. The volume and the
// folder are in the address.
import { useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { FileAddress, VolumeEntry, VolumeRecord } from '#shared/api/rest/volumes.ts';
import { ApiError, apiErrorOf, queryOf, rest } from '../api/client.ts';
import { apiUrl, may } from '../api/session.ts';
import { bytesOf } from '../parts/bytes.ts';
import { base } from '../parts/curl.ts';
import { shownText } from '../parts/hostile.ts';
import type { Page } from '../parts/list.tsx';
import { Rows, useList } from '../parts/list.tsx';
import { useResource } from '../live/resource.ts';
import { Command, Failure, Shown, Twin } from '../parts/notices.tsx';
import { agoOf } from '../parts/time.ts';
import { word } from '../parts/word.ts';
import type { ScreenProps } from './screen.ts';

/** Entries of a folder that are shown, and entries that a search looks at. */
const MOST_SHOWN = 500;
const MOST_SOUGHT = 10_000;
/** Larger files are left to the command line. */
const MOST_BYTES = 64 * 2 ** 20;
const ADDRESS = 'GET /volume/{ws}/{volumeName}/file-url';

interface Asked {
  readonly volume?: string;
  readonly path?: string;
  readonly find?: string;
}

export function Volumes({ workspace, home }: ScreenProps) {
  const { query } = useLocation();
  const { volume, path = '', find = '' } = query as Asked;
  if (volume !== undefined)
    return (
      <Files
        key={`${volume} ${path} ${find}`}
        volume={volume}
        path={path}
        find={find}
        home={home}
        workspaceId={workspace.id}
      />
    );
  return <List workspaceId={workspace.id} home={home} />;
}

function List({ workspaceId, home }: { readonly workspaceId: string; readonly home: string }) {
  const list = useList<VolumeRecord>(`/volume/${workspaceId}`);
  return (
    <>
      <h1>Volumes</h1>
      <Rows of={list} none="This workspace has no volume yet." first="longshore volume create NAME">
        {({ id, name, driver, machine_id: machine, created_at: createdAt }) => (
          <li key={id}>
            <a href={`${home}/volumes${queryOf({ volume: name })}`}>{shownText(name)}</a>{' '}
            <span class="faint">
              {driver}
              {machine === '' ? '' : ` · on ${machine.slice(0, 8)}`} · made {agoOf(createdAt)}
            </span>
          </li>
        )}
      </Rows>
      <Twin line="longshore volume list" />
    </>
  );
}

interface FilesProps {
  readonly workspaceId: string;
  readonly home: string;
  readonly volume: string;
  readonly path: string;
  /** Part of a name; empty: the folder's entries. */
  readonly find: string;
}

function Files({ workspaceId, home, volume, path, find }: FilesProps) {
  const { route } = useLocation();
  const [typed, setTyped] = useState(find);
  const files = `/volume/${workspaceId}/${encodeURIComponent(volume)}/files`;
  const list = useResource(
    `${files} ${path} ${find}`,
    async (signal) => {
      const query = find === '' ? { path, limit: MOST_SHOWN } : { path, recursive: true, limit: MOST_SOUGHT };
      const page = await rest<Page<VolumeEntry>>(`${files}${queryOf(query)}`, { signal });
      const wanted = find.toLowerCase();
      const data = page.data.filter((entry) => entry.path.toLowerCase().includes(wanted));
      return { data: data.slice(0, MOST_SHOWN), isCut: page.next !== '' || data.length > MOST_SHOWN };
    },
    0,
  );
  const at = (folder: string): string => `${home}/volumes${queryOf({ volume, path: folder })}`;
  const parts = path === '' ? [] : path.split('/');
  return (
    <>
      <h1>{shownText(volume)}</h1>
      <nav class="links" aria-label="Folders">
        <a href={`${home}/volumes`}>Volumes</a> <a href={at('')}>{shownText(volume)}</a>
        {parts.map((part, depth) => (
          <a key={depth} href={at(parts.slice(0, depth + 1).join('/'))}>
            / {shownText(part)}
          </a>
        ))}
      </nav>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          route(`${home}/volumes${queryOf({ volume, path, find: typed.trim() })}`);
        }}
      >
        <label>
          A file with <input type="search" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <button type="submit">Find</button>
      </form>
      {mayMove() ? <Upload {...{ workspaceId, volume, path }} again={list.again} /> : null}
      {may(ADDRESS) && !mayMove() ? <Twin line={bringLine(volume, path)} /> : null}
      <Shown of={list}>
        {({ data, isCut }) => (
          <>
            {data.length === 0 ? (
              <p class="notice">{find === '' ? 'This folder is empty.' : 'No name here, or below, has that part.'}</p>
            ) : (
              <ul class="rows">
                {data.map((entry) => (
                  <Entry key={entry.path} entry={entry} at={at} {...{ workspaceId, volume, path }} />
                ))}
              </ul>
            )}
            {isCut ? <p class="faint">There are more entries. The command lists all.</p> : null}
          </>
        )}
      </Shown>
      <Twin line={`longshore volume ls ${word(`${volume}:${path}`)}${find === '' ? '' : ' --recursive'}`} />
    </>
  );
}

type Place = Pick<FilesProps, 'workspaceId' | 'volume' | 'path'>;
const below = (path: string, name: string): string => (path === '' ? name : `${path}/${name}`);

function Entry({
  entry,
  at,
  workspaceId,
  volume,
  path,
}: Place & { readonly entry: VolumeEntry; readonly at: (folder: string) => string }) {
  const whole = below(path, entry.path);
  const name = shownText(entry.path);
  return (
    <li>
      {entry.kind === 'folder' && entry.addressable ? <a href={at(whole)}>{name}/</a> : <span>{name}</span>}{' '}
      <span class="faint">
        {entry.kind === 'file' ? bytesOf(entry.size) : entry.kind} · {agoOf(entry.modified_at)}
      </span>{' '}
      {entry.kind !== 'file' || !entry.addressable ? null : entry.size > MOST_BYTES || apiUrl() !== undefined ? (
        <Command line={`longshore volume cp ${word(`${volume}:${whole}`)} .`} />
      ) : mayMove() ? (
        <Save {...{ workspaceId, volume }} path={whole} />
      ) : null}
    </li>
  );
}

const bringLine = (volume: string, path: string): string => `longshore volume cp FILE ${word(`${volume}:${path}`)}`;

/** Whether files pass through this page. One at an address of the console's own reaches no file: a command does. */
const mayMove = (): boolean => may(ADDRESS) && apiUrl() === undefined;

/** The signed address of a file, at the address by which this browser reaches the scheduler. */
async function addressOf({ workspaceId, volume, path }: Place, method: 'GET' | 'PUT'): Promise<string> {
  const query = queryOf({ path, method });
  const { url } = await rest<FileAddress>(`/volume/${workspaceId}/${encodeURIComponent(volume)}/file-url${query}`);
  const { pathname, search } = new URL(url);
  return `${base()}${pathname}${search}`;
}

/** Sends to a signed address, without a credential. @throws ApiError */
async function sendTo(url: string, init: RequestInit): Promise<Response> {
  const answer = await fetch(url, { ...init, credentials: 'omit' }).catch(() => undefined);
  if (answer === undefined) throw new ApiError(0, { message: 'the file did not come: the connection broke' });
  if (answer.ok) return answer;
  throw new ApiError(answer.status, (await answer.json().catch(() => ({}))) as object);
}

/** Saves a file. Its bytes are kept as a file, and never opened by the page. */
function Save(place: Place) {
  const [state, setState] = useState<'' | 'Saving …'>('');
  const [failure, setFailure] = useState<ApiError>();
  const save = async (): Promise<void> => {
    setState('Saving …');
    setFailure(undefined);
    try {
      const answer = await sendTo(await addressOf(place, 'GET'), {});
      const url = URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: 'application/octet-stream' }));
      const link = document.createElement('a');
      link.href = url;
      link.download = place.path.split('/').at(-1) ?? 'file';
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    } catch (error) {
      setFailure(apiErrorOf(error));
    } finally {
      setState('');
    }
  };
  return (
    <>
      <button type="button" disabled={state !== ''} onClick={() => void save()} aria-label={`Save ${place.path}`}>
        {state === '' ? 'Save' : state}
      </button>
      {failure === undefined ? null : <Failure failure={failure} />}
    </>
  );
}

/** Brings a small file into the folder. */
function Upload({ again, ...place }: Place & { readonly again: () => void }) {
  const [text, setText] = useState('');
  const [failure, setFailure] = useState<ApiError>();
  const input = useRef<HTMLInputElement>(null);
  const bring = async (file: File): Promise<void> => {
    setFailure(undefined);
    if (file.size > MOST_BYTES)
      return setText(`${file.name} has more than ${bytesOf(MOST_BYTES)}: bring it by the command.`);
    setText(`Bringing ${file.name} …`);
    try {
      await sendTo(await addressOf({ ...place, path: below(place.path, file.name) }, 'PUT'), {
        method: 'PUT',
        body: file,
      });
      setText(`${file.name} is there.`);
      again();
    } catch (error) {
      setText('');
      setFailure(apiErrorOf(error));
    } finally {
      if (input.current !== null) input.current.value = '';
    }
  };
  return (
    <details>
      <summary>Bring a file</summary>
      <p>
        <label>
          A file of at most {bytesOf(MOST_BYTES)}{' '}
          <input
            ref={input}
            type="file"
            onChange={(event) => {
              const file = event.currentTarget.files?.[0];
              if (file !== undefined) void bring(file);
            }}
          />
        </label>
      </p>
      <p role="status">{shownText(text)}</p>
      {failure === undefined ? null : <Failure failure={failure} />}
      <Command line={bringLine(place.volume, place.path)} />
    </details>
  );
}
