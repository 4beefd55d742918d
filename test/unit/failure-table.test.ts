// Every fault that the platform has to bear has tests that bear its
// name. So nobody has to search for them, and none goes away unnoticed.
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { expect, test } from 'vitest';

const TESTS = resolve(import.meta.dirname, '..');

/** Rows about the scheduler; their tests may be in any file. */
const OF_THE_SCHEDULER = [
  'Partition < 90 s',
  'Partition > 90 s',
  'Control plane restart',
  'Redis down',
  'Redis data lost',
  'Scheduler crash mid-step',
  'Leader dies / two leaders',
  'Replica dies',
  'Lost ack / duplicate delivery',
  'Start timeout',
  'Crash loop',
  'Second lease of a GPU',
  'Mass disconnect',
  'Sample error',
  'Late EndTask / cancel race',
];

/**
 * Rows about a host, its engine and its agent, with the file of their tests.
 * Rows about the host, its network or its engine run on simulated hosts.
 */
const OF_A_HOST: Readonly<Record<string, string>> = {
  'Agent crash or upgrade': 'hosts/fleet.test.ts',
  'Machine reboot': 'hosts/fleet.test.ts',
  'Partition < 90 s': 'hosts/fleet.test.ts',
  'Partition > 90 s': 'hosts/fleet.test.ts',
  'Docker restart / hang': 'hosts/engine.test.ts',
  'Lost ack / duplicate delivery': 'hosts/messages.test.ts',
  'Clock skew': 'hosts/messages.test.ts',
  'Volume hang': 'hosts/agent-volumes.test.ts',
  'Pull 429, 5xx, truncated, error line': 'hosts/image-pulls.test.ts',
  'Disk full': 'hosts/disk-full.test.ts',
  OOM: 'hosts/containers.test.ts',
  'Unkillable container': 'hosts/containers.test.ts',
  'Log flood / slow sink': 'hosts/containers.test.ts',
  'Join token replay / expired': 'integration/fleet-identity.test.ts',
  'Stolen credential': 'integration/fleet-identity.test.ts',
  'Drain past deadline': 'hosts/containers.test.ts',
  'DeleteMachine with work': 'hosts/containers.test.ts',
  'GPU Xid / off the bus': 'hosts/agent-gpus.test.ts',
  'nvidia-smi hang': 'hosts/agent-gpus.test.ts',
  'GPU access lost after daemon-reload': 'hosts/agent-gpus.test.ts',
  'Second lease of a GPU': 'hosts/agent-gpus.test.ts',
};

/** Titles of tests and of groups of tests, as they stand in the sources. */
function titles(folder: string): readonly { readonly file: string; readonly title: string }[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return titles(path);
    if (!entry.name.endsWith('.test.ts')) return [];
    const calls = readFileSync(path, 'utf8').matchAll(
      /\b(?:describe|test)(?:\.skipIf\([^)]*\))?\(\s*(?:'([^']+)'|`([^`]+)`|"([^"]+)")/g,
    );
    const file = relative(TESTS, path);
    return [...calls].map((found) => ({ file, title: found[1] ?? found[2] ?? found[3] ?? '' }));
  });
}

const all = titles(TESTS);
const named = (fault: string) => all.filter(({ title }) => title === fault || title.startsWith(`${fault}: `));

for (const fault of OF_THE_SCHEDULER) {
  test(`"${fault}" is tested by that name`, () => {
    expect(named(fault).filter(({ file }) => !/^(?:e2e\/hosts|hosts\/)/.test(file))).not.toEqual([]);
  });
}

for (const [fault, file] of Object.entries(OF_A_HOST)) {
  test(`"${fault}" on a host is tested by that name`, () => {
    expect(named(fault).map((one) => one.file)).toContain(file);
  });
}
