/**
 * Images in which tests run services as on a machine of their own: a small Debian of this
 * machine's release with extra packages. Each is built once and kept by the engine.
 */
import { spawn } from 'node:child_process';
import { engineRequest } from './engine-api.mjs';
import { SetupError } from './log.mjs';
import { operatingSystem } from './packages.mjs';

const BUILD_TIMEOUT_MS = 600_000;

/**
 * @param {{ step<T>(title: string, work: () => Promise<T>): Promise<T> }} log
 * @param {{
 *   name: string, revision: number, packages: readonly string[], changes: readonly string[], hooks?: readonly string[],
 * }} image
 *   `revision`: of the packages and changes; `changes`: as in a Dockerfile; `hooks`: shell commands with the root
 *   directory in `$1`
 * @returns {Promise<string>} the image's reference
 */
export async function ensureDebianImage(log, image) {
  const suite = operatingSystem().codename || 'bookworm';
  const reference = `${image.name}:${suite}-${image.revision}`;
  const { status } = await engineRequest('GET', `/images/${encodeURIComponent(reference)}/json`);
  if (status !== 200)
    await log.step(`building the image ${reference} from Debian packages`, () => build(suite, reference, image));
  return reference;
}

async function build(suite, reference, { packages, changes, hooks = [] }) {
  const left = ['doc', 'man', 'locale'].map((folder) => `--dpkgopt=path-exclude=/usr/share/${folder}/*`);
  const args = [
    '--quiet',
    '--variant=minbase',
    `--include=${packages.join(',')}`,
    ...left,
    ...hooks.map((hook) => `--customize-hook=${hook}`),
    suite,
    '-',
  ];
  // A process group of its own: when it ends, it ends its whole group, which would include set-up.
  const child = spawn('mmdebstrap', args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: BUILD_TIMEOUT_MS,
    detached: true,
  });
  let errors = '';
  child.stderr.on('data', (chunk) => (errors = (errors + chunk).slice(-2000)));
  const ended = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) =>
      code === 0 ? resolve() : reject(new SetupError(`mmdebstrap exited with ${code}: ${errors.trim()}`)),
    );
  });
  ended.catch(() => child.stdout.destroy());
  const [repo, tag] = reference.split(':');
  const query = changes.map((change) => `&changes=${encodeURIComponent(change)}`).join('');
  const answer = await engineRequest('POST', `/images/create?fromSrc=-&repo=${repo}&tag=${tag}${query}`, {
    body: child.stdout,
    timeoutMs: BUILD_TIMEOUT_MS,
  });
  // An engine that refuses does so before it has read everything, and nobody reads the rest.
  if (answer.status !== 200) child.kill('SIGTERM');
  else await ended;
  if (answer.status !== 200 || /"error"/.test(answer.text))
    throw new SetupError(`Docker could not import ${reference}: ${answer.text.slice(0, 300)}`);
}
