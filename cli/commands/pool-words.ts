// Errors for pools that a token cannot see.
import { CliError, notFound } from '../errors.ts';

export const WHOSE_POOLS =
  "an administrator's token sees the shared ones, a workspace's token those of its workspace alone";

/** The scheduler's text for an administrator's token, and the one for a workspace's. */
const UNKNOWN = /^(?:pool not found$|this workspace has no pool of its own named )/;

/**
 * Treats an unknown pool as absent. An invalid name counts as unknown too: the call that creates the pool reports it.
 */
export function noPool(error: unknown): undefined {
  if (error instanceof CliError && (UNKNOWN.test(error.message) || error.status === 404)) return;
  throw error;
}

/** The scheduler does not tell whether the name belongs to a pool that the token cannot see. */
export const unknownPool =
  (name: string) =>
  (error: unknown): never => {
    if (!(error instanceof CliError) || !UNKNOWN.test(error.message)) throw error;
    throw notFound(
      `this token sees no pool ${name}: \`longshore pool list\` shows those it sees (${WHOSE_POOLS})`,
      error,
    );
  };
