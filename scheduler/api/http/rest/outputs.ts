import { timestampOf } from '#shared/api/fields.ts';
import { OutputAddress, OutputAddressQuery, OutputRecord, SaveOutput } from '#shared/api/rest/outputs.ts';
import { AppError } from '#shared/errors.ts';
import { wholeAddress } from '../../../stores/objects/signatures.ts';
import { ADDRESS_SECONDS, MOST_ADDRESS_SECONDS } from '../../../tasks/outputs/service.ts';
import type { OutputOwner, Outputs } from '../../../tasks/outputs/service.ts';
import { NOT_LIMITED, restRoute } from './route.ts';
import type { RestRequest, RestRoute } from './route.ts';

export interface OutputRouteParts {
  readonly outputs: Pick<Outputs, 'save' | 'sign' | 'ofTask' | 'ofTasks'>;
  /** Start of addresses for anybody: not the name that containers call. */
  readonly publicBaseOf: (request: RestRequest['http']) => string;
}

/** Files that tasks saved. A container saves those of its own stub's tasks. */
export function outputRoutes(parts: OutputRouteParts): readonly RestRoute[] {
  return [
    restRoute({
      http: 'POST /output/{ws}',
      summary: 'Keep an uploaded object as an output of a task',
      scope: 'full',
      containers: true,
      status: 201,
      body: SaveOutput,
      answer: OutputRecord,
      errors: ['task_not_found', 'object_not_found', 'too_many_outputs'],
      handle: async (request) => {
        const { task_id: taskId, object_id: objectId, name } = request.body;
        const row = await parts.outputs.save(ownerOf(request), { taskId, objectId, name });
        return { id: row.id, task_id: row.taskId, name: row.name, created_at: timestampOf(row.createdAtMs) };
      },
    }),
    restRoute({
      http: 'GET /output/{ws}/{outputId}/url',
      grants: NOT_LIMITED,
      summary: 'A signed address that gives the bytes of an output',
      scope: 'full',
      containers: true,
      query: OutputAddressQuery,
      answer: OutputAddress,
      errors: ['output_not_found'],
      handle: async (request) => {
        const seconds = request.query.expires_in ?? ADDRESS_SECONDS;
        if (seconds < 1 || seconds > MOST_ADDRESS_SECONDS) {
          throw new AppError('invalid_query', `query parameter expires_in must be from 1 to ${MOST_ADDRESS_SECONDS}`);
        }
        const signed = await parts.outputs.sign(ownerOf(request), request.params['outputId'] ?? '', seconds);
        return {
          id: signed.row.id,
          task_id: signed.row.taskId,
          name: signed.row.name,
          url: wholeAddress(signed.path, parts.publicBaseOf(request.http)),
          expires_at: timestampOf(signed.untilMs),
          size: signed.size,
          sha256: signed.sha256,
        };
      },
    }),
  ];
}

const ownerOf = ({ workspaceId, caller }: Pick<RestRequest, 'workspaceId' | 'caller'>): OutputOwner => ({
  workspaceId,
  container: caller.container,
});
