// Answers that are streamed: frames of a backend become frames of the caller, no faster than the caller reads.
// Source: reference of the inference API, §4.4.
import { once } from 'node:events';
import type { Asked } from './backends.ts';
import { UNREAD_MS } from './exchange.ts';
import type { Exchange } from './exchange.ts';
import { backendFailed } from './failures.ts';
import { failureInText, failureOfErrorEvent, failureOfWhole } from './false-success.ts';
import { SseReader, TooLargeEvent } from './sse.ts';
import type { SseEvent } from './sse.ts';
import { DONE, PING, StreamFrames, frameOf, framesOfWhole } from './stream-frames.ts';
import type { Step } from './stream-frames.ts';
import { InferenceError } from './errors.ts';
import { estimatedPrompt } from './prepared.ts';
import { finished } from './usage.ts';

const HEAD = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
};

/** Bytes of a stream that are kept until it has an event. */
const MOST_BEGIN = 16 * 1024;

export async function serveStream(exchange: Exchange): Promise<void> {
  const { prepared, reply, times } = exchange;
  const { raw } = reply;
  const frames = new StreamFrames({
    model: prepared.model.name,
    includeUsage: prepared.includeUsage,
    promptTokens: estimatedPrompt(prepared),
    isCustom: prepared.route === 'invoke',
  });
  let pinging: NodeJS.Timeout | undefined;
  const ping = (): void => {
    pinging ??= setInterval(() => {
      if (!raw.writableNeedDrain) raw.write(PING);
    }, times.pingMs).unref();
  };
  const hold = setTimeout(() => {
    exchange.takeOver(HEAD);
    raw.write(PING);
    ping();
  }, times.holdMs).unref();
  try {
    const asked = await exchange.ask();
    clearTimeout(hold);
    exchange.answered();
    const version = asked.version === undefined ? {} : { 'x-model-version': String(asked.version) };
    if (raw.headersSent) exchange.signal.throwIfAborted();
    else {
      exchange.takeOver({ ...HEAD, ...version });
      raw.flushHeaders();
    }
    ping();
    const passed = new Passing(exchange, frames, () => clearInterval(pinging));
    await passed.pass(asked);
  } catch (error) {
    if (frames.hasOutput) await exchange.settle(frames.usage, exchange.hasLeft ? 'aborted' : 'failed');
    throw error;
  } finally {
    clearTimeout(hold);
    clearInterval(pinging);
  }
}

class Passing {
  readonly #exchange: Exchange;
  readonly #frames: StreamFrames;
  readonly #onFirst: () => void;
  #hasPassed = false;

  constructor(exchange: Exchange, frames: StreamFrames, onFirst: () => void) {
    this.#exchange = exchange;
    this.#frames = frames;
    this.#onFirst = onFirst;
  }

  async pass(asked: Asked): Promise<void> {
    const type = String(asked.headers['content-type'] ?? '').toLowerCase();
    if (type.includes('text/event-stream')) return await this.#passEvents(asked);
    const answer = await this.#exchange.readJson(asked);
    const { route } = this.#exchange.prepared;
    const failure = failureOfWhole(answer.value, route);
    if (failure !== undefined) throw failure;
    const datas = route === 'invoke' ? [answer.text] : framesOfWhole(answer, route === 'chat');
    await this.#take(datas.map((data) => ({ data, isError: false })));
    await this.#finish();
  }

  async #passEvents({ body }: Asked): Promise<void> {
    const reader = new SseReader();
    const begin: Buffer[] = [];
    let beginBytes = 0;
    try {
      for await (const chunk of body as AsyncIterable<Buffer>) {
        const events = reader.push(chunk);
        if (events.length === 0 && beginBytes < MOST_BEGIN) {
          begin.push(chunk);
          beginBytes += chunk.length;
        }
        if (await this.#take(events)) return await this.#finish();
      }
    } catch (error) {
      if (error instanceof InferenceError) throw error;
      const { signal } = this.#exchange;
      signal.throwIfAborted();
      throw backendFailed(
        error instanceof TooLargeEvent
          ? 'the model sent a frame that is too large'
          : 'the model broke off in its answer',
        error,
      );
    }
    const last = reader.end();
    if (last !== undefined && (await this.#take([last]))) return await this.#finish();
    // Some servers end without the last frame: the reasons to finish say whether the answer is whole.
    if (!this.#frames.isComplete || !this.#frames.isAnswer)
      throw failureInText(Buffer.concat(begin).toString('utf8')) ?? backendFailed('the model broke off in its answer');
    await this.#finish();
  }

  /** @returns whether the stream is at its end @throws InferenceError when the backend reports a failure */
  async #take(events: readonly SseEvent[]): Promise<boolean> {
    let text = '';
    let step: Step | undefined;
    for (const { data, isError } of events) {
      step = isError ? { kind: 'error', failure: failureOfErrorEvent(data) } : this.#frames.take(data);
      if (step.kind === 'done' || step.kind === 'error') break;
      if (step.kind === 'pass') text += step.text;
    }
    if (text !== '') {
      if (!this.#hasPassed) {
        this.#hasPassed = true;
        this.#onFirst();
        this.#exchange.firstToken();
      }
      await this.#write(text);
      this.#exchange.progress(this.#frames.usage);
    }
    if (step?.kind === 'error') throw step.failure;
    return step?.kind === 'done';
  }

  async #finish(): Promise<void> {
    const { prepared, reply } = this.#exchange;
    if (!this.#frames.isAnswer) throw backendFailed('the model ended its stream without an answer');
    const { usage } = this.#frames;
    await finished(this.#exchange, usage);
    const told = prepared.includeUsage ? this.#frames.usageFrame(usage) : '';
    reply.raw.end(`${told}${frameOf(DONE)}`);
  }

  async #write(text: string): Promise<void> {
    const { reply, signal } = this.#exchange;
    const { raw } = reply;
    if (raw.destroyed) signal.throwIfAborted();
    if (raw.write(text)) return;
    const unread = setTimeout(() => raw.destroy(), UNREAD_MS).unref();
    try {
      // The caller's leaving ends the wait.
      await once(raw, 'drain', { signal });
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(unread);
    }
  }
}
