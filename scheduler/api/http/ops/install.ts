// Everything below `/install/`: the script and the archives from which a machine installs its agent, and the packages
// of the command line and the Python module. Open to everybody, since no secret is in them.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { Packages } from '../../ops/packages.ts';
import type { Releases } from '../../ops/releases.ts';
import { PAGE_HEADERS, installPage } from './install-page.ts';

const NONE =
  'this scheduler has no release to give out: put one, with its channel file, into the directory that LONGSHORE_RELEASES_DIR names (`npm run build` makes both)';
const NO_PACKAGES =
  "this scheduler has no packages to give out: run `npm run build -- --packages` in the scheduler's checkout, or put the folder dist/install of a build into the directory that LONGSHORE_RELEASES_DIR names";

export interface InstallParts {
  readonly releases: Pick<Releases, 'installer' | 'open'>;
  readonly packages: Pick<Packages, 'names' | 'open'>;
  /** The start of URLs that are shown to a caller. */
  readonly baseUrlOf: (request: FastifyRequest) => string;
}

export function registerInstall(app: FastifyInstance, { releases, packages, baseUrlOf }: InstallParts): void {
  app.get('/install/agent', async (request, reply) => {
    const { channel } = request.query as { readonly channel?: unknown };
    const script = await releases.installer(typeof channel === 'string' ? channel : undefined);
    if (script === undefined) throw new AppError('release_not_found', NONE);
    return reply
      .header('content-type', 'text/x-shellscript; charset=utf-8')
      .header('cache-control', 'no-store')
      .send(script);
  });
  app.get('/install/releases/:file', async (request, reply) => {
    const { file } = request.params as { readonly file: string };
    const found = await releases.open(file);
    if (found === undefined) throw new AppError('release_not_found', 'there is no such release here');
    const type = file.endsWith('.asc') ? 'application/pgp-signature' : 'application/gzip';
    return reply.header('content-type', type).header('content-length', found.bytes).send(found.stream);
  });

  const page = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const names = await packages.names();
    if (names === undefined) throw new AppError('package_not_found', NO_PACKAGES);
    return sized(request, reply.headers(PAGE_HEADERS), Buffer.from(installPage(baseUrlOf(request), names)));
  };
  const file = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { file: name } = request.params as { readonly file: string };
    const found = await packages.open(name);
    if (found === undefined) {
      const isBuilt = (await packages.names()) !== undefined;
      throw new AppError(
        'package_not_found',
        isBuilt ? 'there is no such package here: /install/ lists them' : NO_PACKAGES,
      );
    }
    // Clients ask each time whether a file is still the same: the next release brings another below its name.
    reply.headers({ etag: found.tag, 'cache-control': 'no-cache', 'x-content-type-options': 'nosniff' });
    if (request.headers['if-none-match'] === found.tag) return reply.code(304).send();
    const type = name.endsWith('.tgz') ? 'application/gzip' : 'application/zip';
    return sized(request, reply.header('content-type', type), found.bytes);
  };
  const method = ['GET', 'HEAD'];
  app.route({ method, url: '/install', handler: page });
  app.route({ method, url: '/install/:file', handler: file });
}

/** Sends bytes; to HEAD only their number. */
function sized(request: FastifyRequest, reply: FastifyReply, bytes: Buffer): FastifyReply {
  reply.header('content-length', bytes.byteLength);
  return request.method === 'HEAD' ? reply.send() : reply.send(bytes);
}
