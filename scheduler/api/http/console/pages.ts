// The pages of the web console and their files. Every address below `/console/` that is nothing else is the same page,
// whose script reads the address. Terminals are a document of their own, whose library makes styles. A page may run its
// own script alone: by a nonce, never by `'self'`, because an application in the path form answers at this origin, too.
// Source: decisions 0645, 0680.
import { randomBytes } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { ConsoleFiles, Encoding } from '../../ops/console-files.ts';
import { CONSOLE_BASE } from './address.ts';
import { takesEncoding } from './encodings.ts';

const policyFor = (nonce: string, isTerminal: boolean): string =>
  [
    "default-src 'none'",
    `script-src 'nonce-${nonce}' 'strict-dynamic'`,
    // The terminal's library makes styles for cells and colours.
    isTerminal ? "style-src 'self' 'unsafe-inline'" : "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    // `console/live/live.ts` makes the only policy, which trusts the script of the shared worker.
    ...(isTerminal ? ["trusted-types 'none'"] : ['trusted-types longshore', "worker-src 'self'"]),
  ].join('; ');

/** Addresses of terminals: the workspace and the container follow. */
const TERMINAL = `${CONSOLE_BASE}/terminal/`;

/** A script that is a worker has a policy of its own: it may send requests, and load nothing. */
const ASSET_POLICY = "default-src 'none'; connect-src 'self'";

const ICON =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M2 10h12l-2 4H4zM7 2h2v7H7z' fill='%232f6fdb'/%3E%3C/svg%3E";

/**
 * Loads the page again when a script or the styles did not come. Browsers drop what they load when a network interface
 * appears, and each container's start makes one where the browser runs on the machine itself.
 */
const LOADER = `addEventListener('error', ({ target }) => {
  if (!(target instanceof HTMLScriptElement || target instanceof HTMLLinkElement)) return;
  const count = Number(sessionStorage.getItem('longshore-console-loads'));
  sessionStorage.setItem('longshore-console-loads', String(count + 1));
  if (count < 3) setTimeout(() => location.reload(), 300 * 2 ** count);
  else addEventListener('load', () => { document.getElementById('app').textContent = 'The console did not load. Load the page again.'; });
}, true);
addEventListener('load', () => { if (document.getElementById('app').firstChild) sessionStorage.removeItem('longshore-console-loads'); });`;

/** @param base - what leads from the page's address to `/console/` */
const pageOf = (
  { entry, styles, worker }: { readonly entry: string; readonly styles: readonly string[]; readonly worker: string },
  base: string,
  nonce: string,
): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">
<meta name="color-scheme" content="light dark">
<title>Longshore</title>
<link rel="icon" href="${ICON}">
<script nonce="${nonce}">${LOADER}</script>
${styles
  .map(
    (style) => `<link rel="stylesheet" href="${base}assets/${style}">
`,
  )
  .join('')}<script type="module" nonce="${nonce}" src="${base}assets/${entry}"></script>
</head>
<body><div id="app" data-worker="${worker}"></div><noscript>The console needs JavaScript. The command line shows the same: longshore status.</noscript></body>
</html>
`;

const NOT_BUILT =
  'the console is not built here: `npm run build -- --console` in the checkout of the scheduler builds it, and so does `npm start`';

export function registerPages(scope: FastifyInstance, { files }: { readonly files: ConsoleFiles }): void {
  scope.get('/assets/:file', async (request, reply) => {
    const { file } = request.params as { readonly file: string };
    const encoding = encodingFor(request);
    const found = await files.open(file, encoding);
    if (found === undefined) throw new AppError('not_found', 'the console has no such file: load the page again');
    if (encoding !== 'identity') reply.header('content-encoding', encoding);
    // A name stands for its bytes, so that it is asked for once.
    return reply
      .headers({
        'cache-control': 'public, max-age=31536000, immutable',
        'content-security-policy': ASSET_POLICY,
        vary: 'accept-encoding',
      })
      .type(found.type)
      .send(found.bytes);
  });
  const page = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const [path = ''] = request.originalUrl.split('?', 1);
    if (path === CONSOLE_BASE) return reply.redirect('console/', 308);
    if (/^\/console\/(?:api|assets|session)(?:\/|$)/.test(path)) throw new AppError('not_found', 'Not Found');
    const list = await files.list();
    if (list === undefined) throw new AppError('not_found', NOT_BUILT);
    const nonce = randomBytes(16).toString('base64');
    const isTerminal = path.startsWith(TERMINAL);
    const { style, terminal } = list;
    const shown = isTerminal
      ? { entry: terminal.entry, styles: [style, terminal.style], worker: '' }
      : { entry: list.entry, styles: [style], worker: list.worker };
    const depth = path.slice(CONSOLE_BASE.length + 1).split('/').length - 1;
    return reply
      .headers({ 'content-security-policy': policyFor(nonce, isTerminal), 'cross-origin-opener-policy': 'same-origin' })
      .type('text/html; charset=utf-8')
      .send(pageOf(shown, '../'.repeat(depth), nonce));
  };
  scope.get('/', page);
  scope.get('/*', page);
}

const encodingFor = (request: FastifyRequest): Encoding =>
  takesEncoding(request, 'br') ? 'br' : takesEncoding(request, 'gzip') ? 'gzip' : 'identity';
