// Explanations of a task, a container or a deployment.
import type { Explanation } from '#shared/api/explain.ts';
import type { Static } from 'typebox';
import { rest } from './client.ts';

export type Explained = Static<typeof Explanation>;

export const explain = (workspaceId: string, reference: string, abort?: AbortSignal): Promise<Explained> =>
  rest<Explained>(`/explain/${workspaceId}/${encodeURIComponent(reference)}`, { signal: abort });
