import { Type } from 'typebox';
import type { Static } from 'typebox';
import { beyondDocument, Flag, Float, Int32, Int64, ListLimit, Text, Uint32, nullable } from './fields.ts';

export const PathMetric = Type.Object({
  label: Text(),
  path: Text(),
  usedMb: Int64(),
  totalMb: Int64(),
  availableMb: Int64(),
  usagePct: Float(),
});

export const MachineMetrics = Type.Object({
  totalCpuAvailable: Uint32(),
  totalMemoryAvailable: Uint32(),
  cpuUtilizationPct: Float(),
  memoryUtilizationPct: Float(),
  workerCount: Uint32(),
  containerCount: Uint32(),
  freeGpuCount: Uint32(),
  cacheUsagePct: Float(),
  cacheCapacity: Uint32(),
  cacheMemoryUsage: Uint32(),
  cacheCpuUsage: Float(),
  memoryUsedMb: Int64(),
  memoryTotalMb: Int64(),
  diskUsedMb: Int64(),
  diskTotalMb: Int64(),
  diskUsagePct: Float(),
  pathMetrics: Type.Array(PathMetric),
});

export const MachineHost = Type.Object({
  hostname: Text(),
  os: Text(),
  kernel: Text(),
  arch: Text(),
  dockerVersion: Text(),
  gpuDriver: Text(),
  vendor: Text(),
  product: Text(),
  virtualization: Text({ description: '`none` on bare metal; empty: not known' }),
  cpuModel: Text(),
  nics: Type.Array(
    Type.Object({
      name: Text(),
      speedMbps: Uint32({ description: '0: not known' }),
      up: Flag(),
      driver: Text(),
      numaNode: Int32({ description: '-1: none' }),
    }),
  ),
  disks: Type.Array(
    Type.Object({ name: Text(), kind: Text({ description: 'nvme, ssd or hdd' }), bytes: Int64(), model: Text() }),
  ),
  numaNodes: Type.Array(Type.Object({ id: Uint32(), cpus: Text(), memoryBytes: Int64() })),
  fileSystems: Type.Array(
    Type.Object({ holds: Text({ description: 'state or images' }), type: Text(), device: Text() }),
  ),
  warnings: Type.Array(Type.Object({ check: Text(), found: Text(), remedy: Text() }), {
    description: 'of the checks that its agent makes hourly, as `longshore agent check` words them',
  }),
});

export const Machine = Type.Object({
  id: Text(),
  cpu: Int64({ description: 'millicores' }),
  memory: Int64({ description: 'MB' }),
  offered: beyondDocument(
    Type.Object(
      { cpu: Int64({ description: 'millicores' }), memory: Int64({ description: 'MB' }) },
      {
        description:
          'the most that its containers may have together: without what is kept for the host, cores times the cpu_overcommit of the pool',
      },
    ),
  ),
  gpu: Text(),
  gpuCount: Uint32(),
  status: Text(),
  poolName: Text(),
  providerName: Text(),
  registrationToken: Text(),
  tailscaleUrl: Text(),
  tailscaleAuth: Text(),
  lastKeepalive: Text(),
  created: Text(),
  agentVersion: Text(),
  machineMetrics: nullable(MachineMetrics),
  userData: Text(),
  ssh: nullable(Type.Object({})),
  labels: Type.Record(Type.String(), Type.String(), {
    description: 'labels by which apps choose machines: of an operator, of its agent, of its pool',
  }),
  conditions: Type.Array(Text(), { description: 'what is wrong with the machine, such as DiskPressure' }),
  conditionWords: Type.Record(Type.String(), Type.String(), {
    description: 'why, by the name of the condition, where the agent says more than the name',
  }),
  host: nullable(MachineHost),
});
export type Machine = Static<typeof Machine>;

export const ListMachinesRequest = Type.Object({
  poolName: Text(),
  limit: ListLimit(),
  machineId: Text({ description: 'that machine alone, with what its host is made of (`host`, null otherwise)' }),
});
export type ListMachinesRequest = Static<typeof ListMachinesRequest>;

export const ListMachinesResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  machines: Type.Array(Machine),
  gpus: Type.Record(Type.String(), Type.Boolean()),
  supportedGpus: Type.Record(Type.String(), Type.Boolean()),
  maxCpuMillicores: Uint32(),
  maxMemoryMb: Uint32(),
});
export type ListMachinesResponse = Static<typeof ListMachinesResponse>;

export const LabelMachineRequest = Type.Object({
  machineId: Text(),
  set: Type.Optional(
    Type.Record(Type.String(), Type.String(), { description: 'values by the key of a label, at most 32' }),
  ),
  remove: Type.Array(Text(), { description: 'keys of labels that an operator gave it' }),
});
export const LabelMachineResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  labels: Type.Record(Type.String(), Type.String(), { description: 'all that the machine has now' }),
});

export const OneMachineRequest = Type.Object({ machineId: Text() });

export const MachineGpu = Type.Object({
  uuid: Text(),
  model: Text(),
  memoryBytes: Int64(),
  computeCap: Text({ description: 'compute capability, such as 8.9; empty: not known' }),
  pciBusId: Text(),
  nvlinkIsland: Uint32({ description: 'number of its NVLink island on the machine, from 1 on; 0: none is known' }),
  parentUuid: Text({ description: 'of a MIG slice: the device that it is part of' }),
  state: Text({
    description:
      'healthy, unprobed, suspect, unhealthy, lost, quarantined, excluded or in_build: only a healthy one is given to containers',
  }),
  why: Text({ description: 'empty for a healthy one' }),
});
export const ListMachineGpusResponse = Type.Object({ ok: Flag(), errMsg: Text(), gpus: Type.Array(MachineGpu) });
export const ChangeMachineGpuRequest = Type.Object({
  machineId: Text(),
  uuid: Text({ description: 'a GPU, a MIG slice, or a divided GPU for all of its slices' }),
  action: Text({ description: 'exclude, return, reset or forget' }),
});

export const CreateMachineRequest = Type.Object({ poolName: Text() });
export type CreateMachineRequest = Static<typeof CreateMachineRequest>;

export const CreateMachineResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  machine: nullable(Machine),
  agentUpstreamUrl: Text(),
  agentUpstreamBranch: Text(),
  agentUpstreamToken: Text({ description: 'Joins one machine, once, within 30 minutes.' }),
});
export type CreateMachineResponse = Static<typeof CreateMachineResponse>;

export const DeleteMachineRequest = Type.Object({
  machineId: Text(),
  poolName: Text(),
  force: Flag({ description: 'stop everything there, and forget the machine a minute later, whatever is left' }),
});
export type DeleteMachineRequest = Static<typeof DeleteMachineRequest>;
