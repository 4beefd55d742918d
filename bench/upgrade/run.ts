// The upgrade of a running installation: the daemons of a commit work under load, and those of this checkout take
// their places, the scheduler first, then one agent after the other. Then the same audit as after the kill rounds
// follows, and every container that was kept warm must run on and serve.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { sleep } from '#shared/backoff.ts';
import { LABELS } from '#agent/containers/runtime.ts';
import { RESTART_GRACE_MS } from '#scheduler/control/autoscaler/loop.ts';
import { buildCommit, resolveCommit } from '../against/commit.ts';
import { audit } from '../chaos/audit.ts';
import { closeBooks, keepLogs, totalsOf } from '../chaos/books.ts';
import { countEnds, readContainerEnds, wrongEnds } from '../chaos/ends.ts';
import { CHAOS_APP, callOn, calledApps, deployChaosApps, work } from '../chaos/load.ts';
import type { ChaosStage } from '../chaos/load.ts';
import { MachineWatch, startGpuHosts } from '../chaos/machine.ts';
import type { ChaosOutcome, ChaosReport } from '../chaos/rounds.ts';
import { follow, untilServed } from '../chaos/rounds.ts';
import { HandlerRecords } from '../chaos/runs.ts';
import { openChaosStores } from '../chaos/stores.ts';
import { writeBenchRelease } from '../release.ts';
import { deploySoakApp, uploadApp } from '../soak/apps.ts';
import type { SoakApp } from '../soak/apps.ts';
import { Caller, textOf } from '../soak/caller.ts';
import { Ledger } from '../soak/ledger.ts';
import { settle } from '../soak/settle.ts';
import type { Workplace } from '../workplace.ts';
import { Installation } from './installation.ts';
import type { Machine, Replaced } from './installation.ts';
import { nameOf, notRunningOn, notServing, onTwoMachines } from './kept.ts';
import type { KeptContainer } from './kept.ts';
import type { UpgradeOptions } from './options.ts';
import { releasedCommit } from './released.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const MACHINES = 2;
/** Containers with so many GPUs each: a machine has no room for all, so that each machine has some. */
const KEPT = { containers: 4, gpus: 2, lanes: 4 };
const GPUS_EACH = 6;
const MOST_REQUESTS = 24;
/** Load before the first replacement, and after each. */
const LOAD_MS = 12_000;
const STARTED_MS = 60_000;
const SERVED_MS = 30_000;
/**
 * Nothing is killed, so a task ends within its duration and its retries. On full machines it may wait for a place
 * until the new scheduler stops idle containers that it has adopted.
 */
const SETTLE_MS = RESTART_GRACE_MS + 60_000;
const POLL_MS = 200;

export interface UpgradeOutcome extends Omit<ChaosOutcome, 'machine'> {
  readonly from: string;
  readonly replaced: Readonly<Record<string, Replaced>>;
  /** Containers that ran before the upgrade and were looked for after it. */
  readonly kept: number;
  readonly containers: number;
  readonly ends: Readonly<Record<string, number>>;
}

/** @throws Error when a commit cannot be built, or a daemon does not start, or does not end at its signal */
export async function upgrade(options: UpgradeOptions, place: Workplace, report: ChaosReport): Promise<UpgradeOutcome> {
  const hash = await (options.from === undefined ? releasedCommit(ROOT) : resolveCommit(options.from, '--from'));
  report.say(`building ${hash.slice(0, 12)} and this checkout`);
  const base = await buildCommit(place, hash);
  const ours = await writeBenchRelease(join(place.directory, 'r'), {});
  const stores = await openChaosStores(options.stores, place);
  const hosts = await startGpuHosts(place, MACHINES, GPUS_EACH);
  const volumesDir = join(place.directory, 'v');
  mkdirSync(volumesDir, { mode: 0o755 });
  const installation = await Installation.start(place, base.release, hosts, stores.env, volumesDir);
  const { client, machines, isAway } = installation;
  const caller = new Caller(client.context, MOST_REQUESTS);
  place.later(() => caller.close());
  const ledger = new Ledger();
  const stage: ChaosStage = { caller, ledger, kind: 'upgrade', sent: [], isAway };
  const { volumeId, kept } = await deployKept(installation, caller);
  const records = new HandlerRecords(join(volumesDir, client.context.workspaceId, volumeId, 'runs.jsonl'));
  if (options.keepLogsIn !== undefined) {
    const to = options.keepLogsIn;
    place.later(async () => keepLogs(place, records, to));
  }
  await untilRunning(machines, kept, place.signal);
  const apps = await deployChaosApps(client, caller, ledger, 'upgrade', isAway);
  const called = [kept, ...calledApps(apps)];
  const ends = new AbortController();
  const stop = AbortSignal.any([ends.signal, place.signal]);
  const working = Promise.all([
    work(stage, apps, stop),
    callOn(stage, kept, KEPT.lanes, stop),
    follow(caller, ledger, stop, isAway),
  ]);
  const findings: string[] = [];
  const replaced: Record<string, Replaced> = {};
  let watches: readonly MachineWatch[] = [];
  let before: readonly KeptContainer[] = [];
  try {
    await untilServed(ledger, place.signal);
    watches = await watchMachines(place, machines);
    await load(place.signal);
    before = await listKept(machines, [kept, apps.calls, apps.puts, apps.retried]);
    report.say(`${base.name} under load: ${stage.sent.length} requests, ${before.length} containers kept warm`);
    const replace = async (what: string, work: () => Promise<Replaced>): Promise<void> => {
      const took = await work();
      replaced[what] = took;
      const sent = stage.sent.length;
      await load(place.signal);
      const lost = records.lost();
      if (lost !== undefined) ledger.fail(lost);
      const found = ledger.failed + watches.reduce((sum, watch) => sum + watch.findings.length, 0);
      report.say(
        `replaced the ${what}: ended after ${Math.round(took.endedMs)} ms, the next ready ${Math.round(took.readyMs)} ms later; ` +
          `${sent} requests before, ${stage.sent.length - sent} since; ${found} findings`,
      );
      report.json('replaced', { what, ...took, sent: stage.sent.length, found });
    };
    await replace('scheduler', () => installation.replaceScheduler(ours));
    for (const at of machines.keys())
      await replace(`agent of machine ${at + 1}`, () => installation.replaceAgent(at, ours));
    findings.push(
      ...(await serveOn(
        before.filter(({ app }) => app === kept.name),
        stage,
        records,
        place.signal,
      )),
    );
    findings.push(...notRunningOn(before, await listKept(machines, called)));
  } catch (error) {
    // Requests that wait for a dead machine end with the workplace.
    working.catch(() => undefined);
    throw error;
  } finally {
    ends.abort();
  }
  await working;
  // Churn would hold the GPUs for which the last tasks wait.
  await apps.churn?.stop();
  const loadEndedAt = performance.now();
  await settle(caller, ledger, SETTLE_MS, place.signal);
  const settledMs = performance.now() - loadEndedAt;
  const books = await closeBooks(stage, called, records);
  for (const { deploymentId } of called) await caller.gateway(`/deployments/${deploymentId}/stop`, { body: {} });
  for (const watch of watches) await watch.untilEmpty();
  await installation.stop();
  for (const watch of watches) await watch.untilGone();
  const rows = await readContainerEnds(installation.dataDir, stores.env['DATABASE_URL']);
  return {
    from: base.name,
    findings: [
      ...ledger.failures,
      ...audit(books).map(({ fault, text }) => `${fault}: ${text}`),
      ...findings,
      ...watches.flatMap((watch) => watch.findings),
      ...onTwoMachines(watches.map((watch) => watch.containerIds)),
      ...wrongEnds(rows),
    ],
    ...totalsOf(stage, books),
    settledMs,
    replaced,
    kept: before.length,
    containers: watches.reduce((sum, watch) => sum + watch.counts.containers, 0),
    ends: countEnds(rows),
  };
}

