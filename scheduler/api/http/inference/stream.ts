// Answers that are streamed: frames of a backend become frames of the caller, no faster than the caller reads.
// Source: reference of the inference API, §4.4.
import { once } from 'node:events';
import type { Asked } from './backends.ts';
import { UNREAD_MS } from './exchange.ts';
import type { Exchange } from './exchange.ts';
import { backendFailed } from './failures.ts';
import { SseReader, TooLargeEvent } from './sse.ts';
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
    const type = String(asked.headers['content-type'] ?? '');
    if (type.includes('text/event-stream')) return await this.#passEvents(asked);
    if (!type.includes('json')) {
      asked.body.destroy();
      throw backendFailed('the model answered a stream with something else');
    }
    const answer = await this.#exchange.readJson(asked);
    const datas = this.#exchange.prepared.route === 'invoke' ? [JSON.stringify(answer)] : framesOfWhole(answer);
    await this.#take(datas);
    await this.#finish();
  }

  async #passEvents({ body }: Asked): Promise<void> {
    const reader = new SseReader();
    try {
      for await (const chunk of body as AsyncIterable<Buffer>) {
        if (await this.#take(reader.push(chunk))) return await this.#finish();
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
    if (!this.#frames.isComplete) throw backendFailed('the model broke off in its answer');
    await this.#finish();
  }

  /** @returns whether the stream is at its end @throws InferenceError when the backend reports a failure */
  async #take(datas: readonly string[]): Promise<boolean> {
    let text = '';
    let step: Step | undefined;
    for (const data of datas) {
      step = this.#frames.take(data);
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
    if (step?.kind === 'error') throw backendFailed(step.message);
    return step?.kind === 'done';
  }

  async #finish(): Promise<void> {
    const { prepared, reply } = this.#exchange;
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
