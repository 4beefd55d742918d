// Code of containers on its way to an agent.
// Invariant: a machine reads the code of containers that are placed on it, the files of builds that it was ordered, and
// no other object.
import type { ServerWritableStream } from '@grpc/grpc-js';
import type { MachineId } from '#shared/domain/ids.ts';
import { AppError } from '#shared/errors.ts';
import { PART_BYTES } from '#shared/protocol/link.ts';
import type { BodyChunk, FetchCodeRequest__Output } from '#shared/protocol/generated/messages.ts';
import type { ContainerRegistry } from './containers/container-registry.ts';

export type CodeCall = ServerWritableStream<FetchCodeRequest__Output, BodyChunk>;

export interface CodeParts {
  readonly containers: Pick<ContainerRegistry, 'ofMachine'>;
  /** Whether the machine was ordered a build with the object's files. */
  readonly isForBuild: (machineId: MachineId, objectId: string) => boolean;
  readonly openObject: (objectId: string) => Promise<NodeJS.ReadableStream | undefined>;
}

/** Sends the code that the call asks for, and ends the call. @throws AppError `object_not_found` */
export async function sendCode(call: CodeCall, machineId: MachineId, parts: CodeParts): Promise<void> {
  const { objectId } = call.request;
  if (!mayRead(parts.containers, machineId, objectId) && !parts.isForBuild(machineId, objectId)) {
    throw new AppError('object_not_found', `no container of this machine uses object ${objectId}`);
  }
  const body = await parts.openObject(objectId);
  if (body === undefined) throw new AppError('object_not_found', `object ${objectId} has no content`);
  for await (const chunk of body) {
    const bytes = Buffer.from(chunk as Uint8Array);
    for (let offset = 0; offset < bytes.length; offset += PART_BYTES) {
      const flowing = call.write({ data: bytes.subarray(offset, offset + PART_BYTES) });
      if (!flowing) await drained(call);
      if (call.cancelled) return;
    }
  }
  call.end();
}

/** Whether the object is the code of a container placed on that machine. */
function mayRead(containers: CodeParts['containers'], machineId: MachineId, objectId: string): boolean {
  for (const entry of containers.ofMachine(machineId)) {
    if (entry.spec.wire.code?.objectId === objectId) return true;
  }
  return false;
}

function drained(call: CodeCall): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      call.off('drain', done);
      call.off('cancelled', done);
      call.off('close', done);
      resolve();
    };
    call.on('drain', done);
    call.on('cancelled', done);
    call.on('close', done);
  });
}
