// The answer to a browser that asks for the script of a service worker on the scheduler's origin: a worker that
// unregisters itself. A worker outlives its page, its application and its cure, and a 404 leaves it where it is. So the
// question is answered at any path, with any method, with and without a token.
// Invariant: the scheduler's own pages have no service worker. Hosts of applications are left alone. Decision 0300.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { HOST_BASE } from './invoke/host-form.ts';
import { closeUnread } from './polite-close.ts';

/** Takes the place of an installed worker at once, leaves, and has the pages of the old worker loaded anew. */
const SCRIPT = `self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(leave()));

async function leave() {
  for (const name of await caches.keys().catch(() => [])) await caches.delete(name).catch(() => false);
  await self.registration.unregister();
  const pages = await self.clients.matchAll({ type: 'window' });
  await Promise.all(pages.map((page) => page.navigate(page.url).catch(() => null)));
}
`;

const HEADERS = {
  'content-type': 'text/javascript; charset=utf-8',
  // Without it, a browser refuses the update of a worker whose scope is wider than its script's folder.
  'service-worker-allowed': '/',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
};

/**
 * Whether a browser asks for a service worker's script, or for a module that such a script of this origin imports. A
 * worker on the host of an application may import modules from here: these are not answered.
 */
function asksForWorker({ headers }: FastifyRequest): boolean {
  if (headers['service-worker'] !== undefined) return true;
  return headers['sec-fetch-dest'] === 'serviceworker' && headers['sec-fetch-site'] === 'same-origin';
}

/** Answers with the worker, where a browser asks for one on the scheduler's origin. @returns whether it was answered */
export function answerWorker(request: FastifyRequest, reply: FastifyReply): boolean {
  if (!asksForWorker(request) || request.url.startsWith(`${HOST_BASE}/`)) return false;
  closeUnread(request, reply);
  void reply.code(200).headers(HEADERS).send(SCRIPT);
  return true;
}
