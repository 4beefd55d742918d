/** Makers, readers and spellings that the tables of the REST API share. */
import type { Platform } from '../verbs-fixture.ts';
import { kitOf } from '../verbs-kit.ts';

/** A verb that has no body and no query. */
export const READS_NOTHING = { malformed: null } as const;

export type RestParts = ReturnType<typeof restParts>;

/** On a platform that starts later. */
export function restParts(platform: () => Platform) {
  return {
    ...kitOf(platform),
    platform,
    /** The line with the own workspace's id in place of `{ws}`. */
    rest: (line: string): string => line.replace('{ws}', platform().own.workspaceId),
    ownId: async (): Promise<string> => platform().own.workspaceId,
  };
}
