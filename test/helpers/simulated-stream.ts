// The runner process of a simulated container in a streamed call: sends the body back as it comes, and WebSocket
// messages likewise. It speaks the frames that a real one speaks through its agent.
import { dialBytes } from '#agent/upstream/byte-sockets.ts';
import { encodeLine } from '#shared/protocol/byte-connections.ts';
import type { StreamLine } from '#shared/protocol/byte-connections.ts';
import { FrameReader, encodeFrame } from '#shared/protocol/frames.ts';
import type { FrameKind } from '#shared/protocol/frames.ts';

export interface SimulatedStream {
  /** `host:port` of the scheduler. */
  readonly address: string;
  readonly caPem: string;
  readonly credential: string;
  readonly sessionId: string;
  readonly line: StreamLine;
}

/** Serves the call. @returns the result's body, or undefined when its caller left */
export async function echoStream(stream: SimulatedStream): Promise<string | undefined> {
  const { address, caPem, credential, sessionId, line } = stream;
  const socket = await dialBytes(address, caPem, undefined);
  socket.write(encodeLine({ sessionId, authorization: `Bearer ${credential}` }));
  socket.write(encodeLine(line));
  return new Promise((resolve) => {
    const reader = new FrameReader();
    const send = (kind: FrameKind, header: object = {}, body?: Uint8Array): void => {
      if (!socket.write(encodeFrame(kind, header, body))) {
        socket.pause();
        socket.once('drain', () => socket.resume());
      }
    };
    let isWebSocket = false;
    const over = (body: string | undefined): void => {
      socket.end();
      resolve(body);
    };
    socket.on('error', () => resolve(undefined));
    socket.on('end', () => over(undefined));
    socket.on('close', () => resolve(undefined));
    socket.on('data', (data: Buffer) => {
      for (const { kind, header, body } of reader.push(data)) {
        if (kind === 'request') {
          isWebSocket = (JSON.parse(body.toString()) as { type: string }).type === 'websocket';
          const head = isWebSocket
            ? { accept: true, subprotocol: null, headers: [] }
            : { status: 200, headers: [['x-request', body.toString('base64')]] };
          send('response', {}, Buffer.from(JSON.stringify(head)));
        } else if (kind === 'data') send('data', {}, body);
        else if (kind === 'message') send('message', header, body);
        else if (kind === 'close') over('{"code":1000}');
        else if (kind === 'end') {
          send('end');
          over('{"status":200}');
        }
      }
    });
  });
}
