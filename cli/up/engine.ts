// Asks the container engine two questions before anything starts: whether it answers, and which Python images it
// holds. The agent asks much more later, with a client of its own that would be too large for a supervisor's memory.
import { Agent, request } from 'undici';
import { connectionOptions } from '#agent/containers/engine/options.ts';
import { engineFailure } from '#agent/preflight/engine.ts';
import { isRecord } from '#shared/json.ts';
import { CliError, errorCode } from '../errors.ts';
import { textsField } from '../json.ts';

const ANSWER_MS = 10_000;
const QUERY = `filters=${encodeURIComponent(JSON.stringify({ reference: ['python', 'longshore-python'] }))}`;
/** No engine, or none for this user: a retry would not help. */
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
 * @returns tags of the Python images that the engine holds; none
 *   when the answer is late or odd, which the agent reports
 * @throws CliError with the cure, when no engine answers
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
