// Models of hosted inference: the catalog in memory, and the service behind its routes.
import { MOST_MODELS } from '#shared/api/rest/models.ts';
import { ModelCatalog } from '../workspaces/models/catalog.ts';
import { ModelService } from '../workspaces/models/service.ts';
import type { Events } from './events.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Webhooks } from './webhooks.ts';

export interface ModelParts {
  readonly modelCatalog: ModelCatalog;
  readonly models: ModelService;
}

export function openModels(
  { db, clock }: Infrastructure,
  { invalidation }: Identity,
  { urlProblem }: Pick<Webhooks, 'urlProblem'>,
  { writer: events }: Pick<Events, 'writer'>,
): ModelParts {
  const modelCatalog = new ModelCatalog({ db, invalidation, most: MOST_MODELS });
  return { modelCatalog, models: new ModelService({ db, events, catalog: modelCatalog, urlProblem, clock }) };
}
