// Alerts that the scheduler knows by itself, for the administrator.
import { timestampOf } from '#shared/api/fields.ts';
import { AlertList } from '#shared/api/rest/alerts.ts';
import type { AlertRecord } from '#shared/api/rest/alerts.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import type { Directory } from '../../../workspaces/deployments/directory.ts';
import type { Alerts } from '../../explain/alerts.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRoute } from './route.ts';

export interface AlertRouteParts {
  readonly alerts: Pick<Alerts, 'list'>;
  readonly directory: Pick<Directory, 'deploymentNames'>;
}

export function listAlerts({ alerts, directory }: AlertRouteParts): RestRoute {
  return restRoute({
    http: 'GET /alerts',
    tag: 'installation',
    summary: 'Alerts that the scheduler knows by itself, with what to do next (administrator)',
    scope: 'admin',
    grants: NOT_LIMITED,
    answer: AlertList,
    handle: async () => {
      const { alerts: found, total, atMs } = await alerts.list();
      const ids = found.flatMap(({ subject }) => (subject.type === 'deployment' ? [subject.id as DeploymentId] : []));
      const names = await directory.deploymentNames(ids);
      const named = (one: AlertRecord): AlertRecord => {
        const name = names.get(one.subject.id as DeploymentId);
        return name === undefined ? one : { ...one, subject: { ...one.subject, name } };
      };
      return { data: found.map(named), next: '', total, looked_at: timestampOf(atMs) ?? '' };
    },
  });
}
