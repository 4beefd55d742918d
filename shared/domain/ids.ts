// Branded ids, so that one cannot stand where another belongs. Public ids are UUIDs unless said otherwise.
import { createHash, hash, randomBytes, randomFillSync, randomUUID } from 'node:crypto';

declare const brand: unique symbol;
type Id<Name extends string> = string & { readonly [brand]: Name };

export type WorkspaceId = Id<'WorkspaceId'>;
export type StubId = Id<'StubId'>;
export type AppId = Id<'AppId'>;
export type DeploymentId = Id<'DeploymentId'>;
export type TaskId = Id<'TaskId'>;
export type ObjectId = Id<'ObjectId'>;
export type OutputId = Id<'OutputId'>;
/** The id of a message to an address that a person named. */
export type DeliveryId = Id<'DeliveryId'>;
export type WebhookId = Id<'WebhookId'>;
export type StackId = Id<'StackId'>;
export type TokenId = Id<'TokenId'>;
/** The sender of a task that reads it again: the stub of a container, or a token of the scope invoke. */
export type PutBy = StubId | TokenId;
/** `{kind}-{stubId}-{8 hex}` */
export type ContainerId = Id<'ContainerId'>;
/** 8 hex characters. */
export type MachineId = Id<'MachineId'>;
/** `tq-{deploymentId|stubId}`: BullMQ refuses `:`. */
export type QueueName = Id<'QueueName'>;
/** Secret name of one attempt: 64 hex characters. Only its sha256 is ever stored. */
export type AttemptToken = Id<'AttemptToken'>;
/** `{instance}.{sha256(attempt token)}`: BullMQ's lock token. */
export type LockToken = Id<'LockToken'>;
/** The name of a scheduler process, new at every start: 16 hex characters. */
export type InstanceId = Id<'InstanceId'>;

export const newId = <T extends Id<string>>(): T => randomUUID() as string as T;
/**
 * The id of a schedule tick's task (epoch milliseconds), the same for
 * every caller: a UUID v5 with the deployment as its namespace.
 */
export const tickTaskId = (deploymentId: DeploymentId, tickMs: number): TaskId => {
  const bytes = createHash('sha1')
    .update(Buffer.from(deploymentId.replaceAll('-', ''), 'hex'))
    .update(String(tickMs));
  const hex = bytes.digest('hex').slice(0, 32);
  const variant = ((Number.parseInt(hex.charAt(16), 16) & 0x3) | 0x8).toString(16);
  const named = `${hex.slice(0, 12)}5${hex.slice(13, 16)}${variant}${hex.slice(17)}`;
  return named.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5') as TaskId;
};
export const newContainerId = (kind: string, stubId: StubId): ContainerId =>
  `${kind}-${stubId}-${randomBytes(4).toString('hex')}` as ContainerId;
const TOKEN_BYTES = 32;
/** Random bytes for the next tokens: a system call per token would be most of its cost. Used bytes are overwritten. */
const tokenPool = Buffer.alloc(TOKEN_BYTES * 128);
let tokenPoolAt = tokenPool.length;
export const newAttemptToken = (): AttemptToken => {
  if (tokenPoolAt === tokenPool.length) {
    randomFillSync(tokenPool);
    tokenPoolAt = 0;
  }
  const token = tokenPool.toString('hex', tokenPoolAt, tokenPoolAt + TOKEN_BYTES);
  tokenPool.fill(0, tokenPoolAt, (tokenPoolAt += TOKEN_BYTES));
  return token as AttemptToken;
};
export const newInstanceId = (): InstanceId => randomBytes(8).toString('hex') as InstanceId;
export const sha256Hex = (data: string | Uint8Array): string => hash('sha256', data, 'hex');
export const lockTokenOf = (instance: InstanceId, token: AttemptToken): LockToken =>
  `${instance}.${sha256Hex(token)}` as LockToken;
/** The sha256 part, by which an adopting replica recognises an attempt. */
export const attemptHashOf = (lock: LockToken): string => lock.slice(lock.indexOf('.') + 1);
/** The replica whose attempt holds that lock. */
export const instanceOf = (lock: LockToken): InstanceId => lock.slice(0, lock.indexOf('.')) as InstanceId;
export const queueNameOf = (deploymentId: DeploymentId | null, stubId: StubId): QueueName =>
  `tq-${deploymentId ?? stubId}` as QueueName;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
export const isUuid = (text: string): boolean => UUID.test(text);
