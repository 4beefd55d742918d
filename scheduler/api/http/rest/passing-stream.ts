// Events that only pass, beside the stored ones of a stream that names their kinds.
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { LiveLine, LogHub } from '../../../fleet/logs/live-logs.ts';
import { lineFrame } from '../../../fleet/logs/line-events.ts';
import { passingKindsOf } from '../../../workspaces/events/kinds.ts';
import type { PassingEvents } from '../../../workspaces/events/passing.ts';
import type { EventFilter } from '../../../workspaces/events/reads.ts';
import type { Beside, FramesBeside } from './row-stream.ts';

export interface PassingStreamParts {
  readonly events: { readonly passing: Pick<PassingEvents, 'subscribe'> };
  readonly liveLogs: { readonly hub: Pick<LogHub, 'subscribe'> };
}

/** Opens the sources of the kinds that the filter names; undefined: it names none. */
export function passingBeside(
  { events, liveLogs }: PassingStreamParts,
  workspaceId: WorkspaceId,
  filter: EventFilter,
): ((into: FramesBeside) => Promise<Beside>) | undefined {
  const kinds = passingKindsOf(filter.types);
  if (kinds.length === 0) return undefined;
  const told = kinds.filter((kind) => kind !== 'container.log');
  return async (into) => {
    const lines = kinds.includes('container.log')
      ? await liveLogs.hub.subscribe(workspaceId, aboutOf(filter), undefined, {
          take: (line: LiveLine) => into.keep(lineFrame(line)),
          failed: () => into.failed(),
        })
      : undefined;
    let leave: (() => void) | undefined;
    return {
      start: () => {
        lines?.start();
        if (told.length > 0) leave = events.passing.subscribe(workspaceId, { ...filter, types: told }, into);
      },
      resume: () => lines?.resume(),
      end: () => {
        lines?.end();
        leave?.();
      },
    };
  };
}

const aboutOf = ({ stubId, appId, taskId, containerId }: EventFilter) => ({
  ...(stubId === undefined ? {} : { stubId }),
  ...(appId === undefined ? {} : { appId }),
  ...(taskId === undefined ? {} : { taskId }),
  ...(containerId === undefined ? {} : { containerId }),
});
