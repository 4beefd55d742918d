// Where objects are kept: files below the data directory, or a bucket when one is named.
import { join } from 'node:path';
import { StartupError } from '#shared/errors.ts';
import type { SchedulerSettings } from '../config.ts';
import type { ObjectBackend } from '../objects/backend.ts';
import { openFileObjects } from '../objects/files.ts';

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
  // The client is large: whoever keeps files never loads it.
  const { openS3Objects } = await import('../objects/s3.ts');
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
