// Routes whose callers speak with a program in a container, as openapi.json describes them: web applications, ports of
// pods and sandboxes, and WebSockets. Any method and any path below are passed on; GET and POST stand for all.
import { bytes } from './plain-route.ts';
import type { PlainRoute, RefusalTexts } from './plain-route.ts';

const ANY = bytes('*/*');

const PASSED: RefusalTexts = {
  400: 'no such deployment, version or stub, or it is not active; or the target or its headers cannot be passed on',
  401: 'no token, a bad one, or one of another workspace',
  403: 'a page of another origin called with a cookie',
  404: 'the port is none of this stub, or there is no such container',
  405: 'a method that nothing passes on',
  429: 'too many calls are open, the workspace calls more often than it may, or too many bad tokens came from this address',
  501: 'an upgrade to another protocol than WebSocket',
  502: 'the program ended, or its answer cannot be passed on',
  503: 'no container of it can run, the database is away, or the scheduler is stopping',
  504: 'no container came in time, or no head of an answer',
};

const FORMS: readonly (readonly [path: string, summary: string, isOpen: boolean])[] = [
  ['/asgi/{name}/{path}', 'a web application, newest version', false],
  ['/asgi/{name}/{version}/{path}', 'a version of a web application', false],
  ['/asgi/id/{stubId}/{path}', 'the web application of a stub', false],
  ['/asgi/public/{stubId}/{path}', 'the public web application of a stub', true],
  ['/asgi/public/{workspace}/{name}/{path}', 'a public web application by its name', true],
  ['/pod/{name}/{port}/{path}', 'a port of a pod, newest version', false],
  ['/pod/{name}/{version}/{port}/{path}', 'a port of a version of a pod', false],
  ['/pod/id/{stubId}/{port}/{path}', 'a port of the pod of a stub', false],
  ['/pod/public/{stubId}/{port}/{path}', 'a port of the public pod of a stub', true],
  ['/pod/public/{workspace}/{name}/{port}/{path}', 'a port of a public pod by its name', true],
  ['/sandbox/container/{stubId}/{containerId}/{port}/{path}', 'a port of one container of a sandbox or pod', false],
];

const REACHED = [
  'bad_request',
  'unauthorized',
  'not_found',
  'container_not_found',
  'container_not_running',
  'rate_limited',
  'too_many_connections',
  'container_failed',
  'draining',
  'database_unavailable',
  'database_timeout',
  'machine_silent',
  'deadline_exceeded',
];

const SOCKETS: readonly (readonly [path: string, summary: string])[] = [
  ['/api/v1/gateway/containers/{containerId}/exec', 'Run a program: the first message says which (docs/pods.md)'],
  ['/api/v1/gateway/containers/{containerId}/attach', 'Output of a container as it comes, and its input'],
  ['/api/v1/gateway/containers/{containerId}/ports/{port}', 'Bytes of a TCP port of a container'],
  ['/shell/id/{stubId}/{containerId}', 'A shell in a container'],
];

export const STREAM_ROUTES: readonly PlainRoute[] = [
  ...FORMS.flatMap(([path, what, open]) =>
    (['GET', 'POST'] as const).map((method) => ({
      http: `${method} ${path}`,
      tag: 'invoke' as const,
      summary: `Pass a request to ${what}; any method and any path`,
      ...(open ? { open } : {}),
      ...(method === 'POST' ? { body: ANY } : {}),
      answer: ANY,
      refusals: PASSED,
    })),
  ),
  ...SOCKETS.map(([path, summary]) => ({
    http: `GET ${path}`,
    tag: 'pods' as const,
    summary: `WebSocket: ${summary}`,
    upgrades: true,
    errors: REACHED,
  })),
];
