// A TCP connection to a port of a container, as binary messages both ways. `{"end":true}` is a side's end: the other
// may go on sending.
import type { WebSocket } from 'ws';
import { AppError } from '#shared/errors.ts';
import type { OpenRequest } from '../../../fleet/inside/request.ts';
import { CLOSES, Outgoing, passIn, refuse } from './sockets.ts';

const END = '{"end":true}';

/** Passes bytes on until both sides have ended. */
export function servePort(webSocket: WebSocket, opened: OpenRequest<'connect'>): void {
  const { frames } = opened;
  const out = new Outgoing(webSocket, frames);
  let callerEnded = false;
  let portEnded = false;
  const doneWhenBoth = (): void => {
    if (!callerEnded || !portEnded) return;
    webSocket.close(CLOSES.done);
    frames.end();
  };
  webSocket.on('message', (data: Buffer, isBinary: boolean) => {
    if (callerEnded) return;
    if (isBinary) return passIn(webSocket, frames, data);
    if (data.toString('utf8').replaceAll(/\s/g, '') !== END)
      return refuse(webSocket, new AppError('bad_request', `a text message is ${END}`));
    callerEnded = true;
    frames.send('end');
    doneWhenBoth();
  });
  webSocket.once('close', () => opened.close());
  opened.take({
    onFrame: ({ kind, body }) => {
      if (kind === 'data') out.bytes(body);
      if (kind !== 'end' || portEnded) return;
      portEnded = true;
      out.text(END);
      doneWhenBoth();
    },
    onOver: () => {
      webSocket.close(portEnded ? CLOSES.done : CLOSES.comeBack, portEnded ? '' : 'the connection was lost');
      webSocket.resume();
    },
  });
}
