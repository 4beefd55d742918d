// Conditions and ranges of a download, by RFC 9110 (13.2.2, 14.2). Pure.

export interface DownloadHeaders {
  readonly range?: string | undefined;
  readonly 'if-range'?: string | undefined;
  readonly 'if-match'?: string | undefined;
  readonly 'if-none-match'?: string | undefined;
}

/** First and last byte, both included. */
export interface ByteRange {
  readonly first: number;
  readonly last: number;
}

export type DownloadDecision =
  | { readonly kind: 'whole' }
  | { readonly kind: 'part'; readonly range: ByteRange }
  | { readonly kind: 'not-modified' }
  | { readonly kind: 'precondition-failed' }
  | { readonly kind: 'unsatisfiable' };

/** @param etag - strong, with its quotes */
export function decideDownload(
  method: 'GET' | 'HEAD',
  headers: DownloadHeaders,
  etag: string,
  size: number,
): DownloadDecision {
  const { range, 'if-range': ifRange, 'if-match': ifMatch, 'if-none-match': ifNoneMatch } = headers;
  if (ifMatch !== undefined && !names(ifMatch, etag, 'strong')) return { kind: 'precondition-failed' };
  if (ifNoneMatch !== undefined && names(ifNoneMatch, etag, 'weak')) return { kind: 'not-modified' };
  // Ranges are defined for GET alone. If-Range with a date never matches: answers have no Last-Modified.
  if (method !== 'GET' || range === undefined || (ifRange !== undefined && ifRange.trim() !== etag)) {
    return { kind: 'whole' };
  }
  return decideRange(range, size);
}

const SINGLE = /^bytes *= *(\d*) *- *(\d*) *$/i;

/** A range that cannot be read, another unit and several ranges are ignored, as RFC 9110 permits. */
function decideRange(range: string, size: number): DownloadDecision {
  const [match, from = '', to = ''] = SINGLE.exec(range) ?? [];
  if (match === undefined || (from === '' && to === '')) return { kind: 'whole' };
  if (from === '') {
    const length = Number(to);
    if (length === 0) return { kind: 'unsatisfiable' };
    // No Content-Range can name a part of an empty object.
    if (size === 0) return { kind: 'whole' };
    return { kind: 'part', range: { first: Math.max(0, size - length), last: size - 1 } };
  }
  const first = Number(from);
  const last = to === '' ? Infinity : Number(to);
  if (last < first) return { kind: 'whole' };
  if (first >= size) return { kind: 'unsatisfiable' };
  return { kind: 'part', range: { first, last: Math.min(last, size - 1) } };
}

/** Whether a list of entity tags names this one, or all. */
function names(list: string, etag: string, how: 'strong' | 'weak'): boolean {
  return list.split(',').some((item) => {
    const tag = item.trim();
    return tag === '*' || tag === etag || (how === 'weak' && tag === `W/${etag}`);
  });
}

/** Bytes of an upload that its Content-Range names. */
export type UploadPart =
  | { readonly kind: 'bytes'; readonly first: number; readonly last: number; readonly total: number }
  | {
      readonly kind: 'ask';
      readonly total: number;
    };

const CONTENT_RANGE = /^bytes (?:(\d{1,15})-(\d{1,15})|\*)\/(\d{1,15})$/i;

/** Reads `bytes FIRST-LAST/TOTAL`, or `bytes * /TOTAL` without the space; undefined: neither. */
export function uploadPartOf(contentRange: string): UploadPart | undefined {
  const [match, from, to, of] = CONTENT_RANGE.exec(contentRange.trim()) ?? [];
  if (match === undefined) return undefined;
  const total = Number(of);
  if (from === undefined || to === undefined) return { kind: 'ask', total };
  const [first, last] = [Number(from), Number(to)];
  return first <= last && last < total ? { kind: 'bytes', first, last, total } : undefined;
}
