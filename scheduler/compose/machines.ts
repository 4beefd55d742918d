// Machines as this replica knows them, their admission, and the reports of their agents.
import type { Clock } from '#shared/clock.ts';
import type { InstanceId, WorkspaceId } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import { AgentReports } from '../fleet/agent-reports.ts';
import type { ContainerRegistry } from '../fleet/containers/container-registry.ts';
import { Enrolment } from '../fleet/enrolment.ts';
import { HostIdentities } from '../fleet/host-identities.ts';
import { Joining } from '../fleet/joining.ts';
import type { MachineEvents } from '../fleet/machine-events.ts';
import { Machines } from '../fleet/machines.ts';
import type { FleetMetrics } from '../fleet/metrics.ts';
import type { MostPools } from '../fleet/pool-admission.ts';
import type { InstallationTrail } from '../workspaces/events/installation-trail.ts';
import type { Db } from '../stores/store/db.ts';

export interface MachineParts {
  readonly machines: Machines;
  readonly joining: Joining;
  readonly enrolment: Enrolment;
  readonly hostIdentities: HostIdentities;
  readonly agentReports: AgentReports;
}

export function openMachines(parts: {
  readonly db: Db;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: FleetMetrics;
  readonly caFingerprint: string;
  /** Containers, whose resources count as used on their machines; absent: there are none. */
  readonly containers?: Pick<ContainerRegistry, 'ofMachine'>;
  /** Most machines of a workspace that may wait to join; absent: the bound of the shared pools. */
  readonly mostUnjoinedOf?: (workspaceId: WorkspaceId) => number | Promise<number>;
  /** Most pools of an owner; absent: the bound of the shared pools. */
  readonly mostPoolsOf?: MostPools;
  /** This replica's id; absent: this process is alone. */
  readonly instance?: InstanceId;
  /** Whether another replica lives: it then holds the links of its machines. */
  readonly isAlive?: (replica: InstanceId) => boolean;
  /** Writer of events; absent: nothing is told. */
  readonly machineEvents?: MachineEvents;
  /** Writer of who made machines; absent: nothing is told. */
  readonly trail?: InstallationTrail;
}): MachineParts {
  const machines = new Machines(parts);
  return {
    machines,
    joining: new Joining({ ...parts, machines }),
    enrolment: new Enrolment({ ...parts, machines }),
    hostIdentities: new HostIdentities({ ...parts, machines }),
    agentReports: new AgentReports({ ...parts, machines }),
  };
}
