// The runner process of a simulated container in a streamed call: sends the body back as it comes, and WebSocket
// messages likewise. It speaks the frames that a real one speaks through its agent.
import type { AgentLinkClient, CarryToAgent__Output } from '#shared/protocol/generated/messages.ts';
import { bearer } from '#agent/upstream/channel.ts';
import { FrameReader, encodeFrame } from '#shared/protocol/frames.ts';
import type { FrameKind } from '#shared/protocol/frames.ts';

export interface SimulatedStream {
  readonly client: AgentLinkClient;
  readonly credential: string;
  readonly sessionId: string;
  readonly taskId: string;
  readonly token: string;
  /** Names an ordered stream, instead of a task. */
  readonly streamId?: string;
}

/** Serves the call. @returns the result's body, or undefined when its caller left */
export function echoStream({
  client,
  credential,
  sessionId,
  taskId,
  token,
  streamId = '',
}: SimulatedStream): Promise<string | undefined> {
  return new Promise((resolve) => {
    const call = client.carry(bearer(credential, sessionId));
    const reader = new FrameReader();
    const send = (kind: FrameKind, header: object = {}, body?: Uint8Array): void => {
      if (!call.write({ data: encodeFrame(kind, header, body) })) {
        call.pause();
        call.once('drain', () => call.resume());
      }
    };
    let isWebSocket = false;
    const over = (body: string | undefined): void => {
      call.end();
      resolve(body);
    };
    call.on('error', () => resolve(undefined));
    call.on('end', () => over(undefined));
    call.on('data', ({ data }: CarryToAgent__Output) => {
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
    call.write({ head: { taskId, token, streamId } });
  });
}
