// The output of a container, while its caller changes files below the working directory. A development server is served
// for as long as its caller is attached.
import { AttachToContainerRequest, AttachToContainerResponse } from '#shared/api/calls.ts';
import { AppError } from '#shared/errors.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { Places } from '#shared/places.ts';
import { isDevelopmentServer, isPod } from '../../../fleet/inside/access.ts';
import type { Access, ReachedContainer } from '../../../fleet/inside/access.ts';
import type { Inside } from '../../../fleet/inside/inside.ts';
import type { LogReads } from '../../../fleet/logs/log-service.ts';
import { SERVE_LEASE_SECONDS } from '../../../workspaces/deployments/serve-leases.ts';
import type { ServeLeases } from '../../../workspaces/deployments/serve-leases.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { attachedEntrypoint } from '../../http/containers/attached-entrypoint.ts';
import { attachedLog } from '../../http/containers/attached-log.ts';
import type { Said } from '../../http/containers/attached-log.ts';
import { FileOperations, placesOf } from '../../http/containers/file-operations.ts';
import type { FileOperation } from '../../http/containers/file-operations.ts';
import { unrouted } from '../../operations/operation.ts';
import type { UnroutedOperation } from '../../operations/operation.ts';
import { CODES, RpcStatus } from '../statuses.ts';
import { Outbox } from './outbox.ts';

export interface AttachParts {
  readonly access: Pick<Access, 'find' | 'reach'>;
  readonly inside: Pick<Inside, 'ask' | 'open' | 'write'>;
  readonly logs: LogReads;
  readonly serves: Pick<ServeLeases, 'renew'>;
  readonly log: Log;
}

/** Callers of a workspace who are attached here. */
const MOST_OF_WORKSPACE = 256;
/** Time for a container to run. */
const RUNNING_WITHIN_MS = 60_000;
/** Interval at which the lease of a development server is renewed. */
const RENEW_MS = (SERVE_LEASE_SECONDS / 3) * 1000;
/** Bytes of changes that wait for the container, and share of a change in them beside its data. */
const MOST_WAITING_BYTES = 1024 * 1024;
const CHANGE_COST_BYTES = 1024;
/** By their numbers. */
const OPS = ['WRITE', 'DELETE', 'MOVED'] as const;

type Messages = AsyncIterable<AttachToContainerRequest>;

export function attachToContainer(parts: AttachParts): UnroutedOperation {
  const places = new Places<WorkspaceId>(MOST_OF_WORKSPACE);
  return unrouted({
    name: 'AttachToContainer',
    scope: 'full',
    request: AttachToContainerRequest,
    response: AttachToContainerResponse,
    duplex: async function* (caller, messages, signal) {
      const giveBack = places.take(caller.workspaceId);
      if (giveBack === undefined)
        throw new RpcStatus(CODES.resource_exhausted, `this workspace has ${places.most} callers attached here`);
      const over = new AbortController();
      const left = AbortSignal.any([signal, over.signal]);
      try {
        const rest = messages[Symbol.asyncIterator]();
        const { value: first, done: hasNone } = await rest.next();
        if (hasNone === true || first.attachRequest === null)
          throw new RpcStatus(CODES.invalid_argument, 'the first message must be attach_request');
        const container = await reached(parts, caller, first.attachRequest.containerId, left);
        if (typeof container === 'string') return yield { output: `${container}\n`, done: true, exitCode: 1 };
        const box = new Outbox<Said>();
        show(parts, container, box, left).catch((error: unknown) => box.fail(error));
        void takeChanges(
          { [Symbol.asyncIterator]: () => rest },
          new FileOperations({ ...parts, container }, (line) => void box.put({ output: `${line}\n` })),
          parts.log,
        );
        keepServing(parts, container, left);
        for (let said = await box.next(left); said !== undefined; said = await box.next(left)) {
          yield { output: said.output, done: said.done ?? false, exitCode: said.exitCode ?? 0 };
          if (said.done === true) return;
        }
      } finally {
        over.abort();
        giveBack();
      }
    },
  });
}

/** The container once it runs; a text: why it does not. */
async function reached(
  { access }: AttachParts,
  { isAdmin, workspaceId }: Caller,
  containerId: string,
  signal: AbortSignal,
): Promise<ReachedContainer | string> {
  const reaching = { workspaceId: isAdmin ? null : workspaceId, withinMs: RUNNING_WITHIN_MS, signal };
  try {
    return await access.reach(containerId, reaching);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return error.code === 'container_not_found' ? 'Container not found' : error.message;
  }
}

/** A pod or sandbox shows what its first program prints; any other container, the lines of its log. */
async function show(
  parts: AttachParts,
  container: ReachedContainer,
  box: Outbox<Said>,
  left: AbortSignal,
): Promise<void> {
  if (isPod(container.row)) return showEntrypoint(parts, container, box, left);
  for await (const said of attachedLog({ ...parts, container }, left)) await box.put(said);
}

function showEntrypoint(
  { inside }: AttachParts,
  container: ReachedContainer,
  box: Outbox<Said>,
  left: AbortSignal,
): Promise<void> {
  return attachedEntrypoint({ inside, container }, left, (frames) => ({
    say: (said) => {
      const taken = box.put(said);
      if (taken === undefined) return;
      frames.pause();
      void taken.then(() => frames.resume());
    },
    onLost: () => box.fail(new RpcStatus(CODES.unavailable, 'the connection to the container was lost')),
  }));
}

/** Carries the caller's changes to files out, at its pace. */
async function takeChanges(messages: Messages, operations: FileOperations, log: Log): Promise<void> {
  let waiting = 0;
  try {
    for await (const { syncContainerWorkspace: asked } of messages) {
      if (asked === null) continue;
      const bytes = asked.data.length + CHANGE_COST_BYTES;
      waiting += bytes;
      const taken = operations.take(() => changeOf(asked)).then(() => (waiting -= bytes));
      // Small changes gather, so that an app is loaded anew once for many.
      if (waiting > MOST_WAITING_BYTES) await taken;
    }
  } catch (error) {
    // The caller left: its stream says so.
    log.debug({ err: error }, 'no more changes to files come');
  }
}

function changeOf({
  op: number,
  data,
  isDir,
  path,
  newPath,
}: NonNullable<AttachToContainerRequest['syncContainerWorkspace']>): FileOperation {
  const op = OPS[number];
  if (op === undefined) throw new AppError('bad_request', 'op must be WRITE, DELETE or MOVED');
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return { op, ...placesOf({ op, path, newPath }), isDir, data: bytes };
}

/** Renews the lease of a development server until the caller is gone. */
function keepServing(
  { serves, log }: AttachParts,
  { row, stubId, workspaceId }: ReachedContainer,
  left: AbortSignal,
): void {
  if (!isDevelopmentServer(row)) return;
  const renew = (): void =>
    void serves.renew(workspaceId, stubId, SERVE_LEASE_SECONDS).catch((error: unknown) => {
      log.info({ err: error, stubId }, 'the lease of a development server is renewed later');
    });
  renew();
  const renewing = setInterval(renew, RENEW_MS);
  left.addEventListener('abort', () => clearInterval(renewing), { once: true });
}
