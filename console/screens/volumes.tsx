// Volumes and their files: folders are opened, a name is sought; a small file is read, downloaded, uploaded or deleted.
// The volume and the folder are in the address.
import { useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { FileAddress, VolumeEntry, VolumeRecord } from '#shared/api/rest/volumes.ts';
import { ApiError, apiErrorOf, queryOf, rest } from '../api/client.ts';
import { apiUrl, may } from '../api/session.ts';
import { Action, Question, ask } from '../parts/action.tsx';
import { bytesOf } from '../parts/bytes.ts';
import { base } from '../parts/curl.ts';
import { shownText } from '../parts/hostile.ts';
import type { Page } from '../parts/list.tsx';
import { Rows, useList } from '../parts/list.tsx';
import { useResource } from '../live/resource.ts';
import { Command, Failure, Shown, Twin } from '../parts/notices.tsx';
import { Value, plainText } from '../parts/text.tsx';
import { agoOf } from '../parts/time.ts';
import { word } from '../parts/word.ts';
import type { ScreenProps } from './screen.ts';

/** Entries of a folder that are shown, and entries that a search looks at. */
const MOST_SHOWN = 500;
const MOST_SOUGHT = 10_000;
/** Larger files are left to the command line. */
const MOST_BYTES = 64 * 2 ** 20;
/** Larger texts are downloaded, and not read in the page. */
const MOST_TEXT = 256 * 2 ** 10;
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
      <nav class="crumbs" aria-label="Folders">
        <a href={`${home}/volumes`}>Volumes</a>
        {[volume, ...parts].map((part, depth) => (
          <span key={depth}>
            {' / '}
            {depth === parts.length && find === '' ? (
              <span aria-current="page">{shownText(part)}</span>
            ) : (
              <a href={at(parts.slice(0, depth).join('/'))}>{shownText(part)}</a>
            )}
          </span>
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
          Name contains <input type="search" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <button type="submit">Find</button>
      </form>
      {mayMove() ? <Upload {...{ workspaceId, volume, path }} again={list.again} /> : null}
      {may(ADDRESS) && !mayMove() ? <Twin line={uploadLine(volume, path)} /> : null}
      <Shown of={list}>
        {({ data, isCut }) => (
          <>
            {data.length === 0 ? (
              <p class="notice">{find === '' ? 'This folder is empty.' : 'No name here, or below, has that part.'}</p>
            ) : (
              <ul class="rows">
                {data.map((entry) => (
                  <Entry
                    key={`${entry.path} ${entry.modified_at}`}
                    entry={entry}
                    at={at}
                    again={list.again}
                    {...{ workspaceId, volume, path }}
                  />
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
  again,
  workspaceId,
  volume,
  path,
}: Place & {
  readonly entry: VolumeEntry;
  readonly at: (folder: string) => string;
  readonly again: () => void;
}) {
  const whole = below(path, entry.path);
  const name = shownText(entry.path);
  const isFile = entry.kind === 'file' && entry.addressable;
  const isMoved = isFile && entry.size <= MOST_BYTES && mayMove();
  const isByCommand = isFile && (entry.size > MOST_BYTES || apiUrl() !== undefined);
  return (
    <li>
      {entry.kind === 'folder' && entry.addressable ? <a href={at(whole)}>{name}/</a> : <span>{name}</span>}{' '}
      <span class="faint">
        {entry.kind === 'file' ? bytesOf(entry.size) : entry.kind} · {agoOf(entry.modified_at)}
      </span>{' '}
      {isByCommand ? <Command line={`longshore volume cp ${word(`${volume}:${whole}`)} .`} /> : null}
      {!isMoved ? null : <Download {...{ workspaceId, volume }} path={whole} size={entry.size} />}{' '}
      {isFile && may('DELETE /volume/{ws}/{volumeName}/files') ? (
        <Action
          label="Delete"
          question={`Delete ${name}?`}
          sure="Delete it"
          call={{ method: 'DELETE', path: `${filesOf({ workspaceId, volume })}${queryOf({ path: whole })}` }}
          line={`longshore volume rm ${word(`${volume}:${whole}`)}`}
          said={() => <p>{name} is deleted.</p>}
          onDone={again}
        >
          <p>It is gone for every container that mounts the volume. It cannot be brought back.</p>
        </Action>
      ) : null}
    </li>
  );
}

const filesOf = ({ workspaceId, volume }: Pick<Place, 'workspaceId' | 'volume'>): string =>
  `/volume/${workspaceId}/${encodeURIComponent(volume)}/files`;
const uploadLine = (volume: string, path: string): string => `longshore volume cp FILE ${word(`${volume}:${path}`)}`;

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

type Moving = '' | 'Downloading …' | 'Reading …';

/** Downloads a file, whose bytes the page never opens; a small text is also shown here, as text alone. */
function Download({ size, ...place }: Place & { readonly size: number }) {
  const [state, setState] = useState<Moving>('');
  const [text, setText] = useState<string>();
  const [failure, setFailure] = useState<ApiError>();
  const move = async (now: Moving, use: (bytes: ArrayBuffer) => void): Promise<void> => {
    setState(now);
    setFailure(undefined);
    try {
      const answer = await sendTo(await addressOf(place, 'GET'), {});
      use(await answer.arrayBuffer());
    } catch (error) {
      setFailure(apiErrorOf(error));
    } finally {
      setState('');
    }
  };
  const keep = (bytes: ArrayBuffer): void => {
    const url = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }));
    const link = document.createElement('a');
    link.href = url;
    link.download = place.path.split('/').at(-1) ?? 'file';
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  const show = (bytes: ArrayBuffer): void => setText(plainText(bytes) ?? 'This file is no text: download it.');
  return (
    <>
      {size > MOST_TEXT ? null : (
        <button
          type="button"
          disabled={state !== ''}
          aria-expanded={text !== undefined}
          aria-label={`${text === undefined ? 'View' : 'Hide'} ${place.path}`}
          onClick={() => (text === undefined ? void move('Reading …', show) : setText(undefined))}
        >
          {state === 'Reading …' ? state : text === undefined ? 'View' : 'Hide'}
        </button>
      )}{' '}
      <button
        type="button"
        disabled={state !== ''}
        onClick={() => void move('Downloading …', keep)}
        aria-label={`Download ${place.path}`}
      >
        {state === 'Downloading …' ? state : 'Download'}
      </button>
      {text === undefined ? null : <Value label={`Text of ${place.path}`} text={text === '' ? 'It is empty.' : text} />}
      {failure === undefined ? null : <Failure failure={failure} />}
    </>
  );
}

/** The entry that is at a path; undefined: none. @throws ApiError */
async function entryAt(place: Place): Promise<Pick<VolumeEntry, 'kind' | 'size' | 'modified_at'> | undefined> {
  try {
    const found = await rest<Pick<VolumeEntry, 'kind'> & Page<VolumeEntry>>(
      `${filesOf(place)}${queryOf({ path: place.path, limit: 1 })}`,
    );
    return found.kind === 'folder' ? { kind: 'folder', size: 0, modified_at: '' } : found.data[0];
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

/** Uploads a small file into the folder. A file of its name that is there is replaced only after a question. */
function Upload({ again, ...place }: Place & { readonly again: () => void }) {
  const [text, setText] = useState('');
  const [failure, setFailure] = useState<ApiError>();
  const input = useRef<HTMLInputElement>(null);
  const upload = async (file: File): Promise<void> => {
    setFailure(undefined);
    if (file.size > MOST_BYTES)
      return setText(`${file.name} has more than ${bytesOf(MOST_BYTES)}: upload it by the command.`);
    const to = { ...place, path: below(place.path, file.name) };
    const put = async (): Promise<Response> => sendTo(await addressOf(to, 'PUT'), { method: 'PUT', body: file });
    try {
      setText(`Looking for ${file.name} …`);
      const there = await entryAt(to);
      if (there === undefined) {
        setText(`Uploading ${file.name} …`);
        await put();
        setText(`${file.name} is there.`);
        return again();
      }
      setText(there.kind === 'folder' ? `A folder has the name ${file.name}: nothing was uploaded.` : '');
      if (there.kind !== 'folder') ask(<Replace {...{ to, file, there, put, again }} />);
    } catch (error) {
      setText('');
      setFailure(apiErrorOf(error));
    } finally {
      if (input.current !== null) input.current.value = '';
    }
  };
  return (
    <details>
      <summary>Upload a file</summary>
      <p>
        <label>
          A file of at most {bytesOf(MOST_BYTES)}{' '}
          <input
            ref={input}
            type="file"
            onChange={(event) => {
              const file = event.currentTarget.files?.[0];
              if (file !== undefined) void upload(file);
            }}
          />
        </label>
      </p>
      <p role="status">{shownText(text)}</p>
      {failure === undefined ? null : <Failure failure={failure} />}
      <Command line={uploadLine(place.volume, place.path)} />
    </details>
  );
}

function Replace({
  to,
  file,
  there,
  put,
  again,
}: {
  readonly to: Place;
  readonly file: File;
  readonly there: Pick<VolumeEntry, 'size' | 'modified_at'>;
  readonly put: () => Promise<Response>;
  readonly again: () => void;
}) {
  const name = shownText(file.name);
  const query = queryOf({ path: to.path, method: 'PUT' });
  return (
    <Question
      question={`Replace ${name}?`}
      sure="Replace it"
      call={{ method: 'GET', path: `/volume/${to.workspaceId}/${encodeURIComponent(to.volume)}/file-url${query}` }}
      act={async (tell) => {
        tell(`Uploading ${name} …`);
        await put();
      }}
      line={`longshore volume cp ${word(file.name)} ${word(`${to.volume}:${to.path}`)}`}
      remark="The request gives an address: PUT the file there."
      said={() => <p>{name} is replaced.</p>}
      onDone={again}
    >
      <p>
        The one that is there has {bytesOf(there.size)} and was changed {agoOf(there.modified_at)}. The new one has{' '}
        {bytesOf(file.size)}. What is replaced cannot be brought back.
      </p>
    </Question>
  );
}
