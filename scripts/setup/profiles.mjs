/**
 * All set-up, in dependency order, for `npm start` and `npm test`. Everything missing is found
 * before anything is installed, so that a person without the right to install gets one command.
 */
import { userInfo } from 'node:os';
import { ensureBaseImage } from './base-image.mjs';
import { beginDatabase } from './database.mjs';
import { ensureEngine, engineState, permissionText, startEngineCommand } from './engine.mjs';
import { ensurePauseImage } from './pause-image.mjs';
import { SetupError } from './log.mjs';
import { ensureNodeModules } from './node-modules.mjs';
import { describePrograms, installCommand, installPrograms, isDebianLike, missingPrograms } from './packages.mjs';
import { isNodeNewEnough } from './paths.mjs';
import { privilege } from './privilege.mjs';
import { ensurePythonOfTests } from './python-tests.mjs';
import { repeatInDockerGroup } from './regroup.mjs';
import { ensureS3Image } from './s3-image.mjs';
import { ensureFirewalldImage } from './firewalld-image.mjs';
import { ensureSystemdImage } from './systemd-image.mjs';

/**
 * `start`: to run Longshore and read the definitions of apps. `test`: the needs
 * of the tests too. `hosts`: the needs of tests on simulated hosts too.
 */
const PROFILES = {
  start: ['redis', 'python'],
  test: ['redis', 'postgres', 'pytest', 'zsh', 'fish', 'jq', 'curl', 'ip', 'mount', 'promtool', 'registry', 'chromium'],
};
// Machines that systemd runs, and the S3 server, use images of their own, which take a while to build.
PROFILES.hosts = [...PROFILES.test, 'mmdebstrap', 'faketime', 's3fs', 'firefox'];

/**
 * @param {keyof typeof PROFILES} profile
 * @param {{ say(line: string): void, step<T>(title: string, work: () => Promise<T>): Promise<T> }} log
 * @returns {Promise<{ baseImage: string }>}
 */
export async function setUp(profile, log) {
  if (!isNodeNewEnough(process.versions.node, 20))
    throw new SetupError(`Node 20 or newer is needed to set up; this is ${process.versions.node}.`);
  if (process.platform !== 'linux')
    throw new SetupError(`Longshore runs on Linux with Docker; this is ${process.platform}.`);
  const engine = await engineState();
  const missing = await missingPrograms(PROFILES[profile]);
  if (engine === 'not_installed') missing.unshift('dockerd');
  if ((await privilege()) === 'none' && (missing.length > 0 || engine !== 'up'))
    throw new SetupError(cureText(missing, engine));
  await ensureNodeModules(log);
  const databasePrepared = beginDatabase();
  if (missing.length > 0) await installPrograms(missing, log);
  if ((await ensureEngine(log)) === 'no_permission') await repeatInDockerGroup(log);
  const baseImage = await ensureBaseImage({ log });
  await ensurePauseImage({ log });
  if (profile !== 'start') await ensurePythonOfTests(log);
  if (profile === 'hosts') {
    await ensureSystemdImage(log);
    await ensureFirewalldImage(log);
    await ensureS3Image(log);
  }
  await databasePrepared(log);
  return { baseImage };
}

/** Names everything missing, and the single command that cures it. */
function cureText(missing, engine) {
  if (missing.length === 0 && engine === 'no_permission') return permissionText();
  const { what } = describePrograms(missing);
  const lacks = [
    ...(missing.length > 0 ? [`not installed: ${what}`] : []),
    ...(engine === 'stopped' ? ['not running: the Docker Engine'] : []),
    ...(engine === 'no_permission' ? ['no permission to use the Docker Engine'] : []),
  ].join('; ');
  if (!isDebianLike()) {
    return `This machine lacks something (${lacks}), and set-up installs on Debian-like systems only. Install it in this system's way, then repeat.`;
  }
  const starts = engine === 'stopped' || engine === 'not_installed' ? [startEngineCommand()] : [];
  const joins = engine === 'up' ? [] : [`usermod -aG docker ${userInfo().username}`];
  return (
    `This machine lacks something (${lacks}), and this user may not change that. Run once, then ` +
    `${joins.length > 0 ? 'log in again and ' : ''}repeat:\n\n  ${installCommand(missing, [...joins, ...starts])}`
  );
}
