// What `up` asks the container engine before it starts anything: whether one answers at all, and which Python images it holds. The agent asks much more of it later, by a client
// of its own, which would be too much for a supervisor to keep in memory.
import { Agent, request } from 'undici';
import { connectionOptions } from '#agent/containers/docker-options.ts';
import { engineFailure } from '#agent/preflight/engine.ts';
import { isRecord } from '#shared/json.ts';
import { CliError, errorCode } from '../errors.ts';
import { textsField } from '../json.ts';

const ANSWER_MS = 10_000;
const QUERY = `filters=${encodeURIComponent(JSON.stringify({ reference: ['python', 'longshore-python'] }))}`;
/** Nobody is there, or nobody for this user: that will not be otherwise in a moment. */
const NO_ENGINE: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ENOENT',
  'ENOTDIR',
  'EACCES',
  'EPERM',
  'ENOTFOUND',
  'EHOSTUNREACH',
]);

/**
 * @param host - DOCKER_HOST, when it is set
 * @returns tags of the Python images that it holds; none where it answers late or oddly, of which the agent will say more
 * @throws CliError with the cure, where there is no engine to ask
 */
export async function pythonImagesHeld(host: string | undefined): Promise<readonly string[]> {
  const at = connectionOptions(host);
  const agent = new Agent({ connect: 'socketPath' in at ? { socketPath: at.socketPath } : {} });
  const origin = 'socketPath' in at ? 'http://docker' : `http://${at.host}:${at.port}`;
  try {
    const answer = await request(`${origin}/images/json?${QUERY}`, {
      dispatcher: agent,
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    const images: unknown = await answer.body.json();
    return Array.isArray(images) ? images.filter(isRecord).flatMap((image) => textsField(image, 'RepoTags')) : [];
  } catch (error) {
    if (!NO_ENGINE.has(errorCode(error))) return [];
    const { found, remedy } = engineFailure(error, host);
    throw new CliError(`${found}; ${remedy}`, { cause: error });
  } finally {
    await agent.destroy();
  }
}
