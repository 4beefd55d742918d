// Waits for the end of a deployment's rollout, and says how it ended. The rollout goes on without the command.
import { shellWord } from '#shared/shell-word.ts';
import { sleep } from '#shared/backoff.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';

/** A version's rollout, as the scheduler tells it. */
export interface RolloutFacts {
  /** `waiting`, `done`, or a state in which calls of the name reach another version. */
  readonly state: string;
  readonly why: string;
}

/** Reads the field `rollout` of an answer; null: the version had none, and calls have moved. */
export function rolloutIn(answer: JsonObject): RolloutFacts {
  const rollout = objectField(answer, 'rollout');
  return { state: textField(rollout, 'state') || 'done', why: textField(rollout, 'why') };
}

const EVERY_MS = 500;
/** Time for which a scheduler that does not answer is asked again. */
const AWAY_MS = 60_000;

/** @throws CliError when the scheduler is away for a minute, or does not know the deployment any more */
export async function rolloutEnd(client: Client, deploymentId: string): Promise<RolloutFacts> {
  const path = `/deployment/${await client.workspaceId()}/${deploymentId}`;
  let answeredMs = Date.now();
  for (;;) {
    try {
      const rollout = rolloutIn(await client.rest(path));
      if (rollout.state !== 'waiting') return rollout;
      answeredMs = Date.now();
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      if (error.status === 404) return { state: 'stopped', why: 'it was deleted' };
      if (Date.now() - answeredMs > AWAY_MS) throw error;
    }
    await sleep(EVERY_MS);
  }
}

/** Sentences about an end. `name` and `version`: of the deployment; `program`: the command's own name. */
export function endSentences(
  { state, why }: RolloutFacts,
  { name, version, program }: { readonly name: string; readonly version: number; readonly program: string },
): readonly string[] {
  const reference = `${name}/v${version}`;
  if (state === 'done') return [`calls of ${name} reach v${version} now: ${why}`];
  const first = `calls of ${name} do not reach v${version}: ${why}`;
  return state === 'failed'
    ? [
        first,
        `the older version serves on; \`${program} logs ${shellWord(reference)}\` shows the output, \`${program} deployment start ${shellWord(reference)}\` tries again`,
      ]
    : [first];
}
