/**
 * A scripted server that speaks the OpenAI API: no model is behind it. Answers are the frames and bodies that a test
 * gives. The server keeps every request, and notes which of them their callers gave up.
 */
import { createServer } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as after } from 'node:timers/promises';

export interface ScriptedRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Readonly<Record<string, unknown>>;
  /** The body as it came. */
  readonly text: string;
  /** Epoch milliseconds at which the caller's connection closed before the answer was whole. */
  leftAtMs: number | undefined;
}

/** Part of a streamed answer: data of a frame, a text as it is, a pause, a wait, or the loss of the connection. */
export type ScriptedFrame =
  | { readonly data: unknown }
  | { readonly raw: string }
  | { readonly pauseMs: number }
  | { readonly until: Promise<unknown> }
  | 'break';

export type Script =
  | { readonly status?: number; readonly json: unknown; readonly until?: Promise<unknown> }
  | { readonly status?: number; readonly type?: string; readonly encoding?: string; readonly text: string | Buffer }
  | { readonly frames: readonly ScriptedFrame[] }
  | ((request: ScriptedRequest) => Script);

export class ScriptedModelServer {
  readonly requests: ScriptedRequest[] = [];
  /** Scripts by path, used in turn; the last one stays. */
  readonly scripts = new Map<string, Script[]>();
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      this.#serve(request, response).catch(() => response.destroy());
    });
  }

  async start(): Promise<this> {
    await new Promise<void>((resolve) => void this.#server.listen(0, '127.0.0.1', resolve));
    return this;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => void this.#server.close(resolve));
  }

  /** Base URL, as clients of the API name it. */
  get baseUrl(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`;
  }

  script(path: string, ...scripts: readonly Script[]): void {
    this.scripts.set(`/v1${path}`, [...scripts]);
  }

  get last(): ScriptedRequest {
    const request = this.requests.at(-1);
    if (request === undefined) throw new Error('the scripted server got no request');
    return request;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    const { url: path = '', headers } = request;
    const text = Buffer.concat(chunks).toString();
    const body = JSON.parse(text || '{}') as ScriptedRequest['body'];
    const kept: ScriptedRequest = { path, headers, body, text, leftAtMs: undefined };
    this.requests.push(kept);
    response.once('close', () => {
      if (!response.writableFinished) kept.leftAtMs = Date.now();
    });
    const scripts = this.scripts.get(path) ?? [{ status: 404, json: { error: { message: 'no script' } } }];
    let script = (scripts.length > 1 ? scripts.shift() : scripts[0]) as Script;
    while (typeof script === 'function') script = script(kept);
    if ('frames' in script) return await play(script.frames, response);
    if ('text' in script) {
      response.writeHead(script.status ?? 200, {
        ...(script.type === undefined ? {} : { 'content-type': script.type }),
        ...(script.encoding === undefined ? {} : { 'content-encoding': script.encoding }),
      });
      return void response.end(script.text);
    }
    await script.until;
    response.writeHead(script.status ?? 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(script.json));
  }
}

async function play(frames: readonly ScriptedFrame[], response: ServerResponse): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.flushHeaders();
  for (const frame of frames) {
    if (response.destroyed) return;
    if (frame === 'break') {
      // Bytes that were written go out before the connection breaks.
      await after(50);
      response.destroy();
      return;
    }
    if ('pauseMs' in frame) await after(frame.pauseMs);
    else if ('until' in frame) await frame.until;
    else if ('raw' in frame) response.write(frame.raw);
    else response.write(`data: ${typeof frame.data === 'string' ? frame.data : JSON.stringify(frame.data)}\n\n`);
  }
  response.end();
}

const COMMON = { id: 'chatcmpl-scripted', created: 1_700_000_000, model: 'served-name' };
export const USAGE = { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 };

/** A frame of a streamed chat, with one choice. */
export const chatFrame = (delta: object, finishReason: string | null = null): ScriptedFrame => ({
  data: {
    ...COMMON,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, finish_reason: finishReason, logprobs: null }],
    // Engines that are asked for the usage say so on every frame.
    usage: null,
  },
});
export const usageFrame = (usage: object = USAGE): ScriptedFrame => ({
  data: { ...COMMON, object: 'chat.completion.chunk', choices: [], usage },
});
export const DONE: ScriptedFrame = { data: '[DONE]' };

/** A whole streamed chat of these parts. */
export const chatStream = (...parts: readonly string[]): Script => ({
  frames: [
    chatFrame({ role: 'assistant', content: '' }),
    ...parts.map((content) => chatFrame({ content })),
    chatFrame({}, 'stop'),
    usageFrame(),
    DONE,
  ],
});

/** A whole chat. */
export const chatAnswer = (content: string, usage: object | undefined = USAGE): Script => ({
  json: {
    ...COMMON,
    object: 'chat.completion',
    choices: [
      { index: 0, message: { role: 'assistant', content, refusal: null }, finish_reason: 'stop', logprobs: null },
    ],
    ...(usage === undefined ? {} : { usage }),
  },
});
