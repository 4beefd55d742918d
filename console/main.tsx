// The console's first script: signs in, then shows the screen that the address names. A person without a session is led
// to the sign-in, and back to where the address led.
import { render } from 'preact';
import { LocationProvider, Route, Router, useLocation, useRoute } from 'preact-iso/router';
import { useEffect, useState } from 'preact/hooks';
import type { FunctionComponent } from 'preact';
import { apiErrorOf, root } from './api/client.ts';
import type { ApiError } from './api/client.ts';
import { look, may, segmentOf, signedIn, workspaceAt } from './api/session.ts';
import { later } from './parts/later.tsx';
import { Failure, Skeleton } from './parts/notices.tsx';
import { firstPath, fleetPlaces, homeOf, Shell } from './parts/shell.tsx';
import { shownText } from './parts/hostile.ts';
import { Deployment } from './screens/deployment.tsx';
import { Enter } from './screens/enter.tsx';
import { Logs } from './screens/logs.tsx';
import { Overview } from './screens/overview.tsx';
import { PLACES } from './screens/places.ts';
import type { ScreenProps } from './screens/screen.ts';
import { Task } from './screens/task.tsx';
import { Tasks } from './screens/tasks.tsx';

/** A screen of the workspace that the address names, in the frame. */
function inWorkspace<P extends string>(
  Screen: FunctionComponent<ScreenProps & Record<P, string>>,
  titleOf: (params: Record<P, string>) => string,
  isShown: (workspaceId: string) => boolean = () => true,
) {
  return function Framed() {
    const { params } = useRoute();
    const { workspace: segment = '', ...rest } = params;
    const workspace = workspaceAt(segment);
    const title = titleOf(rest as Record<P, string>);
    useEffect(() => {
      document.title = `${shownText(title)} · ${shownText(segment)} · Longshore`;
    }, [title, segment]);
    return (
      <Shell segment={segment}>
        {workspace === undefined ? (
          <>
            <h1>No such workspace</h1>
            <p class="notice bad" role="alert">
              This token sees no workspace {shownText(segment)}. Sign in with a token of that workspace:{' '}
              <code>longshore console --context NAME</code>.
            </p>
          </>
        ) : !isShown(workspace.id) ? (
          <>
            <h1>{shownText(title)}</h1>
            <p class="notice">
              This token may not see that: <code>longshore token list</code> shows what tokens may do.
            </p>
          </>
        ) : (
          <Screen {...(rest as Record<P, string>)} key={workspace.id} workspace={workspace} home={homeOf(segment)} />
        )}
      </Shell>
    );
  };
}

const OverviewPage = inWorkspace(
  Overview,
  () => 'Overview',
  () => may('GET /deployment-health/{ws}'),
);
const DeploymentPage = inWorkspace<'name'>(Deployment, ({ name }) => name);
const TasksPage = inWorkspace(
  Tasks,
  () => 'Tasks',
  () => may('GET /task-summary/{ws}'),
);
const TaskPage = inWorkspace<'id'>(Task, ({ id }) => `Task ${id.slice(0, 8)}`);
const LogsPage = inWorkspace(
  Logs,
  () => 'Logs',
  () => may('GET /logs/{ws}'),
);
const FURTHER = PLACES.map(({ title, path, Screen, isShown }) => ({
  path,
  Page: inWorkspace<never>(Screen, () => title, isShown),
}));

const Fleet = later(async () => (await import('./screens/fleet/fleet.tsx')).Fleet);

/** A screen of the whole installation, in the frame. */
function FleetPage() {
  const { screen = '', id = '' } = useRoute().params;
  const place = fleetPlaces().find(({ path }) => path === screen);
  const own = signedIn.value?.facts.workspace;
  useEffect(() => {
    document.title = `${place?.title ?? 'Fleet'} · Longshore`;
  }, [place]);
  return (
    <Shell segment={own === undefined ? '' : segmentOf(own)}>
      {place === undefined ? (
        <>
          <h1>Not for this token</h1>
          <p class="notice bad" role="alert">
            The screens of the fleet are for administrators. Sign in with such a token:{' '}
            <code>longshore console --context NAME</code>.
          </p>
        </>
      ) : (
        <Fleet screen={screen} id={id} />
      )}
    </Shell>
  );
}

/** Leads from the first address to the own workspace's first screen that the token may see, or to the sign-in. */
function Start() {
  const { route } = useLocation();
  const now = signedIn.value;
  useEffect(() => {
    if (now !== undefined && now !== null) route(`${homeOf(segmentOf(now.facts.workspace))}${firstPath()}`, true);
  }, [now]);
  return null;
}

function NoPage() {
  return (
    <main id="main">
      <h1>There is no such page</h1>
      <p>
        The address is misspelt, or of another version of the console. <a href={`${root}/`}>To the first page</a>
      </p>
    </main>
  );
}

function Screens() {
  const { path, url, route } = useLocation();
  const now = signedIn.value;
  const isEntering = path === `${root}/enter`;
  useEffect(() => {
    if (now === null && !isEntering) route(`${root}/enter?to=${encodeURIComponent(url)}`, true);
  }, [now, isEntering]);
  if (isEntering) return <Enter />;
  if (now === null || now === undefined) return <Skeleton />;
  return (
    <Router>
      <Route path={`${root}/`} component={Start} />
      <Route path={`${root}/w/:workspace`} component={OverviewPage} />
      <Route path={`${root}/w/:workspace/d/:name`} component={DeploymentPage} />
      <Route path={`${root}/w/:workspace/tasks`} component={TasksPage} />
      <Route path={`${root}/w/:workspace/tasks/:id`} component={TaskPage} />
      <Route path={`${root}/w/:workspace/logs`} component={LogsPage} />
      {FURTHER.map(({ path, Page }) => (
        <Route key={path} path={`${root}/w/:workspace${path}`} component={Page} />
      ))}
      <Route path={`${root}/fleet/:screen/:id?`} component={FleetPage} />
      <Route default component={NoPage} />
    </Router>
  );
}

function App() {
  const [failure, setFailure] = useState<ApiError>();
  const begin = (): void => {
    setFailure(undefined);
    look().catch((error: unknown) => setFailure(apiErrorOf(error)));
  };
  useEffect(begin, []);
  if (failure !== undefined)
    return (
      <main id="main">
        <Failure failure={failure} again={begin} />
      </main>
    );
  return (
    <LocationProvider scope={root}>
      <Screens />
    </LocationProvider>
  );
}

const place = document.querySelector('#app');
if (place !== null) render(<App />, place);
