// The page on which people read openapi.json and try its calls: Swagger UI, from its package. All parts come from this
// origin, and the page may load nothing else. A token that is entered stays in the memory of the page.
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';

const PACKAGE = new URL('../../../../node_modules/swagger-ui-dist/', import.meta.url);

/** The page itself has no script and no style: its policy allows none. */
const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Longshore API</title>
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/start.js" defer></script>
</head>
<body><div id="viewer"></div></body>
</html>
`;

/** Addresses are relative, so that the page works below a path of a proxy, too. */
const START = `window.ui = SwaggerUIBundle({
  url: new URL('openapi.json', document.baseURI).href,
  dom_id: '#viewer',
  deepLinking: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
  validatorUrl: null,
  persistAuthorization: false,
});
`;

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  // Icons are in the style sheet.
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const HEADERS = {
  'content-security-policy': POLICY,
  'cross-origin-opener-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
};

/** Files of the page, with their types; other files of the package are not served. */
const FILES: Readonly<Record<string, string>> = {
  'start.js': 'text/javascript; charset=utf-8',
  'swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
  'swagger-ui.css': 'text/css; charset=utf-8',
  'favicon-32x32.png': 'image/png',
};

interface Served {
  readonly bytes: Buffer;
  readonly compressed: Buffer;
  readonly tag: string;
}

/**
 * Registers `/docs` and the files of its page, and the bare address.
 * @param home - where browsers that open the bare address are led
 */
export function registerViewer(app: FastifyInstance, home: () => Promise<string>): void {
  // Each file is read and compressed once, when somebody first asks for it.
  const served = new Map<string, Promise<Served>>();
  const fileOf = (name: string): Promise<Served> => {
    const known = served.get(name);
    if (known !== undefined) return known;
    const reading = read(name);
    reading.catch(() => served.delete(name));
    served.set(name, reading);
    return reading;
  };
  app.get('/', async (request, reply) => {
    if (/\btext\/html\b/.test(request.headers.accept ?? '')) return reply.redirect(await home(), 302);
    throw new AppError(
      'not_found',
      'nothing is at /: /console/ is for people, /docs describes the API, /install/ has the command line and the Python module',
    );
  });
  app.get('/docs', (_request, reply) => reply.headers(HEADERS).type('text/html; charset=utf-8').send(PAGE));
  app.get('/docs/:file', async (request, reply) => {
    const { file } = request.params as { readonly file: string };
    const type = Object.hasOwn(FILES, file) ? FILES[file] : undefined;
    if (type === undefined) throw new AppError('not_found', 'the page has no such file');
    return send(request, reply.headers(HEADERS).type(type), await fileOf(file));
  });
}

function send(request: FastifyRequest, reply: FastifyReply, { bytes, compressed, tag }: Served): FastifyReply {
  // Browsers ask each time whether a file is still the same: the next release may bring another.
  reply.headers({ etag: tag, 'cache-control': 'no-cache', vary: 'accept-encoding' });
  if (request.headers['if-none-match'] === tag) return reply.code(304).send();
  const takesGzip = /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(request.headers['accept-encoding'] ?? '');
  return takesGzip ? reply.header('content-encoding', 'gzip').send(compressed) : reply.send(bytes);
}

async function read(name: string): Promise<Served> {
  const bytes = name === 'start.js' ? Buffer.from(START) : await readFile(new URL(name, PACKAGE));
  const tag = `"${createHash('sha256').update(bytes).digest('hex').slice(0, 32)}"`;
  return { bytes, compressed: await promisify(gzip)(bytes), tag };
}
