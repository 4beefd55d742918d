/**
 * Relays one call of a container: an HTTP request on its socket goes over the agent link as a stream, and the answer
 * comes back on it. Pieces are passed on as they come, with back-pressure both ways; the end of either side ends the
 * other. Called by sockets.ts for requests that the allow-list permits.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { status as GrpcStatus } from '@grpc/grpc-js';
import type { ClientDuplexStream } from '@grpc/grpc-js';
import { headersToPass, refusalBody } from '#shared/domain/container-calls.ts';
import type { GatewayRequest, GatewayResponse__Output } from '#shared/protocol/generated/messages.ts';
import { grpcCode } from '../grpc-errors.ts';

export type UpstreamCall = ClientDuplexStream<GatewayRequest, GatewayResponse__Output>;
/**
 * `answered`: with any status · `cut_off`: the container hung up · `failed`: the scheduler failed, or never answered.
 */
export type Relayed = 'answered' | 'cut_off' | 'failed';

/** The container and socket that a call came from. */
export interface Caller {
  readonly containerId: string;
  readonly epoch: number;
}

/** Sends an answer of the agent's own. */
export function answerItself(response: ServerResponse, status: number, code: string, message: string): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(status, {
    'content-type': 'application/json',
    // The rest of the request will not be read.
    connection: 'close',
    ...(status === 503 || status === 429 ? { 'retry-after': '1' } : {}),
  });
  response.end(refusalBody(code, message));
}

/**
 * Resolves at the call's end, with its outcome.
 * @param stalledMs - the longest time without a byte of a begun body, or without reading of the answer; waiting for the
 * platform is no stall
 */
export function relay(
  caller: Caller,
  request: IncomingMessage,
  response: ServerResponse,
  call: UpstreamCall,
  stalledMs: number,
): Promise<Relayed> {
  return new Promise((resolve) => {
    let isOver = false;
    const end = (result: Relayed): void => {
      if (isOver) return;
      isOver = true;
      if (result !== 'answered') call.cancel();
      resolve(result);
    };
    // The socket's own timer restarts with every byte in either direction.
    response.setTimeout(stalledMs, () => {
      if (isOver) return;
      const isSending = !request.complete && !request.isPaused();
      if (isSending && !response.headersSent) {
        answerItself(response, 408, 'body_stalled', `nothing came of the body for ${Math.round(stalledMs / 1000)} s`);
        end('cut_off');
      } else if (isSending || response.writableNeedDrain) response.destroy();
      else response.setTimeout(stalledMs);
    });
    response.on('close', () => end(response.writableFinished ? 'answered' : 'cut_off'));
    call.on('error', (error: Error) => {
      if (isOver) return;
      if (response.headersSent) response.destroy();
      else answerItself(response, ...failureOf(error));
      end('failed');
    });
    call.on('data', ({ head, data }: GatewayResponse__Output) => {
      if (isOver) return;
      if (head !== null && head !== undefined) {
        response.writeHead(
          head.status,
          head.headers.flatMap(({ name, value }) => [name, value]),
        );
      }
      if (data.length > 0 && !response.write(data)) {
        call.pause();
        response.once('drain', () => call.resume());
      }
    });
    call.on('end', () => {
      if (response.headersSent) response.end();
    });
    call.write({
      head: {
        ...caller,
        method: request.method ?? 'GET',
        path: request.url ?? '/',
        headers: headersToPass(request.rawHeaders),
      },
    });
    request.on('data', (data: Buffer) => {
      if (isOver || call.write({ data })) return;
      request.pause();
      call.once('drain', () => request.resume());
    });
    request.on('end', () => call.end());
    request.on('error', () => end('cut_off'));
  });
}

const LOST = 'the scheduler went away while it had this call: whether it was carried out is not known';

function failureOf(error: Error): [status: number, code: string, message: string] {
  switch (grpcCode(error)) {
    case GrpcStatus.DEADLINE_EXCEEDED:
      return [504, 'deadline_exceeded', 'the call had no answer in time'];
    case GrpcStatus.UNAUTHENTICATED:
    case GrpcStatus.PERMISSION_DENIED:
      return [503, 'scheduler_away', 'the scheduler does not take this machine’s calls now: try again soon'];
    default:
      return [502, 'call_lost', LOST];
  }
}
