/** The image in which tests run systemd as process 1: a small Debian of this machine's own release, built once and kept by the engine. */
import { spawn } from 'node:child_process';
import { engineRequest } from './engine-api.mjs';
import { SetupError } from './log.mjs';
import { operatingSystem } from './packages.mjs';

/** What a host needs that runs the agent as a service, and what the tests use there. */
const PACKAGES = ['systemd', 'systemd-sysv', 'dbus', 'procps', 'curl', 'sudo', 'ca-certificates'];
/** Of this list and these changes: another number, another image. */
const REVISION = 1;
const BUILD_TIMEOUT_MS = 300_000;

/**
 * @param {{ step<T>(title: string, work: () => Promise<T>): Promise<T> }} log
 * @returns {Promise<string>} the image's reference
 */
export async function ensureSystemdImage(log) {
  const suite = operatingSystem().codename || 'bookworm';
  const reference = `longshore-test-systemd:${suite}-${REVISION}`;
  const { status } = await engineRequest('GET', `/images/${encodeURIComponent(reference)}/json`);
  if (status !== 200)
    await log.step(`building the image ${reference} from Debian packages`, () => build(suite, reference));
  return reference;
}

async function build(suite, reference) {
  const left = ['doc', 'man', 'locale'].map((folder) => `--dpkgopt=path-exclude=/usr/share/${folder}/*`);
  const args = ['--quiet', '--variant=minbase', `--include=${PACKAGES.join(',')}`, ...left, suite, '-'];
  // In a process group of its own: when it is ended it ends its whole group, which would be set-up, too.
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
  // No STOPSIGNAL: older engines refuse it here, so whoever starts a container of it names the signal.
  const changes = ['ENV container=docker', 'CMD ["/sbin/init"]'];
  const query = changes.map((change) => `&changes=${encodeURIComponent(change)}`).join('');
  const answer = await engineRequest('POST', `/images/create?fromSrc=-&repo=${repo}&tag=${tag}${query}`, {
    body: child.stdout,
    timeoutMs: BUILD_TIMEOUT_MS,
  });
  // An engine that refuses does so before it has read everything, and nobody would read the rest.
  if (answer.status !== 200) child.kill('SIGTERM');
  else await ended;
  if (answer.status !== 200 || /"error"/.test(answer.text))
    throw new SetupError(`Docker could not import ${reference}: ${answer.text.slice(0, 300)}`);
}
