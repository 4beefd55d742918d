// The address that other replicas dial with a streamed call whose caller waits here. Not for people: the credential is
// the replicas' own.
import type { Duplex } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import type { TaskId } from '#shared/domain/ids.ts';
import { RELAY_PATH, RELAY_PROTOCOL } from '../../../replicas/stream-relay.ts';
import { NOT_FOUND, sendRefusal } from '../invoke/refusal.ts';
import { upgradeOf } from './upgrades.ts';

export interface RelayRouteParts {
  /** Whether the credential is a replica's, for that task. */
  readonly isReplica: (taskId: string, credential: string | undefined) => boolean;
  /** Gives the bytes to the caller of that task. */
  readonly take: (taskId: TaskId, bytes: Duplex) => void;
}

export function registerRelay(scope: FastifyInstance, { isReplica, take }: RelayRouteParts): void {
  scope.get(`${RELAY_PATH}:taskId`, (request, reply) => {
    const { taskId } = request.params as { readonly taskId: string };
    const upgrade = upgradeOf(request.raw);
    if (upgrade === undefined || !isReplica(taskId, request.headers.authorization))
      return sendRefusal(reply, NOT_FOUND);
    reply.hijack();
    const { raw } = reply;
    const { socket, head } = upgrade.take();
    raw.removeAllListeners('finish');
    raw.detachSocket(socket as Parameters<typeof raw.detachSocket>[0]);
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${RELAY_PROTOCOL}\r\n\r\n`);
    if (head.length > 0) socket.unshift(head);
    take(taskId as TaskId, socket);
  });
}
