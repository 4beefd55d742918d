// Flow control of a call, in the headers X-Longshore-Key and X-Longshore-Priority. Admission judges the values. Pure.
import type { FlowCall } from '../../../domain/flow.ts';
import { PRIORITY_PROBLEM } from '../../../domain/flow.ts';
import { keyProblem } from '../../../domain/flow-settings.ts';
import type { BadFlow } from '../../../tasks/admission/calls.ts';

type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

export interface BadFlowHeader {
  readonly code: BadFlow;
  readonly why: string;
}

const BAD_KEY: BadFlowHeader = {
  code: 'invalid_flow_key',
  why: `X-Longshore-Key ${keyProblem('')}; others than visible ASCII characters are percent-encoded`,
};
const BAD_PRIORITY: BadFlowHeader = { code: 'invalid_flow_priority', why: PRIORITY_PROBLEM };
const NONE: FlowCall = {};

/** Reads the headers of a call. */
export function flowHeadersOf(headers: Headers): FlowCall | BadFlowHeader {
  const { 'x-longshore-key': givenKey, 'x-longshore-priority': givenPriority } = headers;
  if (givenKey === undefined && givenPriority === undefined) return NONE;
  const key = givenKey === undefined ? undefined : decoded(givenKey);
  if (key === null) return BAD_KEY;
  const priority = givenPriority === undefined ? undefined : wholeOf(givenPriority);
  if (priority === null) return BAD_PRIORITY;
  return { ...(key === undefined ? {} : { key }), ...(priority === undefined ? {} : { priority }) };
}

function decoded(header: string | readonly string[]): string | null {
  if (typeof header !== 'string') return null;
  try {
    return decodeURIComponent(header.trim());
  } catch {
    return null;
  }
}

const wholeOf = (header: string | readonly string[]): number | null =>
  typeof header === 'string' && /^[+-]?[0-9]{1,6}$/.test(header.trim()) ? Number(header) : null;
