/**
 * The GPU tool as a child process with a deadline: a hanging driver blocks the child, never the agent. At the deadline
 * the child's process group is killed. A child that survives the kill (it sleeps in the kernel) is left behind, and no
 * second one starts before it has gone.
 */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { withDeadline } from '#shared/backoff.ts';
import { inheritedEnv, runProgram } from '#shared/child-process.ts';
import { hasCode } from '../durable.ts';
import type { ConditionField, GpuCondition } from './gpu-condition.ts';
import { CONDITION_FIELDS, REMAP_FIELDS, parseConditions, unknownField } from './gpu-condition.ts';
import type { ComputeProcess, GpuField, Listing, MigSlice, ToolOutput } from './parse.ts';
import { GPU_FIELDS, parseInstances, parseListing, parseProcesses, parseSlices } from './parse.ts';

/** Without persistence mode the driver starts each idle GPU anew for each call, which takes over a second. */
export const PROBE_DEADLINE_MS = 30_000;
/** Wait for the child's end after the kill. */
const REAP_MS = 500;
const MAX_OUTPUT = 1024 * 1024;
const MAX_GPUS_ASKED_SINGLY = 16;
/**
 * Bound on queries for the instances of one set of slices: the answer is long, and a driver that lacks them will not
 * gain them.
 */
const MAX_INSTANCE_TRIES = 3;

type Run = ({ readonly kind: 'done' } & ToolOutput) | { readonly kind: 'timeout' } | { readonly kind: 'missing' };

