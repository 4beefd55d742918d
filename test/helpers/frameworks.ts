// Applications of web frameworks, deployed by the command line as people do: an example as it is, whose image is built,
// and files that are given an image with the frameworks.
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { MAIN, ROOT } from './platform.ts';
import type { Deployment, Platform } from './platform.ts';
import { pipImage } from './pip-image.ts';
import { TEST_LABEL, runProgram } from './services.ts';

const IMAGE_OF_FILE = /base_image='[^']*'/;

export interface Site extends Deployment {
  /** Path of its URL. */
  readonly path: string;
}

/** FastAPI brings Starlette; uvicorn needs websockets for those. */
const frameworksImage = ({ engine: { client, baseImage, label } }: Platform): Promise<string> =>
  pipImage({
    client,
    baseImage,
    repository: 'longshore-test-frameworks',
    packages: 'fastapi==0.165.0 django==5.2.19 uvicorn==0.54.0 websockets==17.4',
    label: [TEST_LABEL, label],
  });

/**
 * Runs `longshore deploy` on a copy of a file. A `base_image` in it becomes the frameworks' image.
 * @param file - below the repository's root
 * @param beside - names of files beside it that it needs
 */
export async function deployFile(platform: Platform, file: string, beside: readonly string[] = []): Promise<Site> {
  let text = readFileSync(join(ROOT, file), 'utf8');
  if (IMAGE_OF_FILE.test(text)) text = text.replace(IMAGE_OF_FILE, `base_image='${await frameworksImage(platform)}'`);
  const folder = join(platform.directory, file.replaceAll('/', '-').replace('.py', ''));
  mkdirSync(folder);
  writeFileSync(join(folder, 'app.py'), text);
  for (const name of beside) copyFileSync(join(ROOT, dirname(file), name), join(folder, name));
  const env = {
    PATH: process.env['PATH'],
    HOME: platform.directory,
    LONGSHORE_URL: platform.url,
    LONGSHORE_TOKEN: platform.token,
  };
  // No output of its steps: they go to stderr, which runProgram puts before the JSON.
  const said = await runProgram(process.execPath, [MAIN, 'deploy', 'app.py', '--json'], { cwd: folder, env });
  const deployed = JSON.parse(said.slice(said.indexOf('{\n'))) as Deployment;
  return { ...deployed, path: new URL(deployed.url).pathname };
}
