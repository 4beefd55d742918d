// The key of a call's flow control, in the header X-Longshore-Key. Pure.
import { keyProblem } from '../../../domain/flow.ts';

export const FLOW_KEY_PROBLEM = `X-Longshore-Key ${keyProblem('')}; others than visible ASCII characters are percent-encoded`;

/**
 * The key that the header names.
 * @returns undefined: no header; null: no usable key
 */
export function flowKeyOf(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
): string | undefined | null {
  const header = headers['x-longshore-key'];
  if (header === undefined) return undefined;
  if (typeof header !== 'string') return null;
  try {
    const key = decodeURIComponent(header.trim());
    return keyProblem(key) === undefined ? key : null;
  } catch {
    return null;
  }
}
