import { Type } from 'typebox';
import type { Static } from 'typebox';
import { nullable } from '../fields.ts';
import { AppRecord } from './app-record.ts';
import { DeploymentRecord } from './deployments.ts';
import { Count, listOf } from './lists.ts';
import { PAGE, QueryText } from './query.ts';
import { ServingRecord } from './serving.ts';
import { StubRecord } from './stubs.ts';

/** An app with its newest deployment, or with its newest stub while it has no deployment. */
export const AppWithLatest = Type.Object({
  ...AppRecord.properties,
  deployment: nullable(DeploymentRecord),
  stub: nullable(StubRecord),
  url: Type.Optional(Type.String({ description: 'absent: nothing was made in it' })),
  invoke_url: Type.Optional(Type.String()),
  pool_name: Type.String({ description: 'empty: the default' }),
  running_containers: Count('of its latest stub; 0 where one app is read'),
  is_service: Type.Boolean(),
  serving: nullable(ServingRecord),
});
export type AppWithLatest = Static<typeof AppWithLatest>;

export const AppQuery = Type.Object({ name: QueryText('part of the name, in any case'), ...PAGE });
export type AppQuery = Static<typeof AppQuery>;

export const AppList = listOf(AppRecord);
export const AppsWithLatest = listOf(AppWithLatest);
