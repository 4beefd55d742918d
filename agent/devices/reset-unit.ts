/**
 * Has a GPU reset by a unit of its own, which runs as root: the agent's service has no capability. The agent leaves a
 * request in a file, which starts the unit (longshore-gpu-reset.path); the unit leaves its answer beside it.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { readIfThere, writeDurably } from '../durable.ts';

const LOOK_EVERY_MS = 200;
/** The unit tries for a minute, because programs that only look may keep the device open for a moment. */
const RESET_MS = 120_000;
/** Time in which the unit takes the request. */
const TAKEN_MS = 10_000;

export interface ResetRequest {
  readonly uuid: string;
  readonly busId: string;
}

/** @throws with the unit's words, or how to install it */
export async function resetByUnit(
  stateDir: string,
  { uuid, busId }: ResetRequest,
  { takenMs = TAKEN_MS, resetMs = RESET_MS }: { readonly takenMs?: number; readonly resetMs?: number } = {},
): Promise<void> {
  const folder = join(stateDir, 'gpu-reset');
  const [request, answer] = [join(folder, 'request'), join(folder, 'answer')];
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await rm(answer, { force: true });
  await writeDurably(request, `${uuid} ${busId}\n`);
  const from = performance.now();
  try {
    for (;;) {
      const said = await readIfThere(answer);
      if (said !== undefined && said.endsWith('\n')) {
        if (/^0\b/.test(said)) return;
        throw new Error(
          said
            .replace(/^\d+\s*/, '')
            .replace(/\s+/g, ' ')
            .trim() || 'the reset failed',
        );
      }
      const ms = performance.now() - from;
      if (ms > takenMs && (await readIfThere(request)) !== undefined)
        throw new Error(
          'no unit of this host takes resets: enable longshore-gpu-reset.path (docs/gpus.md: Commands for one GPU)',
        );
      if (ms > resetMs) throw new Error(`no answer in ${resetMs / 1000} s: look at journalctl -u longshore-gpu-reset`);
      await delay(LOOK_EVERY_MS);
    }
  } finally {
    await rm(request, { force: true });
  }
}
