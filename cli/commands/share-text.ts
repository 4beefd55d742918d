// A workspace's share as text.
import { objectField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note } from '../print.ts';

/** Rows of market, guarantee and limit. */
export function shareRows(share: JsonObject): readonly (readonly [string, string, string])[] {
  const guaranteed = objectField(share, 'guaranteed');
  const limits = objectField(share, 'limits');
  const markets = [...new Set([...Object.keys(guaranteed), ...Object.keys(limits)])].toSorted();
  return markets.map((market) => [market, numberText(guaranteed[market]) || '-', numberText(limits[market]) || 'none']);
}

/** The share in a few words, such as `weight 2, H100 16 to 32`; empty: the default. */
export function shareText(share: JsonObject): string {
  const weight = numberText(share['weight']);
  const markets = shareRows(share).map(([market, least, most]) => {
    if (most === 'none') return `${market} from ${least}`;
    return least === '-' ? `${market} up to ${most}` : `${market} ${least} to ${most}`;
  });
  return [...(weight === '' || weight === '1' ? [] : [`weight ${weight}`]), ...markets].join(', ');
}

export const numberText = (value: unknown): string => (typeof value === 'number' ? String(value) : '');

/** Prints what the scheduler warns of, beside the answer. */
export function showWarnings({ warnings }: JsonObject): void {
  for (const warning of Array.isArray(warnings) ? warnings : []) if (typeof warning === 'string') note(warning);
}