export class NvidiaSmi {
  readonly #path: string;
  readonly #deadlineMs: number;
  /** Children that survived their kill. */
  #undead = 0;
  #fields: readonly GpuField[] = GPU_FIELDS;
  /** GPU instances of the slices in the last listing, and the number of queries for them. */
  #instances: { readonly of: string; readonly tries: number; readonly found: ReadonlyMap<string, number> } = {
    of: '',
    tries: 0,
    found: new Map(),
  };

  constructor(path: string, deadlineMs: number = PROBE_DEADLINE_MS) {
    this.#path = path;
    this.#deadlineMs = deadlineMs;
  }

  /**
   * Lists every device of the driver. @param known - devices that are asked one by one when one of them makes the tool
   * fail as a whole
   */
  async list(known: readonly string[] = []): Promise<Listing> {
    const all = await this.#query([]);
    if (all.kind !== 'failed' || known.length === 0 || (all.broken.length === 0 && all.reason !== 'off_bus'))
      return all;
    const singly = await Promise.all(
      known.slice(0, MAX_GPUS_ASKED_SINGLY).map((uuid) => this.#query([`--id=${uuid}`])),
    );
    const rows = singly.flatMap((one) => (one.kind === 'listed' ? one.rows : []));
    if (rows.length === 0) return all;
    // Devices that fail while others answer are those that the first answer named as broken. A query that hangs says
    // nothing about its device.
    const silent = singly.filter((one) => one.kind === 'failed' && one.reason === 'timeout').length;
    return { kind: 'listed', rows, broken: all.broken, unreadable: silent };
  }

  /** MIG slices of the divided devices; undefined: the query failed. */
  async slices(): Promise<readonly MigSlice[] | undefined> {
    const run = await this.#run(['-L']);
    if (run.kind !== 'done' || run.exitCode !== 0) return undefined;
    const slices = parseSlices(run.stdout);
    if (slices.every(({ instance }) => instance !== undefined)) return slices;
    await this.#askInstances(slices);
    return slices.map((slice) => ({
      ...slice,
      instance: slice.instance ?? this.#instances.found.get(`${slice.parentUuid}/${slice.index}`),
    }));
  }

  /** Queries GPU instances only when the set of slices has changed. */
  async #askInstances(slices: readonly MigSlice[]): Promise<void> {
    const of = slices.map(({ uuid, index }) => `${uuid} ${index}`).join();
    const before = this.#instances;
    if (before.of === of && (before.found.size > 0 || before.tries >= MAX_INSTANCE_TRIES)) return;
    const run = await this.#run(['-q', '-x']);
    const found = run.kind === 'done' && run.exitCode === 0 ? parseInstances(run.stdout) : new Map<string, number>();
    this.#instances = { of, tries: before.of === of ? before.tries + 1 : 1, found };
  }

  /** Compute processes of all devices; undefined: not known. */
  async processes(): Promise<readonly ComputeProcess[] | undefined> {
    const run = await this.#run(['--query-compute-apps=gpu_uuid,pid', '--format=csv,noheader,nounits']);
    return run.kind === 'done' ? parseProcesses(run) : undefined;
  }

  /**
   * Condition of the GPUs, which a check of the host asks for beside the listing; undefined: the tool did not answer.
   */
  async conditions(): Promise<readonly GpuCondition[] | undefined> {
    let fields: readonly ConditionField[] = CONDITION_FIELDS;
    for (;;) {
      const run = await this.#run([`--query-gpu=${fields.join(',')}`, '--format=csv,noheader,nounits']);
      if (run.kind !== 'done') return undefined;
      const unknown = unknownField(run);
      const fewer = fields.filter((field) => field !== unknown);
      if (unknown === undefined || fewer.length === fields.length) {
        if (run.exitCode !== 0) return undefined;
        const remaps = await this.#run([
          `--query-remapped-rows=${REMAP_FIELDS.join(',')}`,
          '--format=csv,noheader,nounits',
        ]);
        return parseConditions(
          fields,
          run.stdout,
          remaps.kind === 'done' && remaps.exitCode === 0 ? remaps.stdout : '',
        );
      }
      fields = fewer;
    }
  }

  async #query(extra: readonly string[]): Promise<Listing> {
    for (;;) {
      const fields = this.#fields;
      const run = await this.#run([...extra, `--query-gpu=${fields.join(',')}`, '--format=csv,noheader,nounits']);
      if (run.kind === 'timeout')
        return { kind: 'failed', reason: 'timeout', text: `no answer in ${this.#deadlineMs} ms`, broken: [] };
      if (run.kind === 'missing')
        return { kind: 'failed', reason: 'not_found', text: `${this.#path} is not there`, broken: [] };
      const listing = parseListing(fields, run);
      if (listing.kind !== 'unknown_field') return listing;
      const fewer = fields.filter((field) => field !== listing.field);
      if (fewer.length === fields.length)
        return { kind: 'failed', reason: 'error', text: `field ${listing.field}`, broken: [] };
      this.#fields = fewer;
    }
  }

  async #run(args: readonly string[]): Promise<Run> {
    if (this.#undead > 0) return { kind: 'timeout' };
    // Most machines lack the tool: looking for its file first spares them a process.
    const late = (): Error => new Error('no answer where programs lie');
    const found = await withDeadline(isThere(this.#path), this.#deadlineMs, late).catch(() => true);
    if (!found) return { kind: 'missing' };
    // A child may have survived its kill meanwhile.
    if (this.#undead > 0) return { kind: 'timeout' };
    const end = await runProgram(this.#path, args, {
      deadlineMs: this.#deadlineMs,
      maxOutput: MAX_OUTPUT,
      env: { ...inheritedEnv(), LC_ALL: 'C' },
    });
    switch (end.kind) {
      case 'ended':
        return { kind: 'done', exitCode: end.exitCode ?? 255, stdout: end.stdout, stderr: end.stderr };
      case 'not_started':
        if (hasCode(end.error, 'ENOENT', 'EACCES', 'ENOTDIR')) return { kind: 'missing' };
        return { kind: 'done', exitCode: 255, stdout: '', stderr: end.error.message };
      case 'timeout':
        await this.#reap(end.gone);
        return { kind: 'timeout' };
    }
  }

  /** Waits for the end of a killed child; one that goes on is counted until it ends. */
  async #reap(gone: Promise<void>): Promise<void> {
    await withDeadline(gone, REAP_MS, () => new Error('timeout')).catch(() => {
      this.#undead += 1;
      void gone.then(() => (this.#undead -= 1));
    });
  }
}

/** Whether a program of that name exists on the path. */
async function isThere(name: string): Promise<boolean> {
  const folders = name.includes('/') ? [''] : (process.env['PATH'] ?? '').split(delimiter);
  const found = await Promise.allSettled(
    folders.map((folder) => access(folder === '' ? name : join(folder, name), constants.X_OK)),
  );
  return found.some(({ status }) => status === 'fulfilled');
}
