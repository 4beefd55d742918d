// `longshore version`: this program's version, and the scheduler's when one answers soon.
import { ownVersion } from '#shared/version.ts';
import { isRecord } from '#shared/json.ts';
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import { CliError } from '../errors.ts';
import { textField } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import type { Invocation } from './run.ts';

const ASK_TIMEOUT_MS = 3_000;

interface ServerVersion {
  readonly url: string;
  readonly version: string;
}

/** A scheduler that does not answer is no failure: the command still tells its own version. */
export async function runVersion(invocation: Invocation): Promise<void> {
  const client = {
    version: ownVersion(),
    node: process.versions.node,
    platform: `${process.platform}-${process.arch}`,
  };
  let server: ServerVersion | null = null;
  let why = '';
  try {
    server = await serverVersion(invocation);
  } catch (error) {
    if (!(error instanceof CliError)) throw error;
    why = error.message;
  }
  if (invocation.options.json === true) printJson({ client, server });
  else {
    print(`longshore ${client.version} (Node ${client.node}, ${client.platform})`);
    if (server !== null) print(`scheduler ${server.version} at ${server.url}`);
  }
  if (why !== '') note(`the scheduler's version is not known: ${why}`);
}

async function serverVersion(invocation: Invocation): Promise<ServerVersion> {
  // No token is sent, so none has to be known.
  const client = new Client(await resolveContext({ ...invocation.options, token: '' }, invocation.env));
  try {
    const answer = await client.call('/api/v1/health', { anonymous: true, timeoutMs: ASK_TIMEOUT_MS });
    return { url: client.context.url, version: versionIn(answer.body) || 'unknown' };
  } finally {
    await client.close();
  }
}

function versionIn(body: Buffer): string {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    return isRecord(value) ? textField(value, 'version') : '';
  } catch {
    // A proxy in between may answer anything.
    return '';
  }
}
