// `longshore machine show`: one machine and the facts of its host.
import { labelsText } from '#shared/domain/labels.ts';
import type { Labels } from '#shared/domain/labels.ts';
import { gpusOf, memoryOf, withNotes } from '../format.ts';
import { listField, numberField, objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { print, printJson, printTable } from '../print.ts';
import { machineNotes } from './machine-notes.ts';
import { hardwareText, offeredCores, offeredMemory } from './machine-size.ts';
import { noSuch } from './no-such.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { machineIdOf } from './whole-ids.ts';

export async function runMachineShow(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const id = await machineIdOf(client, reference);
    const answer = await client.gateway('GET', `/machines?machineId=${encodeURIComponent(id)}`);
    const [machine] = listField(answer, 'machines');
    if (machine === undefined) throw await noSuch(client, 'machine', id);
    if (invocation.options.json === true) {
      printJson(machine);
      return;
    }
    printTable(
      ['MACHINE', textField(machine, 'id')],
      rowsOf(machine).filter(([, value]) => value !== ''),
    );
    for (const line of machineNotes([machine])) print(line);
  });
}

function rowsOf(machine: JsonObject): (readonly [string, string])[] {
  const rows: (readonly [string, string])[] = [
    ['pool', textField(machine, 'poolName')],
    ['status', withNotes(textField(machine, 'status'), textsField(machine, 'conditions'))],
    ['offers', `${offeredCores(machine)} cores, ${offeredMemory(machine)} to containers`],
    ['has', hardwareText(machine)],
    ['GPUs', gpusOf(numberField(machine, 'gpuCount'), textField(machine, 'gpu'))],
    ['labels', labelsText(objectField(machine, 'labels') as Labels)],
    ['agent', textField(machine, 'agentVersion')],
  ];
  return machine['host'] === null ? rows : [...rows, ...hostRows(objectField(machine, 'host'))];
}

function hostRows(host: JsonObject): (readonly [string, string])[] {
  const text = (name: string): string => textField(host, name);
  return [
    ['host', text('hostname')],
    ['system', joined([text('os'), text('kernel'), text('arch')])],
    ['Docker', text('dockerVersion')],
    ['GPU driver', text('gpuDriver')],
    ['made by', `${text('vendor')} ${text('product')}`.trim()],
    ['virtualization', text('virtualization')],
    ['processor', text('cpuModel')],
    ...listField(host, 'numaNodes').map(
      (node) =>
        [
          `NUMA node ${numberField(node, 'id')}`,
          joined([
            textField(node, 'cpus') && `cores ${textField(node, 'cpus')}`,
            memoryOf(Math.round(numberField(node, 'memoryBytes') / 2 ** 20)),
          ]),
        ] as const,
    ),
    ...listField(host, 'nics').map((nic) => [`network ${textField(nic, 'name')}`, nicText(nic)] as const),
    ...listField(host, 'disks').map(
      (disk) =>
        [
          `disk ${textField(disk, 'name')}`,
          joined([textField(disk, 'kind'), gigabytes(numberField(disk, 'bytes')), textField(disk, 'model')]),
        ] as const,
    ),
    ...listField(host, 'fileSystems').map(
      (one) => [`${textField(one, 'holds')} on`, joined([textField(one, 'type'), textField(one, 'device')])] as const,
    ),
    ...listField(host, 'warnings').map(
      (one) =>
        [`warning: ${textField(one, 'check')}`, `${textField(one, 'found')} -> ${textField(one, 'remedy')}`] as const,
    ),
  ];
}

const joined = (parts: readonly string[]): string => parts.filter((part) => part !== '').join(', ');
const gigabytes = (bytes: number): string => `${Math.round(bytes / 1e9)} GB`;

function nicText(nic: JsonObject): string {
  const mbps = numberField(nic, 'speedMbps');
  const node = numberField(nic, 'numaNode');
  return joined([
    nic['up'] === true ? 'up' : 'down',
    mbps === 0 ? '' : mbps < 1000 ? `${mbps} Mbit/s` : `${mbps / 1000} Gbit/s`,
    textField(nic, 'driver'),
    node < 0 ? '' : `NUMA node ${node}`,
  ]);
}
