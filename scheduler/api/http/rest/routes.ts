// Every route of the workspace REST API: surfaces.ts binds them, openapi.json describes them.
import { listAlerts } from './alerts.ts';
import type { AlertRouteParts } from './alerts.ts';
import { appRoutes } from './apps.ts';
import type { AppRouteParts } from './apps.ts';
import { listContainers, listEndedContainers } from './containers.ts';
import { creditRoutes } from './credits.ts';
import type { CreditRouteParts } from './credits.ts';
import { deadLetterRoutes } from './dead-letters.ts';
import type { DeadLetterRouteParts } from './dead-letters.ts';
import { deploymentRoutes } from './deployments.ts';
import type { DeploymentRouteParts } from './deployments.ts';
import { eventRoutes } from './events.ts';
import type { EventRouteParts } from './events.ts';
import { explainRoute, healthRoute } from './explain.ts';
import type { Explains } from './explain.ts';
import type { DeploymentHealth } from '../../explain/health.ts';
import { gpuRoutes } from './gpus.ts';
import type { GpuRouteParts } from './gpus.ts';
import { imageRoutes } from './images.ts';
import type { ImageRouteParts } from './images.ts';
import { signingKeyRoutes } from './keys.ts';
import { settingRoutes } from './settings.ts';
import type { KeyRing } from '../../../workspaces/identity/key-ring.ts';
import type { RuntimeSettings } from '../../../workspaces/identity/runtime-settings.ts';
import type { TokenAdmin } from '../../../workspaces/identity/token-admin.ts';
import type { Tenants } from '../../../workspaces/identity/tenants.ts';
import type { LogReads } from '../../../fleet/logs/log-service.ts';
import type { Secrets } from '../../../workspaces/secrets/service.ts';
import type { WorkspaceRow } from '../../../stores/store/queries/workspaces.ts';
import type { TaskActions } from '../../../tasks/actions.ts';
import type { TaskReads } from '../../../tasks/records/reads.ts';
import { limitRoutes } from './limits.ts';
import type { LimitsParts } from './limits.ts';
import { readLogs } from './logs.ts';
import { liveRoute } from './live.ts';
import type { LiveParts } from './live.ts';
import { logStream } from './log-stream.ts';
import type { LogStreamParts } from './log-stream.ts';
import { metricRoutes } from './metrics.ts';
import type { MetricRouteParts } from './metrics.ts';
import type { RestRoute } from './route.ts';
import type { WorkspaceDeletion } from '../../../workspaces/deletion/deletion.ts';
import { modelRoutes } from './models.ts';
import type { ModelRouteParts } from './models.ts';
import { notBuiltRoutes } from './not-built.ts';
import { downloadUrl } from './objects.ts';
import type { ObjectRouteParts } from './objects.ts';
import { outputRoutes } from './outputs.ts';
import type { OutputRouteParts } from './outputs.ts';
import { publishedVolumeFileRoutes } from './published-volume-files.ts';
import { providerRoutes } from './providers.ts';
import type { ProviderRouteParts } from './providers.ts';
import { preemptContainer } from './preemptions.ts';
import type { PreemptionRouteParts } from './preemptions.ts';
import { recordingRoutes } from './recordings.ts';
import type { RecordingRouteParts } from './recordings.ts';
import { searchRoute } from './search.ts';
import { secretRoutes } from './secrets.ts';
import { sessionRoutes } from './session.ts';
import type { SessionRouteParts } from './session.ts';
import { shareRoutes } from './shares.ts';
import type { ShareRouteParts } from './shares.ts';
import { sharedStateRoutes } from './shared-state.ts';
import type { SharedState } from '../../../workspaces/shared-state/service.ts';
import { stackRoutes } from './stacks.ts';
import type { StackRouteParts } from './stacks.ts';
import { oneStub, stubUrl } from './stubs.ts';
import { subscribeTask } from './subscribe.ts';
import { taskBulkRoutes } from './task-bulk.ts';
import { cancelTasks, listTasks, listTaskSummaries, readTask } from './tasks.ts';
import type { TaskRouteParts } from './tasks.ts';
import { overviewRoute, taskStatsRoute } from './task-stats.ts';
import type { TaskStatsParts } from './task-stats.ts';
import { tokenRoutes } from './tokens.ts';
import { volumeRoutes } from './volumes.ts';
import { waitingRoutes } from './waiting.ts';
import type { WaitingRouteParts } from './waiting.ts';
import type { VolumeRouteParts } from './volumes.ts';
import { webhookRoutes } from './webhooks.ts';
import type { WebhookRouteParts } from './webhooks.ts';
import { currentWorkspace, workspaceRoutes } from './workspace.ts';
import { taskInputRoutes } from './task-inputs.ts';
import type { TaskInputRouteParts } from './task-inputs.ts';
import { workspaceDeletionRoutes } from './workspace-deletion.ts';

