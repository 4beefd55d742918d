// Screens of a workspace beside the first ones: each is loaded when it is shown, and drawn where the token may read it.
import type { FunctionComponent } from 'preact';
import { may, mayCallModels } from '../api/session.ts';
import { later } from '../parts/later.tsx';
import type { ScreenProps } from './screen.ts';

export interface Place {
  readonly title: string;
  /** Behind the address of the workspace. */
  readonly path: string;
  readonly isShown: (workspaceId: string) => boolean;
  readonly Screen: FunctionComponent<ScreenProps>;
}

const SETTINGS = ['GET /token/{ws}', 'GET /webhook/{ws}', 'GET /workspace/{ws}/limits', 'GET /console/sessions/{ws}'];

export const PLACES: readonly Place[] = [
  {
    title: 'Containers',
    path: '/containers',
    isShown: () => may('GET /container/{ws}'),
    Screen: later(async () => (await import('./containers.tsx')).Containers),
  },
  {
    title: 'Playground',
    path: '/playground',
    isShown: mayCallModels,
    Screen: later(async () => (await import('./playground.tsx')).Playground),
  },
  {
    title: 'Volumes',
    path: '/volumes',
    isShown: () => may('GET /volume/{ws}'),
    Screen: later(async () => (await import('./volumes.tsx')).Volumes),
  },
  {
    title: 'Secrets',
    path: '/secrets',
    isShown: () => may('GET /secret/{ws}'),
    Screen: later(async () => (await import('./secrets.tsx')).Secrets),
  },
  {
    title: 'Images',
    path: '/images',
    isShown: () => may('GET /image/{ws}'),
    Screen: later(async () => (await import('./images.tsx')).Images),
  },
  {
    title: 'Usage',
    path: '/usage',
    isShown: () => may('GET /usage/{ws}'),
    Screen: later(async () => (await import('./usage.tsx')).Usage),
  },
  {
    title: 'Events',
    path: '/events',
    isShown: () => may('GET /events/{ws}/history'),
    Screen: later(async () => (await import('./events.tsx')).Events),
  },
  {
    title: 'Settings',
    path: '/settings',
    isShown: () => SETTINGS.some((right) => may(right)),
    Screen: later(async () => (await import('./settings.tsx')).Settings),
  },
];
