// A server that speaks the OpenAI API and writes tokens by a timer. No model is behind it: its pace is the same for all
// who call it, so that only what stands before it differs. suites/inference.ts starts it.
// Arguments: tokens of a stream, milliseconds before the first, milliseconds between two.
import { createServer } from 'node:http';
import type { ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';

const [tokens = 0, firstMs = 0, pauseMs = 0] = process.argv.slice(2).map(Number);
const HEAD = { id: 'chatcmpl-paced', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'paced' };
const USAGE = { prompt_tokens: 1, completion_tokens: tokens, total_tokens: tokens + 1 };

const frame = (fields: object): string => `data: ${JSON.stringify({ ...HEAD, ...fields })}\n\n`;
const chunk = (delta: object, finishReason: string | null = null): string =>
  frame({ choices: [{ index: 0, delta, finish_reason: finishReason, logprobs: null }] });
const ROLE = chunk({ role: 'assistant', content: '' });
const TOKEN = chunk({ content: 'word ' });
const END = `${chunk({}, 'stop')}${frame({ choices: [], usage: USAGE })}data: [DONE]\n\n`;

/** Tokens leave at their times, counted from the begin: a late timer delays no later token. */
function play(response: ServerResponse): void {
  const startedMs = performance.now();
  let written = 0;
  const next = (): void => {
    if (response.destroyed) return;
    while (written < tokens && performance.now() - startedMs >= firstMs + written * pauseMs) {
      response.write(TOKEN);
      written += 1;
    }
    if (written === tokens) response.end(END);
    else setTimeout(next, Math.max(1, startedMs + firstMs + written * pauseMs - performance.now()));
  };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(ROLE);
  next();
}

const server = createServer((request, response) => {
  text(request).then(
    () => play(response),
    () => response.destroy(),
  );
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.send?.({ kind: 'ready', port: typeof address === 'object' ? address?.port : undefined });
});
const stop = (): void => process.exit(0);
process.once('SIGTERM', stop);
process.once('disconnect', stop);
