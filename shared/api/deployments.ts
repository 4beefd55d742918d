import { Type } from 'typebox';
import type { Static } from 'typebox';
import { beyondDocument, Filters, Flag, ListLimit, Text, Timestamp, Uint32 } from './fields.ts';

/** Whether calls of the name reach a version yet. */
export const Rollout = Type.Object({
  state: Text({ description: 'waiting, done, failed, stopped, superseded or withdrawn' }),
  why: Text({ description: 'why it ended so; empty: it waits, or nothing had to wait' }),
  since: Timestamp(),
  until: Timestamp({ description: 'when calls reach the version at the latest; null: it does not wait' }),
});
export type Rollout = Static<typeof Rollout>;

export const Deployment = Type.Object({
  id: Text(),
  name: Text(),
  active: Flag(),
  stubId: Text(),
  stubType: Text(),
  stubName: Text(),
  version: Uint32(),
  workspaceId: Text(),
  workspaceName: Text(),
  createdAt: Timestamp(),
  updatedAt: Timestamp(),
  appId: Text(),
  serving: beyondDocument(Flag({ description: 'calls of the name reach this version' })),
  rollout: beyondDocument(Text({ description: "its rollout's state; empty: it had none" })),
  url: beyondDocument(
    Text({ description: 'where it is called: by its name where it serves that, else by its version' }),
  ),
});
export type Deployment = Static<typeof Deployment>;

export const ListDeploymentsRequest = Type.Object({ filters: Filters(), limit: ListLimit() });
export type ListDeploymentsRequest = Static<typeof ListDeploymentsRequest>;

export const ListDeploymentsResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  deployments: Type.Array(Deployment),
});
export type ListDeploymentsResponse = Static<typeof ListDeploymentsResponse>;

/** The request of StopDeployment, StartDeployment and DeleteDeployment. */
export const OneDeploymentRequest = Type.Object({ id: Text() });
export type OneDeploymentRequest = Static<typeof OneDeploymentRequest>;

export const DeleteDeploymentResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  cancelledTasks: beyondDocument(
    Uint32({
      description:
        'tasks, waiting or running, that were cancelled; without synchronous calls that wait at another replica',
    }),
  ),
});
export type DeleteDeploymentResponse = Static<typeof DeleteDeploymentResponse>;

export const ScaleDeploymentRequest = Type.Object({
  id: Text(),
  containers: Uint32({ description: 'always so many; 0: none until work comes' }),
});
export type ScaleDeploymentRequest = Static<typeof ScaleDeploymentRequest>;
