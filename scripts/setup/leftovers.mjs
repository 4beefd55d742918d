/**
 * Leftovers of a test run: processes with its mark, and things in Docker with Longshore's labels that were not there
 * before. Things that are certainly the run's (its id in a label, its directory mounted) are named and removed. The
 * rest may belong to another installation on this engine: CI, which has none, counts it; elsewhere it is only named.
 */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { engineRequest } from './engine-api.mjs';

/** Labels on everything that an agent makes, and on everything that a test makes. */
const LABELS = ['io.longshore.managed', 'io.longshore.test'];
const SETTLE_MS = 5000;

const LISTS = {
  container: {
    list: '/containers/json?all=1&',
    items: (found) => found,
    id: (item) => item.Id,
    name: (item) => `${item.Names?.[0]?.slice(1) ?? item.Id.slice(0, 12)} (${item.State})`,
  },
  network: { list: '/networks?', items: (found) => found, id: (item) => item.Id, name: (item) => item.Name },
  volume: {
    list: '/volumes?',
    items: (found) => found.Volumes ?? [],
    id: (item) => item.Name,
    name: (item) => item.Name,
  },
};
const REMOVE = {
  container: (id) => `/containers/${id}?force=1&v=1`,
  network: (id) => `/networks/${id}`,
  volume: (id) => `/volumes/${id}?force=1`,
};

/**
 * Things in Docker with Longshore's labels; `mark`: the text that tells the owner.
 * @returns {Promise<Map<string, { kind: string, id: string, name: string, mark: string }>>}
 */
export async function labelledThings() {
  const things = new Map();
  for (const [kind, { list, items, id, name }] of Object.entries(LISTS)) {
    for (const label of LABELS) {
      const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
      const { status, text } = await engineRequest('GET', `${list}filters=${filters}`, { timeoutMs: 30_000 });
      if (status !== 200) throw new Error(`Docker could not list each ${kind}: ${text.slice(0, 200)}`);
      for (const item of items(JSON.parse(text))) {
        const mark = JSON.stringify([item.Labels ?? {}, item.Mounts ?? [], item.Options ?? {}]);
        things.set(`${kind} ${id(item)}`, { kind, id: id(item), name: `${kind} ${name(item)}`, mark });
      }
    }
  }
  return things;
}

/**
 * Names a run's leftovers and removes them. A container that is being removed gets a few seconds to go.
 * @param {{ before: Map<string, unknown>, runId: string, directory: string, alone: boolean }} run - `before`: what was
 *   there already; `directory`: the run's TMPDIR; `alone`: nobody else uses Longshore on this engine
 * @returns {Promise<string[]>} names; empty when the run was clean
 */
export async function removeLeftovers({ before, runId, directory, alone }) {
  const untilMs = Date.now() + SETTLE_MS;
  const isOurs = ({ mark }) => mark.includes(runId) || mark.includes(`${directory}/`);
  for (;;) {
    const fresh = [...(await labelledThings()).entries()].filter(([key]) => !before.has(key)).map(([, thing]) => thing);
    const things = alone ? fresh : fresh.filter(isOurs);
    const processes = markedProcesses(runId, directory);
    if (things.length === 0 && processes.length === 0) return [];
    if (Date.now() < untilMs) {
      await sleep(200);
      continue;
    }
    for (const { pid } of processes) kill(pid);
    for (const { kind, id } of things.filter(isOurs))
      await engineRequest('DELETE', REMOVE[kind](encodeURIComponent(id)), { timeoutMs: 60_000 });
    return [...things.map(({ name }) => name), ...processes.map(({ pid, command }) => `process ${pid} (${command})`)];
  }
}

/**
 * The run's processes, by the mark in their environment. Servers
 * that rename themselves lose the mark, but their directory stays.
 */
function markedProcesses(runId, directory) {
  const found = [];
  for (const entry of readdirSync('/proc')) {
    const pid = Number(entry);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    const command = readProc(pid, 'cmdline').replaceAll('\0', ' ').trim();
    if (command === '') continue;
    const marked = readProc(pid, 'environ').includes(`LS_TEST_RUN=${runId}`);
    if (marked || command.includes(`${directory}/`) || workingDirectory(pid).startsWith(`${directory}/`))
      found.push({ pid, command: command.slice(0, 120) });
  }
  return found;
}

function readProc(pid, file) {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}

function workingDirectory(pid) {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return '';
  }
}

function kill(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // it ended by itself
  }
}
