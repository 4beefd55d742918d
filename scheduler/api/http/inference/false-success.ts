// Failures inside answers with the status of success. Several servers and the proxies before them answer 200 with an
// error, with an empty list of choices, or with a page: a client would take each for an empty answer. Pure.
import { isRecord } from '#shared/json.ts';
import type { InferenceError } from './errors.ts';
import { backendFailed, refusalSaid, saidOf } from './failures.ts';
import type { JsonObject } from './fields.ts';
import type { Route } from './prepared.ts';
import { SseReader } from './sse.ts';
import type { SseEvent } from './sse.ts';

/** For servers that report a failure and say nothing about it. */
const FAILED = 'the model failed';

/** Whether the field `error` tells of a failure. A number may be a measure, and zero says that all is well. */
function tellsOfFailure(error: unknown): boolean {
  if (typeof error === 'string') return error !== '';
  if (Array.isArray(error)) return error.length > 0;
  return isRecord(error) ? Object.keys(error).length > 0 : error === true;
}

/** Reasons to finish of choices that did not. */
const UNFINISHED: ReadonlySet<unknown> = new Set(['error', 'abort']);

/** The failure that a server reports in an object; undefined: it reports none. */
function reportedIn(value: JsonObject): InferenceError | undefined {
  if (!tellsOfFailure(value['error']) && value['object'] !== 'error') return undefined;
  return failureSaid(value);
}

/** A failure in the words of the server. A refusal of the request keeps the code that callers act on. */
function failureSaid(value: JsonObject): InferenceError {
  const said = saidOf(value);
  return refusalSaid(said) ?? backendFailed(said.message === '' ? FAILED : said.message);
}

function failureOfChoices(choices: readonly unknown[]): InferenceError | undefined {
  for (const choice of choices) {
    if (!isRecord(choice)) continue;
    const failure = reportedIn(choice);
    if (failure !== undefined) return failure;
    if (UNFINISHED.has(choice['finish_reason'])) return backendFailed(FAILED);
  }
  return undefined;
}

/** The failure in an answer that came whole; undefined: it is an answer of its route. */
export function failureOfWhole(answer: JsonObject, route: Route): InferenceError | undefined {
  const reported = reportedIn(answer);
  if (reported !== undefined || route === 'invoke') return reported;
  if (route === 'embedding') return Array.isArray(answer['data']) ? undefined : failureOfWords(answer);
  const choices: readonly unknown[] = Array.isArray(answer['choices']) ? answer['choices'] : [];
  const failure = failureOfChoices(choices);
  if (failure !== undefined) return failure;
  const isAnswer = (choice: unknown): boolean =>
    isRecord(choice) && (route === 'chat' ? isRecord(choice['message']) : typeof choice['text'] === 'string');
  if (choices.length > 0 && choices.every(isAnswer)) return undefined;
  return failureOfWords(answer) ?? backendFailed('the model answered without a choice');
}

/** The failure in an object that has no answer; undefined: it says nothing. */
const failureOfWords = (value: JsonObject): InferenceError | undefined =>
  saidOf(value).message === '' ? undefined : failureSaid(value);

/**
 * The failure in a frame of a stream; undefined: the frame is part of an answer.
 * @param isCustom - the frames have the model's own form
 */
export function failureOfFrame(value: JsonObject, isCustom: boolean): InferenceError | undefined {
  const reported = reportedIn(value);
  if (reported !== undefined || isCustom) return reported;
  const { choices } = value;
  if (Array.isArray(choices)) return failureOfChoices(choices);
  // A frame without choices has nothing for a client but what it says.
  return failureOfWords(value);
}

/** The failure that a server tells by an event of the name `error`, in JSON or in words. */
export function failureOfErrorEvent(data: string): InferenceError {
  const value = objectIn(data);
  return value === undefined ? failureSaid({ message: data }) : failureSaid(value);
}

/** The failure in events where one JSON object was expected; undefined: the text has no such event. */
export function failureInEvents(text: string): InferenceError | undefined {
  const reader = new SseReader();
  const events: SseEvent[] = [...reader.push(Buffer.from(text, 'utf8'))];
  const last = reader.end();
  for (const { data, isError } of last === undefined ? events : [...events, last]) {
    const value = objectIn(data);
    const failure = isError ? failureOfErrorEvent(data) : value && failureOfFrame(value, false);
    if (failure !== undefined) return failure;
  }
  return undefined;
}

/** The failure in JSON that is no answer, such as a list of an error; undefined: it tells of none. */
export function failureInText(text: string): InferenceError | undefined {
  const value = objectIn(text);
  return value && failureOfFrame(value, false);
}

/** The object that a text is, or the first one in its list: some servers put an error in a list. */
function objectIn(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const one = Array.isArray(value) ? (value as readonly unknown[])[0] : value;
    return isRecord(one) ? one : undefined;
  } catch {
    return undefined;
  }
}
