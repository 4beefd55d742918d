// GPUs of the fleet: which are busy, free and out, who holds them, and what brings one back.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Timestamp, nullable } from '../fields.ts';
import { Count, OneOf, listOf } from './lists.ts';
import { QueryInteger, QueryText } from './query.ts';

export const GpuQuery = Type.Object({
  pool: QueryText('of that pool alone'),
  machine: QueryText('of that machine alone'),
  state: QueryText('leased, free, blocked, out, or idle: leased and not used'),
  limit: QueryInteger('of a page: 50 when absent or 0, 1000 at most'),
  cursor: QueryText('next of the page before'),
});

export const GpuRecord = Type.Object({
  machine_id: Type.String(),
  hostname: Type.String(),
  pool_name: Type.String(),
  uuid: Type.String(),
  index: Count('of the driver; it may change with a boot'),
  model: Type.String(),
  memory_bytes: Count(),
  parent_uuid: Type.String({ description: 'of a MIG slice: the device that it is part of' }),
  standing: OneOf(['leased', 'free', 'blocked', 'out']),
  state: Type.String({ description: 'of the device, as `longshore machine gpu list` shows it' }),
  why: Type.String({ description: 'why it is out, or why its machine takes nothing new; empty: neither' }),
  steps: Type.Array(Type.String(), { description: 'what brings it back, in order' }),
  holder: nullable(
    Type.Object({
      container_id: Type.String(),
      workspace_id: nullable(Type.String()),
      deployment_id: nullable(Type.String()),
      name: Type.String({ description: 'of its deployment, else of its stub; empty: not known' }),
      since: Timestamp(),
    }),
  ),
  utilization_pct: nullable(Type.Number({ description: 'null: the driver does not tell it, as of MIG slices' })),
  memory_used_bytes: nullable(Count()),
  power_watts: nullable(Count()),
  temperature_celsius: nullable(Type.Integer()),
  sampled_at: Timestamp({ description: 'null: nothing current is known of its use' }),
  idle_since: Timestamp({ description: 'its holder has used less than 5 % of it since then, 10 minutes at least' }),
});
export type GpuRecord = Static<typeof GpuRecord>;

const GpuCounts = Type.Object(
  { total: Count(), leased: Count(), free: Count(), blocked: Count(), out: Count(), idle: Count() },
  { description: 'of all of the pool and machine, on any page and in any state; the idle ones are leased, too' },
);

export const GpuList = Type.Object({ ...listOf(GpuRecord).properties, counts: GpuCounts });
export type GpuList = Static<typeof GpuList>;

export const GpuMapQuery = Type.Object({
  pool: QueryText('of that pool alone'),
  limit: QueryInteger('machines of a page: 100 when absent or 0, 1000 at most'),
  cursor: QueryText('next of the page before'),
});

export const GpuMachine = Type.Object({
  id: Type.String({ description: 'of the machine' }),
  hostname: Type.String(),
  pool_name: Type.String(),
  model: Type.String({ description: 'of its GPUs; several are separated by commas' }),
  marks: Type.String({
    description: 'a letter for each GPU, in the order of GET /gpu: Leased, Idle though leased, Free, Blocked, X: out',
  }),
  holders: Type.Array(Type.String(), { description: 'name of the holder of each GPU; empty: nobody, or not known' }),
});
export type GpuMachine = Static<typeof GpuMachine>;

export const GpuMapList = Type.Object({
  ...listOf(GpuMachine).properties,
  counts: GpuCounts,
  pools: Type.Array(Type.String(), { description: 'all pools with GPUs, whatever the filter' }),
});
export type GpuMapList = Static<typeof GpuMapList>;
