/**
 * The default image of Python apps: the official slim Python when a registry answers. Otherwise an image built here
 * from this machine's own Debian packages, with the host's CA bundle. An engine's image is found by its tag.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { engineRequest } from './engine-api.mjs';
import { SetupError } from './log.mjs';
import { isDebianLike, operatingSystem } from './packages.mjs';
import { nodeBinary, repositoryRoot } from './paths.mjs';
import { run } from './run.mjs';

const FIRST_PROGRESS_MS = 10_000;
const STALL_MS = 60_000;
const PULL_TIMEOUT_MS = 300_000;
/** Longer than the program's own deadlines together; a test compares them. */
export const MAKE_TIMEOUT_MS = 1_800_000;
const IMPORTED = 'longshore-python';
/** Facts that the agent's program shares: the revision of an image's content, and the Python of each release. */
const FACTS = JSON.parse(readFileSync(join(repositoryRoot, 'agent', 'bases', 'base-images.json'), 'utf8'));

/** The Python of apps that name no version. */
export const DEFAULT_PYTHON = '3.11';

/**
 * Makes sure that the engine holds a base image.
 * @param {{
 *   version?: string,
 *   log: { say(line: string): void, step<T>(title: string, work: () => Promise<T>): Promise<T> },
 * }} options
 *   `version`: Python's, `3.11` by default; where only this system's own Python can be had, that is built, and said
 * @returns {Promise<string>} the image's reference: `python:3.11-slim`, or `longshore-python:3.11` for one made here
 * @throws SetupError when it can be neither pulled nor built
 */
export async function ensureBaseImage({ version = DEFAULT_PYTHON, log }) {
  const official = `python:${version}-slim`;
  if ((await inspect(official)) !== undefined) return official;
  const mine = `${IMPORTED}:${version}`;
  const held = await inspect(mine);
  if (held !== undefined && isCurrent(held)) return mine;
  if (held === undefined) {
    const refused = await log.step(`asking the registry for the base image ${official}`, () =>
      pull('python', `${version}-slim`),
    );
    if (refused === undefined) return official;
    log.say(`  no registry gave it (${refused}); building one from Debian packages instead`);
  }
  const own = packagedPython(version);
  if (own !== version) {
    log.say(
      `  this system packages Python ${own}, so the base image is ${IMPORTED}:${own}; apps that ask for ${version} need a registry`,
    );
    const other = await inspect(`${IMPORTED}:${own}`);
    if (other !== undefined && isCurrent(other)) return `${IMPORTED}:${own}`;
  }
  // The agent makes the images of other versions by the same program, when an app first asks for them.
  const program = join(repositoryRoot, 'agent', 'bases', 'make.ts');
  await log.step(`building the base image ${IMPORTED}:${own} from Debian packages`, () =>
    run(nodeBinary() ?? process.execPath, [program, own], { name: 'base-image', timeoutMs: MAKE_TIMEOUT_MS }),
  );
  return `${IMPORTED}:${own}`;
}

/** The version itself where this system's archive has it; else the system's own. */
function packagedPython(version) {
  const { codename, id, name } = operatingSystem();
  const { debian, ubuntu } = FACTS.releases;
  const own = isDebianLike() ? (debian[codename] ?? ubuntu[codename]) : undefined;
  if (own === undefined)
    throw new SetupError(
      `No registry gives the base image, and on ${name} there are no Debian packages to build it from.\n` +
        'Load an image by hand (`docker load`) and tag it python:3.11-slim.',
    );
  return id === 'debian' && Object.values(debian).includes(version) ? version : own;
}

/** The LONGSHORE_BASE_IMAGE template under which the agent finds this image for its version. */
export function baseImageTemplate(reference) {
  return reference.startsWith(`${IMPORTED}:`) ? `${IMPORTED}:{version}` : 'python:{version}-slim';
}

async function inspect(reference) {
  const { status, text } = await engineRequest('GET', `/images/${encodeURIComponent(reference)}/json`);
  if (status === 404) return undefined;
  if (status !== 200) throw new SetupError(`Docker could not say whether it holds ${reference}: ${messageOf(text)}`);
  return JSON.parse(text);
}

/**
 * Whether the image has today's content and trusts exactly the authorities that this machine trusts; otherwise it is
 * built again. An image without our labels is somebody's own.
 */
function isCurrent(image) {
  const labels = image.Config?.Labels ?? {};
  if (labels['io.longshore.base'] === undefined) return true;
  return labels['io.longshore.base'] === String(FACTS.revision) && labels['io.longshore.base.ca'] === caDigest();
}

function caDigest() {
  try {
    const bundle = process.env.SSL_CERT_FILE || '/etc/ssl/certs/ca-certificates.crt';
    return createHash('sha256').update(readFileSync(bundle)).digest('hex').slice(0, 16);
  } catch {
    return 'none';
  }
}

/** @returns {Promise<string | undefined>} why it could not be pulled, or undefined when it was */
async function pull(name, tag) {
  const stop = new AbortController();
  let why = `no answer within ${FIRST_PROGRESS_MS / 1000} s`;
  let timer = setTimeout(() => stop.abort(), FIRST_PROGRESS_MS);
  const whole = setTimeout(() => {
    why = `not done within ${PULL_TIMEOUT_MS / 1000} s`;
    stop.abort();
  }, PULL_TIMEOUT_MS);
  let text = '';
  try {
    const answer = await engineRequest('POST', `/images/create?fromImage=${name}&tag=${encodeURIComponent(tag)}`, {
      timeoutMs: PULL_TIMEOUT_MS,
      signal: stop.signal,
      onData: (chunk) => {
        text = (text + chunk.toString('utf8')).slice(-8192);
        clearTimeout(timer);
        timer = setTimeout(() => {
          why = `it stalled for ${STALL_MS / 1000} s`;
          stop.abort();
        }, STALL_MS);
      },
    });
    if (answer.status !== 200) return messageOf(answer.text);
    // Status 200 means only that the pull began; the last line has its outcome.
    const failure = /"error":"((?:[^"\\]|\\.)*)"/.exec(text);
    return failure === null ? undefined : messageOf(failure[0]);
  } catch (error) {
    return stop.signal.aborted ? why : String(error?.message ?? error);
  } finally {
    clearTimeout(timer);
    clearTimeout(whole);
  }
}

function messageOf(text) {
  const found = /"(?:message|error)":"((?:[^"\\]|\\.)*)"/.exec(text);
  return (found?.[1] ?? text).replaceAll('\\"', '"').slice(0, 300);
}
