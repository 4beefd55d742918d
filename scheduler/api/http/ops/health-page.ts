// `/api/v1/health` (may traffic come here?) and `/api/v1/health/live` (is the process alive?). Both are open to
// everybody. Both pages show the state, and the server's warnings for the operator.
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Readiness } from '../../ops/health.ts';

export function registerHealth(
  app: FastifyInstance,
  parts: {
    readonly readiness: Readiness;
    readonly isDraining: () => boolean;
    /** Warnings for the operator, without secrets. Absent: none. */
    readonly warnings?: () => readonly string[];
    readonly version: string;
  },
): void {
  app.get('/api/v1/health', async (_request, reply) => {
    if (parts.isDraining()) return say(reply, 503, { status: 'draining' });
    const failing = await parts.readiness.failing();
    const warnings = parts.warnings?.() ?? [];
    return failing.length === 0
      ? say(reply, 200, { status: 'ok', version: parts.version, ...(warnings.length === 0 ? {} : { warnings }) })
      : say(reply, 503, { status: 'unavailable', failing, version: parts.version });
  });
  app.get('/api/v1/health/live', (_request, reply) => say(reply, 200, { status: 'ok' }));
}

const say = (reply: FastifyReply, status: number, body: unknown): FastifyReply =>
  reply
    .code(status)
    .header('content-type', 'application/json')
    .header('cache-control', 'no-store')
    .send(JSON.stringify(body));
