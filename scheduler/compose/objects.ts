// Objects and the bodies of tasks: their store, and the collector of objects that nothing refers to. The store is files
// below the data directory, or a bucket when one is named.
import { join } from 'node:path';
import { StartupError } from '#shared/errors.ts';
import type { Part } from '#shared/lifecycle.ts';
import type { SchedulerSettings } from '../config.ts';
import type { ObjectBackend } from '../stores/objects/backend.ts';
import { ObjectCollector, ObjectMetrics } from '../stores/objects/collector.ts';
import { openFileObjects } from '../stores/objects/files.ts';
import type { Objects } from '../stores/objects/service.ts';
import { createObjects } from '../stores/objects/service.ts';
import { TaskBodies, taskOfInputKey } from '../tasks/dispatch/bodies.ts';
import type { ClusterState } from './cluster-state.ts';
import type { Infrastructure } from './infrastructure.ts';
import type { Identity } from './identity.ts';

const HOUR_MS = 3_600_000;

export interface ObjectParts {
  readonly objects: Objects;
  readonly bodies: TaskBodies;
  readonly collecting: Part;
  /** Part that closes the store. */
  readonly closing: Part;
}

/** @throws StartupError `bad_config`, `object_store_failed` */
export async function openObjects(
  { db, clock, log, registry, settings }: Infrastructure,
  { installation, limits }: Identity,
  { leaderLoop }: ClusterState,
): Promise<ObjectParts> {
  const backend = await openObjectBackend(settings);
  const objects = createObjects({
    db,
    backend,
    installation,
    maxObjectBytes: settings.LONGSHORE_MAX_OBJECT_BYTES,
    quotaOf: async (workspaceId) => {
      const { counts, bytes } = await limits.of(workspaceId);
      return { objects: counts.objects, bytes: bytes.objects };
    },
    clock,
  });
  const collector = new ObjectCollector({
    db,
    kept: () => objects.keptBytes(),
    remove: (key) => objects.removeBytes(key),
    takeUploads: (beforeMs, most) => objects.takeUploads(beforeMs, most),
    isOthers: (key) => taskOfInputKey(key) !== undefined,
    metrics: new ObjectMetrics(registry),
    clock,
    log,
    graceMs: settings.LONGSHORE_OBJECT_GRACE_HOURS * HOUR_MS,
  });
  const bodies = new TaskBodies(objects, {
    maxResultBytes: settings.LONGSHORE_MAX_RESULT_BYTES,
    maxInputBytes: settings.LONGSHORE_MAX_INVOKE_BODY_BYTES,
  });
  const collecting = leaderLoop({
    name: 'object collector',
    everyMs: HOUR_MS,
    round: (signal) => collector.round(signal),
    failed: 'unused objects were not collected, trying again',
  });
  return { objects, bodies, collecting, closing: { name: 'objects', stop: () => backend.close?.() } };
}

/** @throws StartupError `bad_config`, `object_store_failed` */
export async function openObjectBackend(settings: SchedulerSettings): Promise<ObjectBackend> {
  const bucket = settings.LONGSHORE_OBJECTS_BUCKET;
  if (bucket === undefined) return await openFileObjects(join(settings.LONGSHORE_DATA_DIR, 'objects'));
  const accessKeyId = settings.LONGSHORE_OBJECTS_ACCESS_KEY_ID;
  const secretAccessKey = settings.LONGSHORE_OBJECTS_SECRET_ACCESS_KEY;
  if ((accessKeyId === undefined) !== (secretAccessKey === undefined)) {
    const text =
      'LONGSHORE_OBJECTS_ACCESS_KEY_ID and LONGSHORE_OBJECTS_SECRET_ACCESS_KEY belong together: set both, or neither';
    throw new StartupError('bad_config', `settings are wrong:\n  ${text}`);
  }
  // The client is large: a scheduler that keeps files never loads it.
  const { openS3Objects } = await import('../stores/objects/s3.ts');
  return await openS3Objects({
    bucket,
    endpoint: settings.LONGSHORE_OBJECTS_ENDPOINT,
    region: settings.LONGSHORE_OBJECTS_REGION,
    pathStyle: settings.LONGSHORE_OBJECTS_PATH_STYLE,
    prefix: settings.LONGSHORE_OBJECTS_PREFIX,
    credentials:
      accessKeyId === undefined || secretAccessKey === undefined ? undefined : { accessKeyId, secretAccessKey },
  });
}
