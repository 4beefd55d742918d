// Branded ids, so that one cannot stand where another belongs. Public ids are UUIDs unless said otherwise.
import { hash, randomBytes, randomUUID } from 'node:crypto';

declare const brand: unique symbol;
type Id<Name extends string> = string & { readonly [brand]: Name };

export type WorkspaceId = Id<'WorkspaceId'>;
export type StubId = Id<'StubId'>;
export type AppId = Id<'AppId'>;
export type DeploymentId = Id<'DeploymentId'>;
export type TaskId = Id<'TaskId'>;
export type ObjectId = Id<'ObjectId'>;
export type TokenId = Id<'TokenId'>;
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
/** One scheduler process's name, new at every start: 16 hex characters. */
export type InstanceId = Id<'InstanceId'>;

export const newId = <T extends Id<string>>(): T => randomUUID() as string as T;
export const newContainerId = (kind: string, stubId: StubId): ContainerId =>
  `${kind}-${stubId}-${randomBytes(4).toString('hex')}` as ContainerId;
/** Two random UUIDs without dashes (244 random bits): they come from a pool, a call to the system per task does not. */
export const newAttemptToken = (): AttemptToken => (randomUUID() + randomUUID()).replaceAll('-', '') as AttemptToken;
export const newInstanceId = (): InstanceId => randomBytes(8).toString('hex') as InstanceId;
export const sha256Hex = (data: string | Uint8Array): string => hash('sha256', data, 'hex');
export const lockTokenOf = (instance: InstanceId, token: AttemptToken): LockToken =>
  `${instance}.${sha256Hex(token)}` as LockToken;
/** The sha256 part, by which an adopting replica recognises an attempt. */
export const attemptHashOf = (lock: LockToken): string => lock.slice(lock.indexOf('.') + 1);
export const queueNameOf = (deploymentId: DeploymentId | null, stubId: StubId): QueueName =>
  `tq-${deploymentId ?? stubId}` as QueueName;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
export const isUuid = (text: string): boolean => UUID.test(text);
