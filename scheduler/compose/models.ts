// Models of hosted inference: the catalog in memory, and the service behind its routes.
import { MOST_MODELS } from '#shared/domain/models.ts';
import { ExternalServers } from '../api/http/inference/external.ts';
import { KeptAnswers } from '../stores/queues/kept-answers.ts';
import { ModelCatalog } from '../workspaces/models/catalog.ts';
import { ModelService } from '../workspaces/models/service.ts';
import type { Events } from './events.ts';
import type { Identity } from './identity.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Webhooks } from './webhooks.ts';

export interface ModelParts {
  readonly modelCatalog: ModelCatalog;
  readonly models: ModelService;
  /** Servers elsewhere that models have behind them; closed with the process. */
  readonly externalServers: ExternalServers;
  /** Answers of calls under idempotency keys. */
  readonly keptAnswers: KeptAnswers;
}

export function openModels(
  { db, clock, general, keys }: Infrastructure,
  { invalidation, secrets }: Identity,
  { urlProblem, rules, lookups }: Pick<Webhooks, 'urlProblem' | 'rules' | 'lookups'>,
  { writer: events }: Pick<Events, 'writer'>,
): ModelParts {
  const modelCatalog = new ModelCatalog({ db, invalidation, most: MOST_MODELS });
  return {
    modelCatalog,
    models: new ModelService({ db, events, catalog: modelCatalog, urlProblem, clock }),
    keptAnswers: new KeptAnswers(general, keys),
    externalServers: new ExternalServers({ rules, lookups, secrets, monotonicMs: () => clock.monotonicMs() }),
  };
}
