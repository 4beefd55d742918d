// Pools that a token does not see, and what commands say of them.
import { CliError } from '../errors.ts';

export const WHOSE_POOLS =
  "an administrator's token sees the shared ones, a workspace's token those of its workspace alone";

/** The scheduler's words for an administrator's token, and for a workspace's. */
const UNKNOWN = /^(?:pool not found$|this workspace has no pool of its own named )/;

/** What a name that can be none finds nothing by, either: the call that makes one says what is wrong with it. */
export function noPool(error: unknown): undefined {
  if (error instanceof CliError && (UNKNOWN.test(error.message) || error.status === 404)) return;
  throw error;
}

/** The scheduler does not say whether there is one that is not the token's to see. */
export const unknownPool =
  (name: string) =>
  (error: unknown): never => {
    if (!(error instanceof CliError) || !UNKNOWN.test(error.message)) throw error;
    throw new CliError(
      `this token sees no pool ${name}: \`longshore pool list\` shows those it sees (${WHOSE_POOLS})`,
      { cause: error },
    );
  };
