// The library's compression of one connection, so that its work can be counted and wait for its turn.
import type { WebSocket } from 'ws';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { CompressionTurns } from './compression-turns.ts';

/** Works on a message, or a part of it. @param done - called once */
export type Compress = (data: Buffer, isLast: boolean, done: (error: Error | null, result?: Buffer) => void) => void;

/** Methods that `ws` documents as public, of an object that has no public name. */
export interface Compression {
  decompress: Compress;
  compress: Compress;
}

const EXTENSION = 'permessage-deflate';

/** A field of `ws` 8.23 without a public name; test/unit/http/compression.test.ts fails without it. */
interface WithExtensions {
  readonly _extensions?: { readonly [EXTENSION]?: Partial<Compression> };
}

/**
 * The compression that the handshake has agreed upon; undefined: none.
 * @throws Error: the library keeps it elsewhere. Then nobody would bound it.
 */
export function compressionOf(webSocket: WebSocket): Compression | undefined {
  if (!webSocket.extensions.split(',').includes(EXTENSION)) return undefined;
  const found = (webSocket as unknown as WithExtensions)._extensions?.[EXTENSION];
  if (typeof found?.decompress !== 'function' || typeof found.compress !== 'function')
    throw new Error('this version of ws keeps its compression elsewhere');
  return found as Compression;
}

/** Lets a connection's messages wait for the turn of its workspace. */
export function takeTurns(webSocket: WebSocket, workspaceId: WorkspaceId, turns: CompressionTurns): void {
  const compression = compressionOf(webSocket);
  if (compression === undefined) return;
  for (const name of ['decompress', 'compress'] as const) {
    const work = compression[name].bind(compression);
    compression[name] = (data, isLast, done) =>
      turns.add(workspaceId, (over) =>
        work(data, isLast, (error, result) => {
          over();
          done(error, result);
        }),
      );
  }
}
