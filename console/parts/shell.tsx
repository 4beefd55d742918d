// The frame of every screen: the workspace, the navigation, light or dark, and the way out. On a narrow screen the
// navigation is a bar at the bottom.
import type { ComponentChildren } from 'preact';
import { useLocation } from 'preact-iso/router';
import { useEffect, useState } from 'preact/hooks';
import { root } from '../api/client.ts';
import { may, segmentOf, signOut, signedIn, workspaceAt, workspaces } from '../api/session.ts';
import { Asked } from './action.tsx';
import { PLACES } from '../screens/places.ts';
import type { Place } from '../screens/places.ts';
import { shownText } from './hostile.ts';
import { Search } from './search.tsx';
import { nextTheme, theme } from './theme.ts';

/** Screens that a narrow window shows at once; the others are behind a button there. */
const FIRST: readonly Omit<Place, 'Screen'>[] = [
  { title: 'Overview', path: '', isShown: () => may('GET /deployment-health/{ws}') },
  { title: 'Tasks', path: '/tasks', isShown: () => may('GET /task-summary/{ws}') },
  { title: 'Logs', path: '/logs', isShown: () => may('GET /logs/{ws}') },
];

/** The first screen that the token may see. */
export const firstPath = (): string =>
  [...FIRST, ...PLACES].find(({ isShown }) => isShown(signedIn.value?.facts.workspace.id ?? ''))?.path ?? '';

interface FleetPlace {
  readonly title: string;
  readonly path: string;
  readonly right: string;
}
/** Screens of the whole installation, for administrators. */
const FLEET: readonly FleetPlace[] = [
  { title: 'GPU map', path: 'gpus', right: 'GET /gpu' },
  { title: 'Machines', path: 'machines', right: 'GET /gateway/machines' },
  { title: 'Waiting', path: 'waiting', right: 'GET /waiting' },
  { title: 'Pools', path: 'pools', right: 'GET /gateway/pools' },
  { title: 'Workspaces', path: 'workspaces', right: 'GET /workspace' },
  { title: 'Alerts', path: 'alerts', right: 'GET /alerts' },
  { title: 'Audit', path: 'audit', right: 'GET /events/{ws}/history' },
];
export const fleetPlaces = (): readonly FleetPlace[] =>
  signedIn.value?.facts.is_admin === true ? FLEET.filter(({ right }) => may(right)) : [];

/** The address of a workspace's screens. */
export const homeOf = (segment: string): string => `${root}/w/${encodeURIComponent(segment)}`;

export function Shell({ segment, children }: { readonly segment: string; readonly children: ComponentChildren }) {
  const { path, route } = useLocation();
  const own = signedIn.value?.facts.workspace;
  const shown = workspaceAt(segment);
  const home = homeOf(segment);
  const isForeign = shown !== undefined && own !== undefined && shown.id !== own.id;
  const choose = (event: Event): void => route(homeOf((event.currentTarget as HTMLSelectElement).value));
  return (
    <>
      <a class="skip" href="#main">
        To the content
      </a>
      {signedIn.value?.session.is_clear === true ? (
        <p class="banner bad" role="status">
          This connection is not encrypted: others on the way can read what you see. docs/https.md says how to change
          that.
        </p>
      ) : null}
      {isForeign ? (
        <p class="banner wait" role="status">
          You look at {shownText(shown.name === '' ? shown.id : shown.name)} as an administrator.
        </p>
      ) : null}
      <header class="top">
        <a class="brand" href={home}>
          Longshore
        </a>
        {workspaces.value.length > 1 ? (
          <label class="workspace">
            <span class="hidden">Workspace</span>
            <select value={segment} onChange={choose}>
              {workspaces.value.map((one) => (
                <option key={one.id} value={segmentOf(one)}>
                  {shownText(one.name === '' ? one.id : one.name)}
                </option>
              ))}
            </select>
          </label>
        ) : (
          <span class="workspace">{shownText(shown?.name ?? segment)}</span>
        )}
        <Navigation home={home} workspaceId={shown?.id ?? ''} />
        {fleetPlaces().length === 0 ? null : (
          <nav class="fleet" aria-label="Fleet">
            {fleetPlaces().map((place) => {
              const href = `${root}/fleet/${place.path}`;
              const isHere = path === href || path.startsWith(`${href}/`);
              return (
                <a key={place.path} href={href} {...(isHere ? { 'aria-current': 'page' as const } : {})}>
                  {place.title}
                </a>
              );
            })}
          </nav>
        )}
        <span class="tools">
          {shown === undefined ? null : <Search workspaceId={shown.id} home={home} />}
          <button
            type="button"
            onClick={nextTheme}
            aria-label={`Colours: ${theme.value}`}
            title={`Colours: ${theme.value}`}
          >
            {theme.value === 'light' ? '☀' : theme.value === 'dark' ? '☾' : '◑'}
          </button>
          <button type="button" onClick={() => void signOut()}>
            Sign out
          </button>
        </span>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Asked />
    </>
  );
}

function Navigation({ home, workspaceId }: { readonly home: string; readonly workspaceId: string }) {
  const { path } = useLocation();
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path]);
  const link = (place: Omit<Place, 'Screen'>, isFurther: boolean) => {
    if (!place.isShown(workspaceId)) return null;
    const href = `${home}${place.path}`;
    const isHere = place.path === '' ? path === href || path.startsWith(`${home}/d/`) : path.startsWith(href);
    return (
      <a
        key={place.path}
        href={href}
        {...(isFurther ? { class: 'further' } : {})}
        {...(isHere ? { 'aria-current': 'page' as const } : {})}
      >
        {place.title}
      </a>
    );
  };
  return (
    <nav aria-label="Screens" class={isOpen ? 'open' : ''}>
      {FIRST.map((place) => link(place, false))}
      {PLACES.map((place) => link(place, true))}
      <button type="button" class="more" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        More
      </button>
    </nav>
  );
}
