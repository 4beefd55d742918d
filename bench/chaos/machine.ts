// What must be true of a machine whose agent is killed again and again: no container twice, no device with two, nothing of ours left over, nothing of others touched. It looks at
// the engine alone, and trusts no agent.
import { sleep } from '#shared/backoff.ts';
import { LABELS } from '#agent/containers/runtime.ts';
import { BENCH_LABEL } from '../engine.ts';
import type { Workplace } from '../workplace.ts';

/** A container of this machine as one look found it. */
export interface SeenContainer {
  readonly dockerId: string;
  readonly containerId: string;
  readonly running: boolean;
  readonly gpus: readonly string[];
}

const LOOK_EVERY_MS = 500;
/** From the end of all work to a machine without a container of ours: keep-warm, stop ladders, the orphans' grace. */
const EMPTY_MS = 90_000;

export interface MachineWatch {
  /** Stops looking; ends what it started. @returns what it found */
  close(): Promise<{ readonly findings: readonly string[]; readonly looks: number; readonly containers: number }>;
}

/** What one look says that must never be. Pure. */
export function contradictions(seen: readonly SeenContainer[]): readonly string[] {
  const found: string[] = [];
  const running = seen.filter((one) => one.running);
  for (const [id, all] of Map.groupBy(running, (one) => one.containerId))
    if (all.length > 1) found.push(`container_twice: ${id} runs as ${all.map((one) => one.dockerId).join(', ')}`);
  const holders = running.flatMap((one) => one.gpus.map((gpu) => ({ gpu, id: one.containerId })));
  for (const [gpu, all] of Map.groupBy(holders, (one) => one.gpu))
    if (all.length > 1) found.push(`device_twice: ${gpu} is with ${all.map((one) => one.id).join(' and ')}`);
  return found;
}

/** Starts two containers that are not this agent's (nobody's, and another machine's) and looks at all of the machine's until closed. */
export async function watchMachine(place: Workplace, machineId: string, image: string): Promise<MachineWatch> {
  const { client } = place.engine;
  const strangers: { readonly id: string; readonly what: string; readonly startedAt: string }[] = [];
  for (const [what, labels] of [
    ['nobody’s', {}],
    [
      'another machine’s',
      { [LABELS.managed]: '1', [LABELS.machine]: 'ffffffff', [LABELS.container]: 'c', [LABELS.epoch]: '1' },
    ],
  ] as const) {
    const made = await client.createContainer({
      Image: image,
      Cmd: ['sleep', '86400'],
      Labels: { ...labels, [BENCH_LABEL]: place.runId },
      HostConfig: { Init: true, NetworkMode: 'none' },
    });
    await made.start();
    strangers.push({ id: made.id, what, startedAt: (await made.inspect()).State.StartedAt });
  }
  const findings = new Set<string>();
  const everSeen = new Set<string>();
  let looks = 0;
  const look = async (): Promise<readonly SeenContainer[]> => {
    const filters = { label: [`${LABELS.machine}=${machineId}`] };
    const seen = (await client.listContainers({ all: true, filters }))
      .filter(({ Labels }) => Labels[LABELS.container] !== undefined)
      .map(({ Id, Labels, State }) => ({
        dockerId: Id.slice(0, 12),
        containerId: Labels[LABELS.container] ?? '',
        running: State === 'running',
        gpus: (Labels[LABELS.gpus] ?? '').split(',').filter((uuid) => uuid !== ''),
      }));
    looks += 1;
    for (const { dockerId } of seen) everSeen.add(dockerId);
    for (const text of contradictions(seen)) findings.add(text);
    return seen;
  };
  const ends = new AbortController();
  const looking = (async () => {
    while (await sleep(LOOK_EVERY_MS, ends.signal)) await look();
  })();
  return {
    close: async () => {
      ends.abort();
      await looking;
      const deadlineMs = performance.now() + EMPTY_MS;
      let left = await look();
      while (left.length > 0 && performance.now() < deadlineMs) {
        await sleep(LOOK_EVERY_MS);
        left = await look();
      }
      for (const { dockerId, containerId } of left) findings.add(`orphan: ${containerId} (${dockerId}) is left`);
      for (const { id, what, startedAt } of strangers) {
        const state = await client
          .getContainer(id)
          .inspect()
          .then(({ State }) => State)
          .catch(() => undefined);
        if (state?.Running !== true || state.StartedAt !== startedAt)
          findings.add(`stranger_touched: a container that was ${what} does not run on as it did`);
        await place.engine.remove(id);
      }
      return { findings: [...findings], looks, containers: everSeen.size };
    },
  };
}
