// The exchange of a call with the program on a port: the request as the program gets it, its response, and the
// connection that both turn to another protocol. Calls of pods (stream-call.ts) and of sandboxes (sandbox-call.ts).
import type { FastifyRequest } from 'fastify';
import { TOKEN_QUERY } from '../invoke/credential.ts';
import { OWN_COOKIES } from '../invoke/own-cookies.ts';
import { queryWithout, requestHeaders, splitTarget } from './head.ts';
import type { HeaderList } from './head.ts';
import { HttpExchange } from './http-exchange.ts';
import type { HttpExchangeParts } from './http-exchange.ts';
import { PortFrames } from './port-frames.ts';
import { headersOf, passUpgraded } from './raw-upgrade.ts';
import { withinReach } from './tenant-answers.ts';
import type { Upgrade } from './upgrades.ts';

export interface PortExchangeParts extends Omit<HttpExchangeParts, 'head' | 'open' | 'accept'> {
  readonly fastify: FastifyRequest;
  readonly port: number;
  /** Time for which the supervisor tries while nothing listens yet. */
  readonly waitMs: number;
  readonly tokenInHeader: boolean;
}

export interface PortUpgrade {
  readonly upgrade: Upgrade;
  /** The program agreed. @returns headers of the platform */
  readonly begun: () => HeaderList;
  readonly onOver: (isWhole: boolean) => void;
}

/**
 * Begins the exchange.
 * @param onProgram - called with the program's side: it says why there is no response
 * @param asked - the caller asks for another protocol
 */
export function portExchange(
  parts: PortExchangeParts,
  onProgram: (program: PortFrames) => void,
  asked: PortUpgrade | undefined,
): HttpExchange {
  const { fastify, rootPath, port, waitMs, request, response, bytes, onBytes } = parts;
  const { path, mark, query } = splitTarget(fastify.originalUrl);
  const left = queryWithout(query, TOKEN_QUERY);
  const own = path.slice(rootPath.length);
  // A mark without a query stays, unless the query was the token alone.
  const behind = left === '' && query !== '' ? '' : `${mark}${left}`;
  const { upgrade } = request.headers;
  let program: PortFrames;
  return new HttpExchange({
    ...parts,
    head: new Uint8Array(),
    open: (events) => {
      program = new PortFrames(
        {
          bytes,
          port,
          waitMs,
          request,
          response,
          path: `${own === '' ? '/' : own}${behind}`,
          headers: requestHeaders(
            request.rawHeaders,
            {
              for: [...(fastify.ips ?? [fastify.ip])].toReversed().join(', '),
              host: fastify.host,
              proto: fastify.protocol,
              prefix: rootPath,
            },
            { inHeader: parts.tokenInHeader, cookies: OWN_COOKIES, queryToken: TOKEN_QUERY },
            asked !== undefined,
          ),
          ...(asked === undefined || upgrade === undefined ? {} : { upgrade }),
          // A browser would follow hints before it knows that the page is sandboxed.
          takesHints: rootPath === '' || request.headers['sec-fetch-mode'] !== 'navigate',
        },
        events,
      );
      onProgram(program);
      return program;
    },
    ...(asked === undefined
      ? {}
      : {
          accept: () => {
            const { upgraded } = program;
            if (upgraded !== undefined)
              passUpgraded(
                response,
                asked.upgrade,
                { ...upgraded, headers: withinReach(headersOf(upgraded.head), rootPath) },
                asked.begun(),
                { onBytes, onOver: asked.onOver },
              );
          },
        }),
  });
}
