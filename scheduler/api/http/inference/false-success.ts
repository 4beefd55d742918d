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

const isGiven = (value: unknown): boolean => value !== undefined && value !== null && value !== false && value !== '';

/** The failure that a server reports in an object; undefined: it reports none. */
function reportedIn(value: JsonObject): InferenceError | undefined {
  if (!isGiven(value['error']) && value['object'] !== 'error') return undefined;
  return failureSaid(value);
}

/** A failure in the words of the server. A refusal of the request keeps the code that callers act on. */
function failureSaid(value: JsonObject): InferenceError {
  const said = saidOf(value);
  return refusalSaid(said) ?? backendFailed(said.message === '' ? FAILED : said.message);
}

function failureOfChoices(choices: readonly unknown[]): InferenceError | undefined {
  for (const choice of choices) {
    const failure = isRecord(choice) ? reportedIn(choice) : undefined;
    if (failure !== undefined) return failure;
  }
  return undefined;
}

/** The failure in an answer that came whole; undefined: it is an answer of its route. */
export function failureOfWhole(answer: JsonObject, route: Route): InferenceError | undefined {
  const reported = reportedIn(answer);
  if (reported !== undefined || route === 'invoke' || route === 'embedding') return reported;
  const choices: readonly unknown[] = Array.isArray(answer['choices']) ? answer['choices'] : [];
  const failure = failureOfChoices(choices);
  if (failure !== undefined) return failure;
  const isAnswer = (choice: unknown): boolean =>
    isRecord(choice) && (route === 'chat' ? isRecord(choice['message']) : typeof choice['text'] === 'string');
  if (choices.length > 0 && choices.every(isAnswer)) return undefined;
  const { message } = saidOf(answer);
  return backendFailed(message === '' ? 'the model answered without a choice' : message);
}

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
  return saidOf(value).message === '' ? undefined : failureSaid(value);
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

/** The failure in a text that was sent as a stream and has no event; undefined: it tells of none. */
export function failureInText(text: string): InferenceError | undefined {
  const value = objectIn(text);
  return value && failureOfFrame(value, false);
}

function objectIn(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
