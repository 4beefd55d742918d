// Tokens of whole answers, what they cost, and the headers that say so. Pure but for the last function.
import { tokensOf } from '../../../domain/serving.ts';
import type { TokenUsage } from '../../../domain/inference.ts';
import type { ModelCall } from './call.ts';
import { memberText } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import type { JsonDocument, JsonObject } from './fields.ts';
import { decimalPrice } from './model-page.ts';
import { estimatedPrompt, reportedTokens } from './prepared.ts';
import type { CallFacts } from './prepared.ts';
import type { Usage } from './stream-frames.ts';

/** Usage of an answer: as reported, else estimated from its characters. */
export function usageOfWhole({ text, value: answer }: JsonDocument, prepared: CallFacts): Usage {
  const reported = isRecord(answer['usage']) ? answer['usage'] : undefined;
  const prompt = reportedTokens(reported?.['prompt_tokens']);
  const completion = reportedTokens(reported?.['completion_tokens']);
  return {
    promptTokens: prompt ?? estimatedPrompt(prepared),
    completionTokens: completion ?? tokensOf(charactersOf(answer)),
    estimated: prompt === undefined || completion === undefined,
    reported,
    reportedText: reported === undefined ? undefined : memberText(text, 'usage'),
  };
}

function charactersOf({ choices, ...custom }: JsonObject): number {
  if (!Array.isArray(choices)) return JSON.stringify(custom).length;
  let sum = 0;
  for (const choice of choices as readonly unknown[]) {
    if (!isRecord(choice)) continue;
    const { message, text } = choice;
    if (typeof text === 'string') sum += text.length;
    if (!isRecord(message)) continue;
    for (const part of [message['content'], message['reasoning_content'], message['refusal']])
      if (typeof part === 'string') sum += part.length;
    if (message['tool_calls'] !== undefined) sum += JSON.stringify(message['tool_calls']).length;
  }
  return sum;
}

export const usageHeaders = (usage: TokenUsage, costMicros: number): Readonly<Record<string, string>> => ({
  'x-usage-prompt-tokens': String(usage.promptTokens),
  'x-usage-completion-tokens': String(usage.completionTokens),
  'x-usage-cost': decimalPrice(costMicros, 1),
});

/** Settles a call whose answer is whole. */
export const finished = (exchange: ModelCall, { promptTokens, completionTokens, estimated }: Usage): Promise<void> =>
  exchange.settle({ promptTokens, completionTokens, estimated }, exchange.hasLeft ? 'aborted' : 'complete');
