// Frames of a streamed answer: those of a backend become those of the caller, with the id of the catalog in place of
// the name at the backend, and with usage only where the caller asked for it. Pure. Source: reference, §4.4.
import type { TokenUsage } from '../../../domain/inference.ts';
import { itemTextsOf, memberText, withMembers } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import type { InferenceError } from './errors.ts';
import { backendFailed } from './failures.ts';
import { failureInText, failureOfFrame } from './false-success.ts';
import type { JsonDocument, JsonObject } from './fields.ts';
import { tokensOf } from '../../../domain/serving.ts';
import { reportedTokens } from './prepared.ts';

export const DONE = '[DONE]';
export const frameOf = (data: string): string => `data: ${data.replaceAll('\n', '\ndata: ')}\n\n`;
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
  /** The same as text. */
  readonly reportedText: string | undefined;
}

export class StreamFrames {
  readonly #model: string;
  readonly #includeUsage: boolean;
  readonly #promptTokens: number;
  readonly #isCustom: boolean;
  #reported: JsonObject | undefined;
  #reportedText: string | undefined;
  #characters = 0;
  #contentFrames = 0;
  /** Choices that have begun and not finished. */
  readonly #open = new Set<number>();
  #hasChoices = false;
  #hasFinished = false;
  /** The last frame, for the frame of usage. */
  #last = '{}';

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
    if (data.trim() === DONE) return { kind: 'done' };
    let value: unknown;
    try {
      value = JSON.parse(data);
    } catch {
      return { kind: 'error', failure: backendFailed('the model sent a frame that is no JSON') };
    }
    if (!isRecord(value))
      return {
        kind: 'error',
        failure: failureInText(data) ?? backendFailed('the model sent a frame that is no object'),
      };
    const failure = failureOfFrame(value, this.#isCustom);
    if (failure !== undefined) return { kind: 'error', failure };
    if (!this.#isCustom) return this.#frame(data, value);
    this.#report(data, value);
    this.#characters += data.length;
    this.#contentFrames += 1;
    return { kind: 'pass', text: frameOf(data) };
  }

  #report(data: string, { usage }: JsonObject): void {
    if (!isRecord(usage)) return;
    this.#reported = usage;
    this.#reportedText = memberText(data, 'usage');
  }

  #frame(data: string, value: JsonObject): Step {
    this.#report(data, value);
    const choices: readonly unknown[] = Array.isArray(value['choices']) ? value['choices'] : [];
    if (choices.length === 0 && isRecord(value['usage'])) return { kind: 'nothing' };
    for (const choice of choices) if (isRecord(choice)) this.#count(choice);
    const set = { model: JSON.stringify(this.#model), ...(this.#includeUsage ? { usage: 'null' } : {}) };
    this.#last = withMembers(data, { set, keeps: (name) => name !== 'usage' });
    return { kind: 'pass', text: frameOf(this.#last) };
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
      reportedText: this.#reportedText,
    };
  }

  /** The frame with the usage, which comes last before the end. */
  usageFrame(usage: Usage): string {
    const set = { model: JSON.stringify(this.#model), choices: '[]', usage: usageText(usage) };
    return frameOf(withMembers(this.#last, { set }));
  }
}

/** Usage as callers read it: what the backend reported, with the numbers that were settled. */
export function usageText({ promptTokens, completionTokens, estimated, reported, reportedText = '{}' }: Usage): string {
  const settled = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    ...(estimated ? { estimated: true } : {}),
  };
  const changed = Object.entries(settled).filter(([name, value]) => !Object.is(reported?.[name], value));
  return withMembers(reportedText, {
    set: Object.fromEntries(changed.map(([name, value]) => [name, JSON.stringify(value)])),
  });
}

/** The frames of an answer that came whole: a caller asked a model that does not stream for a stream. */
export function framesOfWhole({ text, value }: JsonDocument, isChat: boolean): readonly string[] {
  const object = JSON.stringify(isChat ? 'chat.completion.chunk' : 'text_completion');
  const common = withMembers(text, { set: { object }, keeps: (name) => name !== 'choices' && name !== 'usage' });
  const frameWith = (choices: string): string => withMembers(common, { set: { choices: `[${choices}]` } });
  const frames: string[] = [];
  for (const choice of itemTextsOf(memberText(text, 'choices') ?? '[]')) {
    if (!isChat) {
      frames.push(frameWith(choice));
      continue;
    }
    const delta = withIndexes(memberText(choice, 'message') ?? '{}');
    const reason = memberText(choice, 'finish_reason') ?? 'null';
    const set = { delta, finish_reason: 'null' };
    frames.push(frameWith(withMembers(choice, { set, keeps: (name) => name !== 'message' })));
    const index = memberText(choice, 'index') ?? '0';
    frames.push(frameWith(`{"index":${index},"delta":{},"finish_reason":${reason === 'null' ? '"stop"' : reason}}`));
  }
  const usage = memberText(text, 'usage');
  if (isRecord(value['usage']) && usage !== undefined)
    frames.push(withMembers(common, { set: { choices: '[]', usage } }));
  return frames;
}

/** Tool calls of a frame have an index, those of a message have none. */
function withIndexes(message: string): string {
  const calls = memberText(message, 'tool_calls');
  if (calls?.startsWith('[') !== true) return message;
  const indexed = itemTextsOf(calls).map((call, place) =>
    !call.startsWith('{') || memberText(call, 'index') !== undefined
      ? call
      : withMembers(call, { set: { index: String(place) } }),
  );
  return withMembers(message, { set: { tool_calls: `[${indexed.join(',')}]` } });
}
