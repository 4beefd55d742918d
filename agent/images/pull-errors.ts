// Failures of a pull that the agent itself finds, the class of each failure, and its error for callers.
import { AppError, messageOf } from '#shared/errors.ts';
import { EngineError } from '../containers/runtime.ts';
import { classifyPull, imageFailure, PULL_CURES } from './failures.ts';
import type { PullFailure } from './failures.ts';

/** The registry requires credentials, and the scheduler, which has them, could not be asked. */
export class NotAsked extends Error {
  override readonly name = 'NotAsked';
}

/** A pull found too little room on the disk of images; the engine removes an incomplete layer at once. */
export class DiskWasLow extends Error {
  override readonly name = 'DiskWasLow';
}

/** An image that Longshore built is neither here nor in a registry. */
export class NotKept extends Error {
  override readonly name = 'NotKept';
}

/** An image that was pulled and is above a bound. */
export class NotUsable extends Error {
  override readonly name = 'NotUsable';
}

/** Whether the machine did not get its turn to pull. */
export const isTurnLost = (error: unknown): error is AppError =>
  error instanceof AppError && error.code === 'registry_busy';

export function failureOf(error: unknown): PullFailure {
  if (error instanceof NotAsked || isTurnLost(error)) return 'busy';
  if (error instanceof AppError && error.code === 'registry_unreachable') return 'unreachable';
  if (error instanceof NotKept) return 'not_found';
  if (error instanceof NotUsable) return 'bad_manifest';
  if (error instanceof EngineError && error.failure === 'unavailable') return 'engine';
  return classifyPull(messageOf(error));
}

/** @param lateMs - time in which the image was not here, when that ended the pull */
export function failed(reference: string, failure: PullFailure, error: unknown, lateMs: number | undefined): Error {
  if (isTurnLost(error)) return error;
  if (error instanceof NotKept || error instanceof NotUsable)
    return new AppError('image_error', error.message, { cause: error });
  // A pull that is too slow is the registry's, or the network's.
  const why = lateMs === undefined ? failure : failure === 'disk_full' ? failure : 'busy';
  const words = lateMs === undefined ? messageOf(error) : `it was not here after ${minutes(lateMs)} of pulling`;
  return imageFailure(why, `cannot pull image ${reference}: ${words} (${why}); ${PULL_CURES[why]}`, error);
}

const minutes = (ms: number): string => `${Math.round(ms / 60_000)} minutes`;
