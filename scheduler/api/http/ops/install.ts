// `/install/agent` (the script) and `/install/releases/{file}` (the archives), from
// which a machine installs its agent. Open to everybody, since no secret is in them.
import type { FastifyInstance } from 'fastify';
import { AppError } from '#shared/errors.ts';
import type { Releases } from '../../ops/releases.ts';

const NONE =
  'this scheduler has no release to give out: put one, with its channel file, into the directory that LONGSHORE_RELEASES_DIR names (`npm run build` makes both)';

export function registerInstall(app: FastifyInstance, releases: Pick<Releases, 'installer' | 'open'>): void {
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
    return reply.header('content-type', 'application/gzip').header('content-length', found.bytes).send(found.stream);
  });
}
