// Errors of gRPC calls: their codes and texts, and whether another try is worthwhile. Pure.
import type { ServiceError } from '@grpc/grpc-js';
import { status } from '@grpc/grpc-js';
import { messageOf } from '#shared/errors.ts';

export function grpcCode(error: unknown): status | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'number'
    ? (error as ServiceError).code
    : undefined;
}

export const grpcText = (error: unknown): string =>
  error instanceof Error && 'details' in error && typeof error.details === 'string' && error.details !== ''
    ? error.details
    : String(error);

/** Why a call or a session of the scheduler ended, in one line. */
export function reasonOf(error: unknown): string {
  if (error === undefined || error === null) return 'ended without an error';
  if (grpcCode(error) !== undefined) return grpcText(error);
  const text = messageOf(error);
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause.message : '';
  return text.includes(cause) ? text : `${text}: ${cause}`;
}

/** The scheduler knows the caller and refuses. */
export const isRefusal = (error: unknown): boolean => {
  const code = grpcCode(error);
  return code === status.UNAUTHENTICATED || code === status.PERMISSION_DENIED;
};

/** The scheduler knows the machine as another host: said of a control stream alone. */
export const isOtherHost = (error: unknown): boolean => grpcCode(error) === status.PERMISSION_DENIED;

/** The scheduler has no room now, as where an enrolment token is full. */
export const isFull = (error: unknown): boolean => grpcCode(error) === status.RESOURCE_EXHAUSTED;

/** The scheduler is absent or unavailable now: worth another try. */
export const isTransient = (error: unknown): boolean => {
  const code = grpcCode(error);
  return (
    code === status.UNAVAILABLE ||
    code === status.DEADLINE_EXCEEDED ||
    code === status.CANCELLED ||
    code === status.ABORTED ||
    code === status.RESOURCE_EXHAUSTED ||
    code === status.INTERNAL ||
    code === status.UNKNOWN
  );
};
