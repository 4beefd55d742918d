// The wait of `longshore deploy` for the rollouts of what it deployed.
import type { Client } from '../client.ts';
import type { Deployed } from '../deploy/deploy.ts';
import { endSentences, rolloutEnd } from '../deploy/rollout.ts';
import type { RolloutFacts } from '../deploy/rollout.ts';
import { note, printError } from '../print.ts';
import { sayWhatItWaitsFor } from './waiting.ts';

/**
 * Waits until calls of the name reach the new version, or do not.
 * @returns the rollout's end
 */
export async function waitForRollout(client: Client, deployed: Deployed, program: string): Promise<RolloutFacts> {
  const { name, version, deploymentId, rollout } = deployed;
  if (rollout.state !== 'waiting') return rollout;
  note(`calls of ${name} go on to the older version until v${version} is ready (--now does not wait)`);
  const over = new AbortController();
  const saying = sayWhatItWaitsFor(client, deploymentId, (line) => note(`${name} v${version} ${line}`), over.signal);
  try {
    const end = await rolloutEnd(client, deploymentId);
    const say = end.state === 'done' ? note : printError;
    for (const sentence of endSentences(end, { name, version, program })) say(sentence);
    return end;
  } finally {
    over.abort();
    await saying;
  }
}
