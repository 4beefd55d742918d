/** Every verb of the REST API, in the order of the walk (verbs.test.ts): a later one may read what others made. */
import { accessVerbs } from './rest-verbs/access.ts';
import { modelVerbs } from './rest-verbs/models.ts';
import type { RestParts } from './rest-verbs/parts.ts';
import { recordVerbs } from './rest-verbs/records.ts';
import { sharedStateVerbs } from './rest-verbs/shared-state.ts';
import { stackVerbs } from './rest-verbs/stacks.ts';
import { volumeVerbs } from './rest-verbs/volumes.ts';
import { webhookVerbs } from './rest-verbs/webhooks.ts';
import { workspaceVerbs } from './rest-verbs/workspaces.ts';
import type { Verb } from './verbs-kit.ts';

export const restVerbs = (parts: RestParts): readonly Verb[] =>
  [
    workspaceVerbs,
    recordVerbs,
    accessVerbs,
    sharedStateVerbs,
    volumeVerbs,
    modelVerbs,
    webhookVerbs,
    stackVerbs,
  ].flatMap((verbsOf) => verbsOf(parts));
