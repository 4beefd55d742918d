// Calls of deployments and models through the passage. An answer is bytes with a type: nothing of it is run.
import { sessionEnd, sendBelow } from './client.ts';

const CALLS = '/api/calls';

/** Bytes of an answer that are read; more are left to a terminal. */
export const MOST_READ = 32 * 1024 * 1024;

export interface Sent {
  readonly method?: 'GET' | 'POST';
  /** JSON. */
  readonly body?: string;
  readonly signal?: AbortSignal;
}

/** The answer to a call, whatever its status. @param path - such as `/endpoint/NAME` @throws ApiError */
export async function callThrough(path: string, { method = 'POST', body, signal }: Sent): Promise<Response> {
  const answer = await sendBelow(`${CALLS}${path}`, {
    method,
    ...(body === undefined ? {} : { body, headers: { 'content-type': 'application/json' } }),
    ...(signal === undefined ? {} : { signal }),
  });
  if (answer.status === 401) {
    const said = (await answer
      .clone()
      .json()
      .catch(() => ({}))) as { readonly code?: unknown; readonly error?: { readonly code?: unknown } | string };
    if (said.code === 'unauthorized' || (typeof said.error === 'object' && said.error.code === 'invalid_api_key'))
      sessionEnd.tell();
  }
  return answer;
}

/** Pieces of an answer as they come. @throws Error when there are more bytes than a page should hold */
export async function* piecesOf(answer: Response): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const reader = answer.body?.getReader();
  let bytes = 0;
  try {
    for (;;) {
      // Safari has no other way to read a body in pieces.
      const piece = await reader?.read();
      if (piece?.value === undefined) return;
      bytes += piece.value.byteLength;
      if (bytes > MOST_READ) throw new Error(`the answer has more than ${MOST_READ / 2 ** 20} MiB: call by curl`);
      yield piece.value;
    }
  } finally {
    await reader?.cancel().catch(() => undefined);
  }
}
