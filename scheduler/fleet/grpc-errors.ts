// Errors as agents get them: a status of gRPC for each code.
import { status as GrpcStatus } from '@grpc/grpc-js';
import { AppError, messageOf } from '#shared/errors.ts';

const GRPC_CODES: Readonly<Record<string, GrpcStatus>> = {
  join_token_invalid: GrpcStatus.PERMISSION_DENIED,
  enrolment_refused: GrpcStatus.PERMISSION_DENIED,
  // Room may come, so the host tries again.
  enrolment_full: GrpcStatus.RESOURCE_EXHAUSTED,
  machine_on_other_host: GrpcStatus.PERMISSION_DENIED,
  machine_credential_invalid: GrpcStatus.UNAUTHENTICATED,
  machine_revoked: GrpcStatus.UNAUTHENTICATED,
  machine_proof_invalid: GrpcStatus.UNAUTHENTICATED,
  machine_absent_too_long: GrpcStatus.PERMISSION_DENIED,
  machine_not_found: GrpcStatus.NOT_FOUND,
  object_not_found: GrpcStatus.NOT_FOUND,
  session_superseded: GrpcStatus.FAILED_PRECONDITION,
};

export function grpcError(error: unknown): { code: GrpcStatus; details: string; message: string; name: string } {
  const known = error instanceof AppError ? GRPC_CODES[error.code] : undefined;
  const details = known === undefined ? 'the scheduler could not do that now' : messageOf(error);
  return { name: 'Error', code: known ?? GrpcStatus.UNAVAILABLE, details, message: details };
}