export interface RestRouteParts
  extends
    AppRouteParts,
    CreditRouteParts,
    DeploymentRouteParts,
    EventRouteParts,
    Pick<GpuRouteParts, 'gpuMap'>,
    ImageRouteParts,
    LimitsParts,
    MetricRouteParts,
    ModelRouteParts,
    ObjectRouteParts,
    OutputRouteParts,
    PreemptionRouteParts,
    ProviderRouteParts,
    RecordingRouteParts,
    Pick<SessionRouteParts, 'consoleSessions' | 'consoleBaseOf' | 'apartBaseOf' | 'installation' | 'operations'>,
    ShareRouteParts,
    StackRouteParts,
    Pick<TaskInputRouteParts, 'taskInputs' | 'reruns'>,
    Pick<DeadLetterRouteParts, 'deadLetters'>,
    VolumeRouteParts,
    Pick<WaitingRouteParts, 'waiting'>,
    Pick<AlertRouteParts, 'alerts'>,
    WebhookRouteParts {
  readonly clock: EventRouteParts['clock'] & LiveParts['clock'];
  readonly events: EventRouteParts['events'] & LiveParts['events'];
  readonly streams: LiveParts['streams'];
  readonly directory: DeploymentRouteParts['directory'];
  readonly containers: AppRouteParts['containers'] & TaskRouteParts['containers'];
  readonly tasks: Pick<TaskReads, 'read' | 'resultText' | 'list'>;
  readonly taskActions: Pick<TaskActions, 'stopTasks'>;
  readonly queueDepth: TaskRouteParts['queueDepth'];
  readonly tenants: Tenants;
  readonly workspaceDeletion: Pick<WorkspaceDeletion, 'state' | 'begin'>;
  readonly signingKeys: Pick<KeyRing, 'list' | 'rotate' | 'retire'>;
  readonly runtimeSettings: Pick<RuntimeSettings, 'list' | 'set' | 'reset'>;
  readonly signingKeyOf: (workspace: WorkspaceRow) => string;
  readonly logs: LogReads;
  readonly liveLogs: LogStreamParts['liveLogs'];
  readonly explains: Explains;
  readonly deploymentHealth: Pick<DeploymentHealth, 'of'>;
  readonly taskStatistics: TaskStatsParts['taskStatistics'];
  readonly secrets: Secrets;
  readonly tokenAdmin: TokenAdmin;
  readonly sharedState: SharedState;
}

/** All routes. Routes use their services only when they are called, so the description needs none. */
export function restRoutes(parts: RestRouteParts): readonly RestRoute[] {
  const all: readonly RestRoute[] = [
    ...workspaceRoutes(parts.tenants),
    ...workspaceDeletionRoutes(parts.workspaceDeletion),
    ...sessionRoutes(parts, () => all),
    ...limitRoutes(parts),
    ...shareRoutes(parts),
    ...creditRoutes(parts),
    ...signingKeyRoutes(parts.signingKeys),
    ...settingRoutes(parts.runtimeSettings),
    ...providerRoutes(parts),
    ...recordingRoutes(parts),
    ...gpuRoutes(parts),
    ...waitingRoutes(parts),
    listAlerts(parts),
    preemptContainer(parts),
    currentWorkspace(parts),
    readTask(parts),
    listTasks(parts),
    listTaskSummaries(parts),
    cancelTasks(parts.taskActions),
    ...taskInputRoutes(parts),
    ...deadLetterRoutes(parts),
    ...taskBulkRoutes(parts),
    subscribeTask(parts),
    liveRoute(parts, () => all),
    taskStatsRoute(parts),
    overviewRoute(parts),
    searchRoute(parts.directory),
    ...eventRoutes(parts),
    listContainers(parts.containers, parts.directory),
    listEndedContainers(parts.directory),
    ...appRoutes(parts),
    readLogs(parts),
    logStream(parts),
    ...metricRoutes(parts),
    explainRoute(parts.explains),
    healthRoute(parts.deploymentHealth),
    ...secretRoutes(parts.secrets),
    ...tokenRoutes(parts.tokenAdmin),
    ...sharedStateRoutes(parts.sharedState),
    downloadUrl(parts),
    ...outputRoutes(parts),
    ...volumeRoutes(parts),
    ...publishedVolumeFileRoutes(parts),
    ...imageRoutes(parts),
    ...webhookRoutes(parts),
    ...modelRoutes(parts),
    ...stackRoutes(parts),
    ...deploymentRoutes(parts),
    oneStub(parts),
    stubUrl(parts),
    ...notBuiltRoutes,
  ];
  return all;
}
