// A request of any route, checked against its model, and what serves it when its answer comes whole.
import type { ModelRow } from '../../../stores/store/queries/models.ts';
import type { ModelCall } from './call.ts';
import { prepareChat } from './chat-request.ts';
import { prepareCompletion } from './completion-request.ts';
import { prepareEmbeddings } from './embedding-request.ts';
import type { JsonDocument } from './fields.ts';
import { prepareInvoke } from './invoke-request.ts';
import type { Prepared, Route } from './prepared.ts';
import { serveEmbeddings, serveWhole } from './whole.ts';

export interface Checked {
  readonly prepared: Prepared;
  readonly serveWhole: (call: ModelCall) => Promise<void>;
}

/**
 * Checks a request.
 * @param wantsEvents - the caller accepts server-sent events alone
 * @throws InferenceError 400
 */
export function checkRequest(route: Route, body: JsonDocument, model: ModelRow, wantsEvents: boolean): Checked {
  if (route === 'embedding' || (route === 'invoke' && model.type === 'embedding')) {
    const embeddings = prepareEmbeddings(body, model);
    return { prepared: embeddings.prepared, serveWhole: (call) => serveEmbeddings(call, embeddings) };
  }
  return { prepared: preparedBy(route, body, model, wantsEvents), serveWhole };
}

function preparedBy(
  route: Exclude<Route, 'embedding'>,
  body: JsonDocument,
  model: ModelRow,
  wantsEvents: boolean,
): Prepared {
  switch (route) {
    case 'chat':
      return prepareChat(body, model);
    case 'completion':
      return prepareCompletion(body, model);
    case 'invoke':
      return prepareInvoke(body, model, wantsEvents);
  }
}
