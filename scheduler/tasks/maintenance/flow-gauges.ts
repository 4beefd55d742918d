// Gauge of the tasks that flow control holds.
import type { Registry } from '#shared/metrics.ts';
import { Gauge } from '#shared/metrics.ts';
import type { FlowSweep } from './flow-sweep.ts';

export function registerFlowGauges(registry: Registry, sweep: Pick<FlowSweep, 'held'>, isLeader: () => boolean): void {
  new Gauge({
    name: 'longshore_task_flow_held',
    help: 'Tasks that wait because of flow control, by kind of control, as the last sweep found them; shown by the leader.',
    labelNames: ['control'],
    registers: [registry],
    collect() {
      this.reset();
      if (isLeader()) for (const [control, count] of sweep.held) this.set({ control }, count);
    },
  });
}
