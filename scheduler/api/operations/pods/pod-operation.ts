// An operation on a pod or sandbox that runs. Published clients show nothing of an answer with another status than
// 200, so every failure that has a code is told as `ok: false`.
import type { Static, TObject } from 'typebox';
import { AppError } from '#shared/errors.ts';
import type { Access, ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import type { ContainerRow } from '../../../stores/store/queries/containers.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { operation } from '../operation.ts';
import type { Operation, Origin } from '../operation.ts';

export interface PodParts {
  readonly access: Pick<Access, 'find' | 'reach'>;
  readonly inside: Pick<Inside, 'ask' | 'read' | 'write'>;
  /** The container was used just now. */
  readonly used: (containerId: string) => void;
}

/** Failures that may be gone in a moment. */
const PASSING: ReadonlySet<string> = new Set([
  'machine_away',
  'machine_silent',
  'deadline_exceeded',
  'too_many_connections',
  'database_unavailable',
  'database_timeout',
  'database_busy',
]);

/** Time for a container to run, for all operations but `connect`. */
const RUNNING_WITHIN_MS = 60_000;
/** The same, with time for the operation itself. */
const WITHIN_MS = 90_000;

export interface PodOperationDefinition<Request extends TObject, Response extends TObject> {
  readonly name: string;
  /** Method and path below `/pods/{containerId}`: `POST /exec`. */
  readonly route: string;
  readonly request: Request;
  readonly response: Response;
  /** Time for the container to run. */
  readonly runningWithinMs?: number;
  /** Most bytes of the request; absent: as for all operations. */
  readonly mostBytes?: number;
  /** Time for the whole operation. */
  readonly withinMs?: number;
  /** Says what is wrong with the request, before anything is asked; undefined: nothing. */
  readonly problem?: (request: Static<Request>) => string | undefined;
  /** The answer, where the container need not run for it. */
  readonly ofRow?: (row: ContainerRow, request: Static<Request>) => Answer<Response> | undefined;
  /**
   * Work that needs no running container, before the wait for it.
   * @returns a text that is added to a later failure
   */
  readonly first?: (row: ContainerRow, request: Static<Request>) => Promise<string>;
  readonly handle: (container: ReachedContainer, request: Static<Request>, origin: Origin) => Promise<Answer<Response>>;
}

/** Fields of an answer beside `ok` and `errorMsg`. */
type Answer<Response extends TObject> = Omit<Static<Response>, 'ok' | 'errorMsg'>;

export function podOperation<Request extends TObject, Response extends TObject>(
  { access, used }: Pick<PodParts, 'access' | 'used'>,
  definition: PodOperationDefinition<Request, Response>,
): Operation {
  const { name, route, request, response, problem, handle } = definition;
  return operation({
    name,
    http: route.replace(' ', ' /pods/{containerId}'),
    scope: 'full',
    request,
    response,
    withinMs: definition.withinMs ?? WITHIN_MS,
    ...(definition.mostBytes === undefined ? {} : { mostBytes: definition.mostBytes }),
    handle: async (caller: Caller, asked, origin) => {
      const text = problem?.(asked);
      if (text !== undefined) return refused<Response>(text);
      const { containerId, stubId = '' } = asked as { readonly containerId: string; readonly stubId?: string };
      const workspaceId = caller.isAdmin ? null : caller.workspaceId;
      const reaching = { workspaceId, onlyPods: true, stubId };
      let done = '';
      try {
        const known = definition.ofRow?.(await access.find(containerId, reaching), asked);
        if (known !== undefined) return answered<Response>(known);
        if (definition.first !== undefined)
          done = await definition.first(await access.find(containerId, reaching), asked);
        const withinMs = definition.runningWithinMs ?? RUNNING_WITHIN_MS;
        const container = await access.reach(containerId, { ...reaching, withinMs });
        used(container.containerId);
        return answered<Response>(await handle(container, asked, origin));
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        return refused<Response>(
          `${error.message}${done}`,
          PASSING.has(error.code) || error.details['passes'] === true,
        );
      }
    },
  });
}

const answered = <Response extends TObject>(answer: Answer<Response>): Static<Response> =>
  ({ ok: true, errorMsg: '', ...answer }) as Static<Response>;

/**
 * The refusing answer: absent fields are empty, and a process that never ran has not ended.
 * @param passes - the failure may be gone in a moment, for transports whose clients repeat a request
 */
const refused = <Response extends TObject>(errorMsg: string, passes = false): Static<Response> =>
  ({ ok: false, errorMsg, passes }) as unknown as Static<Response>;
