// Images of an installation under test: built by its API, and as its API shows them.
import { join } from 'node:path';
import { TEST_NODE_FLAGS } from './node-flags.ts';
import type { Platform } from './platform.ts';
import { Daemon, MAIN, jsonOf } from './platform.ts';

const BUILD_MS = 150_000;

export interface Built {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly machines: readonly { readonly id: string }[];
  readonly registry: { readonly digest: string; readonly error: string };
}

/** Builds an image. @throws Error with the output, when there is none */
export async function buildImage(platform: Platform, definition: object): Promise<{ imageId: string; text: string }> {
  // A build with its push takes longer than other calls may.
  const answer = await fetch(`${platform.url}/api/v1/gateway/images/build`, {
    method: 'POST',
    headers: { authorization: `Bearer ${platform.token}`, 'content-type': 'application/json' },
    body: JSON.stringify(definition),
    signal: AbortSignal.timeout(BUILD_MS),
  });
  let received = '';
  try {
    for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) received += part;
  } catch (error) {
    throw new Error(`the build did not end; until then it said ${received}`, { cause: error });
  }
  const results = received
    .trim()
    .split('\n')
    .map((line) => (JSON.parse(line) as { result: { imageId: string; msg: string; success: boolean } }).result);
  const text = results.map(({ msg }) => msg).join('');
  if (results.at(-1)?.success !== true) throw new Error(text);
  return { imageId: results.at(-1)?.imageId ?? '', text };
}

/** An image by its name. */
export const imageOf = async (platform: Platform, name: string): Promise<Built | undefined> =>
  jsonOf<{ data: readonly Built[] }>(await platform.call(`/api/v1/image/${platform.workspaceId}`)).data.find(
    (one) => one.name === name,
  );

/** `longshore registry serve`; its `ready` has the address. */
export function aRegistryDaemon(directory: string, env: () => NodeJS.ProcessEnv): Daemon {
  const command = [process.execPath, ...TEST_NODE_FLAGS, MAIN, 'registry', 'serve'];
  return new Daemon('registry', join(directory, 'registry.log'), env, command);
}