/** Deploys an app with containers on every machine from now on, and the volume that all handlers record runs on. */
async function deployKept(
  { client }: Installation,
  caller: Caller,
): Promise<{ readonly volumeId: string; readonly kept: SoakApp }> {
  const made = await caller.gateway('/volumes', { body: { name: 'chaos', driver: 'shared' } });
  const volumeId = textOf(made['volume'] as Readonly<Record<string, unknown>>, 'id');
  const kept = await deploySoakApp(caller, await uploadApp(client, CHAOS_APP), {
    name: 'upgrade-kept',
    handler: 'compute',
    cpu: 100,
    gpu: 'H100',
    gpuCount: KEPT.gpus,
    timeout: 60,
    volumes: [{ id: volumeId, mountPath: 'chaos' }],
    keepWarmSeconds: 600,
    autoscaler: {
      type: 'queue_depth',
      minContainers: KEPT.containers,
      maxContainers: KEPT.containers,
      tasksPerContainer: 1,
    },
  });
  return { volumeId, kept };
}

async function untilRunning(machines: readonly Machine[], kept: SoakApp, signal: AbortSignal): Promise<void> {
  const deadlineMs = performance.now() + STARTED_MS;
  while ((await listKept(machines, [kept])).length < KEPT.containers) {
    if (performance.now() > deadlineMs) throw new Error(`${kept.name} does not run on every machine`);
    await sleep(POLL_MS, signal);
    signal.throwIfAborted();
  }
}

function watchMachines(place: Workplace, machines: readonly Machine[]): Promise<readonly MachineWatch[]> {
  return Promise.all(
    machines.map(async (machine) => {
      const { reference: image } = await place.engine.baseImage();
      const watch = await MachineWatch.start({ ...machine, image });
      place.later(() => watch.end());
      return watch;
    }),
  );
}

async function load(signal: AbortSignal): Promise<void> {
  await sleep(LOAD_MS, signal);
  signal.throwIfAborted();
}

/** Running containers of these apps on all machines. */
async function listKept(machines: readonly Machine[], apps: readonly SoakApp[]): Promise<readonly KeptContainer[]> {
  const found: KeptContainer[] = [];
  for (const [machine, { engine, machineId }] of machines.entries()) {
    const listed = await engine.listContainers({ filters: { label: [`${LABELS.machine}=${machineId}`] } });
    for (const { Id, Labels } of listed) {
      const containerId = Labels[LABELS.container];
      const app = apps.find(({ deploymentId }) => deploymentId === Labels[LABELS.deployment])?.name;
      if (containerId === undefined || app === undefined) continue;
      const { State } = await engine.getContainer(Id).inspect();
      if (State.Running)
        found.push({ containerId, dockerId: Id.slice(0, 12), startedAt: State.StartedAt, machine, app });
    }
  }
  return found;
}

/** Waits until each of these containers has begun a run from now on. @returns a finding for each that has not */
async function serveOn(
  kept: readonly KeptContainer[],
  { sent }: ChaosStage,
  records: HandlerRecords,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const afterN = sent.length;
  const deadlineMs = performance.now() + SERVED_MS;
  let left = notServing(kept, records.read(), afterN);
  while (left.length > 0 && performance.now() < deadlineMs) {
    await sleep(POLL_MS, signal);
    signal.throwIfAborted();
    left = notServing(kept, records.read(), afterN);
  }
  return left.map((one) => `not_serving: ${nameOf(one)} began no run after the upgrade`);
}
