// The image of pause containers, built by scripts/setup/pause-image.mjs: `nft`, a shell, the GPU probe and nothing
// else. Releases carry it as a file.
import { createReadStream, existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { StartupError, messageOf } from '#shared/errors.ts';
import type { ContainerRuntime } from './runtime.ts';

/** Reference of the image, the same as in scripts/setup/pause-image.mjs; raised when the image's content changes. */
export const PAUSE_IMAGE = 'longshore-holder:2';

/** The GPU probe in that image; absent where the image was built without a C compiler. */
export const GPU_PROBE = '/usr/bin/longshore-gpu-probe';

/** The image file of a release, else the file that set-up has built for this user. */
function imageFile(env: Readonly<Record<string, string | undefined>>): string | undefined {
  const cache = env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  const carried = fileURLToPath(new URL('../assets/holder-image.tar', import.meta.url));
  return [carried, join(cache, 'longshore', `${PAUSE_IMAGE.replace(':', '-')}.tar`)].find((path) => existsSync(path));
}

/**
 * Makes sure that the engine has the image.
 * @returns the engine's id of it
 * @throws StartupError `holder_image_missing`
 */
export async function ensurePauseImage(
  runtime: ContainerRuntime,
  env: Readonly<Record<string, string | undefined>> = process.env,
): Promise<string> {
  const here = await runtime.image(PAUSE_IMAGE);
  if (here !== undefined) return here.id;
  const file = imageFile(env);
  if (file === undefined)
    throw new StartupError(
      'holder_image_missing',
      `the engine has no image ${PAUSE_IMAGE}, and this copy of the program does not carry it; run node scripts/setup.mjs, or install a release`,
    );
  try {
    await runtime.importImage(PAUSE_IMAGE, createReadStream(file));
    return (await runtime.image(PAUSE_IMAGE))?.id ?? PAUSE_IMAGE;
  } catch (error) {
    throw new StartupError(
      'holder_image_missing',
      `the engine did not import ${file} as ${PAUSE_IMAGE}: ${messageOf(error)}`,
      { cause: error },
    );
  }
}
