import type { Clock } from '#shared/clock.ts';
import type { Log } from '#shared/log.ts';
import type { Dispatcher } from '../dispatch/dispatcher.ts';
import type { LastAttempts } from '../dispatch/last-attempts.ts';
import type { Leases } from '../dispatch/leases.ts';
import type { Replies } from '../dispatch/replies.ts';
import type { Presentation } from '../../domain/endings.ts';
import type { DueTimes } from '../../stores/queues/due.ts';
import type { TaskJob } from '../../stores/queues/jobs.ts';
import type { TaskQueues } from '../../stores/queues/task-queues.ts';
import type { Attempt, Attempts } from '../dispatch/attempts.ts';
import type { Bodies } from '../dispatch/bodies.ts';
import type { Changes } from '../records/changes.ts';
import type { GracePeriods } from '../maintenance/grace-periods.ts';
import type { TaskMetrics } from '../metrics.ts';
import type { TaskRecords } from '../records/records.ts';

/** Parts that ending attempts needs. */
export interface CompletionParts {
  readonly queues: TaskQueues;
  readonly records: TaskRecords;
  readonly leases: Leases;
  readonly lastAttempts: LastAttempts;
  readonly changes: Changes;
  readonly bodies: Bodies;
  /** Fixed texts for callers of the reasons why tasks end. */
  readonly textOf: Presentation['textOf'];
  readonly replies: Replies;
  readonly attempts: Attempts;
  readonly due: DueTimes;
  readonly graces: Pick<GracePeriods, 'againMs' | 'endMs'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: TaskMetrics;
  readonly dispatcher: Dispatcher;
  readonly signal: AbortSignal;
  /** Writes the changed queue entry of an asynchronous task to its row. */
  readonly keepJob: (job: TaskJob) => Promise<void>;
  readonly onAttemptEnded: (attempt: Attempt) => void;
}
