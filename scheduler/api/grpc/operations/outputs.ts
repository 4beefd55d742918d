// Files that tasks saved: their bytes come as messages, one piece each, and go to the object store as they come.
import { randomUUID } from 'node:crypto';
import {
  OutputPublicUrlRequest,
  OutputPublicUrlResponse,
  OutputSaveRequest,
  OutputSaveResponse,
  OutputStatRequest,
  OutputStatResponse,
} from '#shared/api/shared-state.ts';
import { timestampOf } from '#shared/api/fields.ts';
import { AppError } from '#shared/errors.ts';
import type { Objects } from '../../../stores/objects/service.ts';
import { isElsewhere, wholeAddress } from '../../../stores/objects/signatures.ts';
import { ADDRESS_SECONDS, MOST_ADDRESS_SECONDS } from '../../../tasks/outputs/service.ts';
import type { OutputOwner, Outputs } from '../../../tasks/outputs/service.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { paced } from '../../http/pace.ts';
import { unrouted } from '../../operations/operation.ts';
import type { UnroutedOperation } from '../../operations/operation.ts';

export interface OutputParts {
  readonly outputs: Pick<Outputs, 'taskOf' | 'save' | 'sign'>;
  readonly objects: Pick<Objects, 'create' | 'receive'>;
}

type Piece = { readonly taskId: string; readonly filename: string; readonly content: Uint8Array };

const NO_BUCKET =
  'the object store of this installation takes uploads itself: save outputs with the `longshore` module, or over HTTP';
const MODE = '0o644';

export function outputOperations({ outputs, objects }: OutputParts): readonly UnroutedOperation[] {
  const common = { scope: 'full', containers: true } as const;
  const save = async (caller: Caller, pieces: AsyncIterable<Piece>, signal: AbortSignal) => {
    const iterator = pieces[Symbol.asyncIterator]();
    const { value: first } = (await iterator.next()) as { readonly value?: Piece };
    if (first === undefined) throw new AppError('invalid_body', 'task_id is missing');
    const { taskId, filename: name } = first;
    const owner = ownerOf(caller);
    await outputs.taskOf(owner, { taskId, name });
    // Each save is an object of its own: equal bytes of two tasks must not share a life.
    const asked = { hash: `output-${randomUUID()}`, size: 0, overwrite: true };
    const { objectId, uploadPath } = await objects.create(
      { workspaceId: owner.workspaceId, ...(owner.container === undefined ? {} : { container: owner.container }) },
      asked,
    );
    if (uploadPath === null || isElsewhere(uploadPath)) throw new AppError('bad_request', NO_BUCKET);
    await objects.receive(objectId, paced(contents(first, iterator)));
    // The pieces of a caller who left in the middle end as those of any other.
    signal.throwIfAborted();
    const row = await outputs.save(owner, { taskId, objectId, name });
    return { ok: true, errMsg: '', id: row.id };
  };
  return [
    unrouted({
      ...common,
      name: 'OutputSaveStream',
      request: OutputSaveRequest,
      response: OutputSaveResponse,
      duplex: async function* (caller, pieces, signal) {
        yield await save(caller, pieces, signal);
      },
    }),
    unrouted({
      ...common,
      name: 'OutputStat',
      request: OutputStatRequest,
      response: OutputStatResponse,
      handle: async (caller, { id, taskId }) => {
        const { row, size } = await signed(outputs, caller, id, taskId, ADDRESS_SECONDS);
        const savedAt = timestampOf(row.createdAtMs);
        return { ok: true, errMsg: '', stat: { mode: MODE, size, atime: savedAt, mtime: savedAt } };
      },
    }),
    unrouted({
      ...common,
      name: 'OutputPublicURL',
      request: OutputPublicUrlRequest,
      response: OutputPublicUrlResponse,
      handle: async (caller, { id, taskId, expires }, { baseUrl }) => {
        if (expires > MOST_ADDRESS_SECONDS)
          throw new AppError('bad_request', `expires must be seconds from 1 to ${MOST_ADDRESS_SECONDS}`);
        const seconds = expires === 0 ? ADDRESS_SECONDS : expires;
        const { path } = await signed(outputs, caller, id, taskId, seconds);
        return { ok: true, errMsg: '', publicUrl: wholeAddress(path, baseUrl) };
      },
    }),
  ];
}

const ownerOf = ({ workspaceId, container }: Caller): OutputOwner => ({ workspaceId, container });

/** An output of that task. @throws AppError `output_not_found` */
async function signed(outputs: OutputParts['outputs'], caller: Caller, id: string, taskId: string, seconds: number) {
  const found = await outputs.sign(ownerOf(caller), id, seconds);
  if (taskId !== '' && taskId.toLowerCase() !== found.row.taskId)
    throw new AppError('output_not_found', 'output not found');
  return found;
}

async function* contents(first: Piece, rest: AsyncIterator<Piece>): AsyncGenerator<Uint8Array> {
  yield first.content;
  for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value.content;
}
