// Frames of a streamed answer: those of a backend become those of the caller, with the id of the catalog in place of
// the name at the backend, and with usage only where the caller asked for it. Pure. Source: reference, §4.4.
import type { TokenUsage } from '../../../domain/inference.ts';
import { isRecord } from '#shared/json.ts';
import type { InferenceError } from './errors.ts';
import { backendFailed } from './failures.ts';
import { failureOfFrame } from './false-success.ts';
import type { JsonObject } from './fields.ts';
import { tokensOf } from '../../../domain/serving.ts';
import { reportedTokens } from './prepared.ts';

export const DONE = '[DONE]';
export const frameOf = (data: string): string => `data: ${data}\n\n`;
export const PING = ': ping\n\n';

/** Result of one event: text for the caller, the end of the stream, or an error that the backend reports. */
export type Step =
  | { readonly kind: 'pass'; readonly text: string }
  | { readonly kind: 'nothing' }
  | { readonly kind: 'done' }
  | { readonly kind: 'error'; readonly failure: InferenceError };

export interface Usage extends TokenUsage {
  /** As the backend reported it; undefined: it reported none. */
  readonly reported: JsonObject | undefined;
}

export class StreamFrames {
  readonly #model: string;
  readonly #includeUsage: boolean;
  readonly #promptTokens: number;
  readonly #isCustom: boolean;
  #reported: JsonObject | undefined;
  #characters = 0;
  #contentFrames = 0;
  /** Choices that have begun and not finished. */
  readonly #open = new Set<number>();
  #hasChoices = false;
  #hasFinished = false;
  /** The last frame, for the frame of usage. */
  #last: JsonObject = {};

  constructor(options: {
    readonly model: string;
    readonly includeUsage: boolean;
    readonly promptTokens: number;
    /** Frames are the model's own: they pass as they are. */
    readonly isCustom?: boolean;
  }) {
    this.#model = options.model;
    this.#includeUsage = options.includeUsage;
    this.#promptTokens = options.promptTokens;
    this.#isCustom = options.isCustom === true;
  }

  /** Every choice that began has its reason to finish: nothing is missing but the end. */
  get isComplete(): boolean {
    return this.#isCustom || (this.#hasChoices && this.#open.size === 0);
  }

  /** The frames so far are an answer, if only one without a word: some of it came, or a choice has finished. */
  get isAnswer(): boolean {
    return this.hasOutput || this.#hasFinished;
  }

  /** Takes the data of an event of the backend. */
  take(data: string): Step {
    if (data === DONE) return { kind: 'done' };
    let value: unknown;
    try {
      value = JSON.parse(data);
    } catch {
      return { kind: 'error', failure: backendFailed('the model sent a frame that is no JSON') };
    }
    if (!isRecord(value)) return { kind: 'error', failure: backendFailed('the model sent a frame that is no object') };
    const failure = failureOfFrame(value, this.#isCustom);
    if (failure !== undefined) return { kind: 'error', failure };
    if (!this.#isCustom) return this.#frame(value);
    if (isRecord(value['usage'])) this.#reported = value['usage'];
    this.#characters += data.length;
    this.#contentFrames += 1;
    return { kind: 'pass', text: frameOf(JSON.stringify(value)) };
  }

  #frame(value: JsonObject): Step {
    if (isRecord(value['usage'])) this.#reported = value['usage'];
    const choices: readonly unknown[] = Array.isArray(value['choices']) ? value['choices'] : [];
    if (choices.length === 0 && isRecord(value['usage'])) return { kind: 'nothing' };
    for (const choice of choices) if (isRecord(choice)) this.#count(choice);
    const { usage: _usage, ...rest } = value;
    const frame = { ...rest, model: this.#model, ...(this.#includeUsage ? { usage: null } : {}) };
    this.#last = frame;
    return { kind: 'pass', text: frameOf(JSON.stringify(frame)) };
  }

  #count(choice: JsonObject): void {
    this.#hasChoices = true;
    const index = typeof choice['index'] === 'number' ? choice['index'] : 0;
    if (typeof choice['finish_reason'] === 'string') {
      this.#open.delete(index);
      this.#hasFinished = true;
    } else this.#open.add(index);
    const before = this.#characters;
    const { delta, text } = choice;
    if (typeof text === 'string') this.#characters += text.length;
    if (isRecord(delta)) {
      for (const part of [delta['content'], delta['reasoning_content'], delta['refusal']])
        if (typeof part === 'string') this.#characters += part.length;
      if (delta['tool_calls'] !== undefined) this.#characters += JSON.stringify(delta['tool_calls']).length;
    }
    if (this.#characters > before) this.#contentFrames += 1;
  }

  /** Something of the answer has passed. */
  get hasOutput(): boolean {
    return this.#contentFrames > 0;
  }

  /** Usage so far: as reported, else estimated. Most engines send a frame for each token. */
  get usage(): Usage {
    const reported = this.#reported;
    const prompt = reportedTokens(reported?.['prompt_tokens']);
    const completion = reportedTokens(reported?.['completion_tokens']);
    return {
      promptTokens: prompt ?? this.#promptTokens,
      completionTokens: completion ?? Math.max(this.#contentFrames, tokensOf(this.#characters)),
      estimated: prompt === undefined || completion === undefined,
      reported,
    };
  }

  /** The frame with the usage, which comes last before the end. */
  usageFrame(usage: Usage): string {
    const { choices: _choices, usage: _usage, ...common } = this.#last as Record<string, unknown>;
    return frameOf(JSON.stringify({ ...common, model: this.#model, choices: [], usage: usageObject(usage) }));
  }
}

/** Usage as callers read it. */
export function usageObject({ promptTokens, completionTokens, estimated, reported }: Usage): JsonObject {
  return {
    ...reported,
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    ...(estimated ? { estimated: true } : {}),
  };
}

/** The frames of an answer that came whole: a caller asked a model that does not stream for a stream. */
export function framesOfWhole(answer: JsonObject, isChat: boolean): readonly string[] {
  const { choices, usage, ...common } = answer;
  const object = isChat ? 'chat.completion.chunk' : 'text_completion';
  const frames: JsonObject[] = [];
  for (const choice of Array.isArray(choices) ? (choices as readonly unknown[]) : []) {
    if (!isRecord(choice)) continue;
    const { message, finish_reason: reason, ...rest } = choice;
    if (!isChat) {
      frames.push({ ...common, object, choices: [choice] });
      continue;
    }
    const delta = isRecord(message) ? withIndexes(message) : {};
    frames.push({ ...common, object, choices: [{ ...rest, delta, finish_reason: null }] });
    frames.push({
      ...common,
      object,
      choices: [{ index: rest['index'] ?? 0, delta: {}, finish_reason: reason ?? 'stop' }],
    });
  }
  if (isRecord(usage)) frames.push({ ...common, object, choices: [], usage });
  return frames.map((frame) => JSON.stringify(frame));
}

/** Tool calls of a frame have an index, those of a message have none. */
function withIndexes(message: JsonObject): JsonObject {
  const calls = message['tool_calls'];
  if (!Array.isArray(calls)) return message;
  return {
    ...message,
    tool_calls: (calls as readonly unknown[]).map((call, index) => (isRecord(call) ? { index, ...call } : call)),
  };
}
