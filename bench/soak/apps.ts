// The soak's deployments, made by the gateway's operations as any client makes them.
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Client } from '#cli/client.ts';
import { packFiles } from '#cli/deploy/archive.ts';
import { uploadArchive } from '#cli/deploy/upload.ts';
import { collectFiles } from '#cli/deploy/files.ts';
import type { Caller } from './caller.ts';

export interface SoakApp {
  readonly name: string;
  readonly stubId: string;
  readonly deploymentId: string;
  readonly url: string;
}

export interface AppFields {
  readonly name: string;
  /** A function of the archive's app.py. */
  readonly handler: string;
  readonly kind?: 'endpoint' | 'taskqueue';
  readonly [field: string]: unknown;
}

const APP = join(fileURLToPath(new URL('.', import.meta.url)), 'app');

/** @param directory - whose app.py has the handlers @returns the id of the uploaded archive */
export async function uploadApp(client: Client, directory = APP): Promise<string> {
  const archive = await packFiles(await collectFiles(directory));
  try {
    return await uploadArchive(client, archive, () => undefined);
  } finally {
    await archive.remove();
  }
}

/** Makes the stub and the next version under that name. */
export async function deploySoakApp(caller: Caller, objectId: string, fields: AppFields): Promise<SoakApp> {
  const { name, handler, kind = 'endpoint', ...rest } = fields;
  const stub = await caller.gateway('/stubs', {
    body: {
      objectId,
      stubType: `${kind}/deployment`,
      name,
      handler: `app:${handler}`,
      cpu: 250,
      memory: 128,
      timeout: 30,
      keepWarmSeconds: 5,
      maxPendingTasks: 100,
      ...rest,
    },
  });
  const stubId = String(stub['stubId']);
  // A rollout would let an older version with a ready container answer the next call of the name.
  const deployed = await caller.gateway('/stubs/deploy', { body: { stubId, name, rollout: 'now' } });
  return { name, stubId, deploymentId: String(deployed['deploymentId']), url: String(deployed['invokeUrl']) };
}
