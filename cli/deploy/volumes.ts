// Maps volume names in an app file to the ids that a stub needs. A missing
// volume is created here, before the first container asks for it. A bucket is no volume, and has no id.
import { isRecord } from '#shared/json.ts';
import type { Client } from '../client.ts';
import { CliError } from '../errors.ts';
import { listField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';

export interface StubVolume {
  readonly id: string;
  readonly mountPath: string;
  /** A bucket, as the app file describes it. */
  readonly config?: JsonObject;
}

/** @throws CliError naming the volume that cannot be had */
export async function resolveVolumes(client: Client, definition: JsonObject): Promise<readonly StubVolume[]> {
  const resolved: StubVolume[] = [];
  const ids = new Map<string, string>();
  for (const wanted of listField(definition, 'volumes')) {
    const name = textField(wanted, 'name');
    if (isRecord(wanted['config'])) {
      resolved.push({ id: '', mountPath: textField(wanted, 'mountPath'), config: objectField(wanted, 'config') });
      continue;
    }
    const id = ids.get(name) ?? (await volumeId(client, name, textField(wanted, 'driver')));
    ids.set(name, id);
    resolved.push({ id, mountPath: textField(wanted, 'mountPath') });
  }
  return resolved;
}

/** @param driver - empty: its own, or the installation's for a new one */
async function volumeId(client: Client, name: string, driver: string): Promise<string> {
  const answer = await client.gateway('POST', '/volumes', { name, driver }).catch((error: unknown) => {
    if (!(error instanceof CliError)) throw error;
    throw new CliError(`volume ${name}: ${error.message}`, { cause: error });
  });
  const id = textField(objectField(answer, 'volume'), 'id');
  if (id === '') throw new CliError(`volume ${name}: the scheduler's answer has no id`);
  return id;
}
