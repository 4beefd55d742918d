// Search by a name or an id, and keys that lead somewhere. Single keys can be switched off: programs that speak for a
// person send them by accident (WCAG 2.1.4). No key works while somebody types.
import { signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso/router';
import type { FoundThing, SearchAnswer } from '#shared/api/rest/search.ts';
import { queryOf, rest } from '../api/client.ts';
import { may } from '../api/session.ts';
import { shownText } from './hostile.ts';
import { State } from './state.tsx';

const KEYS_OFF = 'longshore-keys-off';
const WAIT_MS = 150;
/** Time between the two keys of a pair. */
const PAIR_MS = 1_500;

/** Whether single keys do something. */
export const keysOn = signal(localStorage.getItem(KEYS_OFF) === null);
function switchKeys(): void {
  keysOn.value = !keysOn.value;
  if (keysOn.value) localStorage.removeItem(KEYS_OFF);
  else localStorage.setItem(KEYS_OFF, '1');
}

const open = signal<'' | 'search' | 'help'>('');

const HELP: readonly (readonly [string, string])[] = [
  ['⌘K, Ctrl K or /', 'search by a name or an id'],
  ['g d', 'to the overview of deployments'],
  ['g t', 'to the tasks'],
  ['g l', 'to the logs'],
  ['j, k', 'to the next row, to the one before'],
  ['Enter', 'opens the row'],
  ['?', 'these keys'],
];
const PLACES: Readonly<Record<string, string>> = { d: '', t: '/tasks', l: '/logs' };

/** Whether somebody types there. */
const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

/** Leads to the row after the one that has the focus, or before it. */
function move(by: 1 | -1): void {
  const links = [...document.querySelectorAll<HTMLAnchorElement>('main .rows > li')].flatMap(
    (row) => row.querySelector('a') ?? [],
  );
  const at = links.findIndex((link) => link.closest('li') === document.activeElement?.closest('li'));
  links[at < 0 ? (by === 1 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
}

/** The button of the search, its dialog, and the keys of all screens of a workspace. */
export function Search({ workspaceId, home }: { readonly workspaceId: string; readonly home: string }) {
  const { route } = useLocation();
  const isSearched = may('GET /search/{ws}');
  useEffect(() => {
    let pairUntilMs = 0;
    const onKey = (event: KeyboardEvent): void => {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === 'k' && isSearched) {
        event.preventDefault();
        open.value = 'search';
        return;
      }
      if (!keysOn.value || event.metaKey || event.ctrlKey || event.altKey || open.value !== '') return;
      if (isTyping(event.target)) return;
      const place = Date.now() < pairUntilMs ? PLACES[event.key] : undefined;
      pairUntilMs = event.key === 'g' ? Date.now() + PAIR_MS : 0;
      if (place !== undefined) route(`${home}${place}`);
      else if (event.key === '/' && isSearched) open.value = 'search';
      else if (event.key === '?') open.value = 'help';
      else if (event.key === 'j') move(1);
      else if (event.key === 'k') move(-1);
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [home, isSearched]);
  return (
    <>
      {isSearched ? (
        <button type="button" aria-label="Search" title="Search: ⌘K or /" onClick={() => (open.value = 'search')}>
          ⌕
        </button>
      ) : null}
      <button type="button" aria-label="Keys" title="Keys: ?" onClick={() => (open.value = 'help')}>
        ?
      </button>
      {open.value === 'search' ? <SearchDialog workspaceId={workspaceId} home={home} /> : null}
      {open.value === 'help' ? <HelpDialog /> : null}
    </>
  );
}

/**
 * Opens as a modal dialog: the browser keeps the focus in it, and gives it back. It opens before the next key comes,
 * which is typed into it.
 */
function useDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    dialog.current?.showModal();
    return () => dialog.current?.close();
  }, []);
  return dialog;
}
const close = (): void => {
  open.value = '';
};
/** A browser tells late that a dialog closed: another one may be open by then. */
const onClose = (event: Event): void => {
  if ((event.currentTarget as HTMLDialogElement).isConnected) close();
};

function SearchDialog({ workspaceId, home }: { readonly workspaceId: string; readonly home: string }) {
  const dialog = useDialog();
  const { route } = useLocation();
  const [text, setText] = useState('');
  const [found, setFound] = useState<readonly FoundThing[]>();
  const [failure, setFailure] = useState('');
  const wanted = text.trim();
  useEffect(() => {
    setFailure('');
    if (wanted === '') {
      setFound(undefined);
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      rest<SearchAnswer>(`/search/${workspaceId}${queryOf({ q: wanted })}`, { signal: abort.signal }).then(
        ({ data }) => setFound(data),
        (error: unknown) => {
          if (!abort.signal.aborted) setFailure(error instanceof Error ? error.message : String(error));
        },
      );
    }, WAIT_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [wanted, workspaceId]);
  const hrefOf = ({ kind, id, name }: FoundThing): string | undefined => {
    if (kind === 'deployment') return `${home}/d/${encodeURIComponent(name)}`;
    return kind === 'task' ? `${home}/tasks/${id}` : undefined;
  };
  const go = (event: Event): void => {
    event.preventDefault();
    const href = found?.map(hrefOf).find((one) => one !== undefined);
    if (href === undefined) return;
    close();
    route(href);
  };
  return (
    <dialog ref={dialog} class="search" aria-label="Search" onClose={onClose}>
      <form onSubmit={go}>
        <label>
          A name or an id{' '}
          <input type="search" autofocus value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>{' '}
        <button type="button" onClick={close}>
          Close
        </button>
      </form>
      <div aria-live="polite">
        {failure === '' ? null : <p class="notice bad">{shownText(failure)}</p>}
        {found === undefined ? null : found.length === 0 ? (
          <p>Nothing is named so. An id is found from its first six characters on.</p>
        ) : (
          <ul class="rows">
            {found.map((one) => {
              const href = hrefOf(one);
              const title = one.name === '' ? one.id : one.name;
              return (
                <li key={one.id}>
                  {one.kind}{' '}
                  {href === undefined ? (
                    <strong>{shownText(title)}</strong>
                  ) : (
                    <a href={href} onClick={close}>
                      {shownText(title)}
                    </a>
                  )}{' '}
                  {one.kind === 'task' || one.kind === 'container' ? <State state={one.detail} /> : one.detail}{' '}
                  {one.kind === 'app' ? null : <code>{one.id.slice(0, 13)}</code>}
                </li>
              );
            })}
          </ul>
        )}
      </div>
    </dialog>
  );
}

function HelpDialog() {
  const dialog = useDialog();
  return (
    <dialog ref={dialog} aria-label="Keys" onClose={onClose}>
      <h2>Keys</h2>
      <table>
        <tbody>
          {HELP.map(([keys, does]) => (
            <tr key={keys}>
              <th scope="row">
                <kbd>{keys}</kbd>
              </th>
              <td>{does}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p>
        <button type="button" aria-pressed={keysOn.value} onClick={switchKeys}>
          Single keys: {keysOn.value ? 'on' : 'off'}
        </button>{' '}
        <button type="button" onClick={close}>
          Close
        </button>
      </p>
    </dialog>
  );
}
