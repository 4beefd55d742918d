/**
 * The Docker Engine. A running engine is used as it is and never restarted. An installed one
 * is started: by systemd where it manages services, otherwise by hand, detached. A record
 * names the engine that set-up started, so that a test run ends its own engine only.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, openSync, closeSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { userInfo } from 'node:os';
import { engineAddress, pingEngine } from './engine-api.mjs';
import { SetupError } from './log.mjs';
import { stateDir } from './paths.mjs';
import { asRoot, hasSystemd } from './privilege.mjs';
import { findProgram, run } from './run.mjs';

const START_TIMEOUT_MS = 60_000;
const PID_FILE = '/var/run/docker.pid';
const record = () => join(stateDir(), 'engine.json');

/** The command that starts an installed engine here, for a user with the right to. */
export function startEngineCommand() {
  return hasSystemd() ? 'systemctl start docker' : '(setsid dockerd >/var/log/dockerd.log 2>&1 </dev/null &)';
}

/** The engine's state, determined before anything is installed, so that one command can name every cure. */
export async function engineState() {
  const answer = await pingEngine();
  if (answer === 'up') return 'up';
  if (answer === 'no_permission') return 'no_permission';
  const { text, explicit } = engineAddress();
  if (explicit) {
    throw new SetupError(
      `DOCKER_HOST names the Docker Engine at ${text}, and it does not answer.\nStart that engine, or unset DOCKER_HOST to use the one of this machine.`,
    );
  }
  if (answer === 'silent') {
    throw new SetupError(
      `The Docker Engine at ${text} takes connections and does not answer. It is hung, and set-up never restarts a running engine.\n` +
        `Restart it yourself: ${hasSystemd() ? 'sudo systemctl restart docker' : 'end its process, then start dockerd'}.`,
    );
  }
  return findProgram('dockerd') === undefined ? 'not_installed' : 'stopped';
}

/** The sentence for a user who may not use the socket. */
export function permissionText() {
  const { username } = userInfo();
  return (
    `No permission to use the Docker Engine: user ${username} may not open ${engineAddress().text}.\n` +
    `Run once \`sudo usermod -aG docker ${username}\` and log in again, or run this command as root.`
  );
}

/**
 * Makes sure that an engine answers; installs nothing.
 * @param {{ say(line: string): void, step<T>(title: string, work: () => Promise<T>): Promise<T> }} log
 * @returns {Promise<'up' | 'no_permission'>} `no_permission`: it runs, and this user may not use it
 * @throws SetupError when it cannot be started
 */
export async function ensureEngine(log) {
  const state = await engineState();
  if (state === 'up' || state === 'no_permission') return state;
  if (state === 'not_installed') throw new SetupError('Docker Engine (dockerd) is not installed.');
  if (!hasSystemd()) return startByHand(log);
  const [command, args] = await asRoot('systemctl', ['start', 'docker']);
  return log.step('starting the Docker Engine (systemctl start docker)', async () => {
    await run(command, args, { name: 'systemctl', timeoutMs: START_TIMEOUT_MS });
    return waitForEngine(() => true, 'journalctl -u docker');
  });
}

async function startByHand(log) {
  mkdirSync(stateDir(), { recursive: true });
  const logFile = join(stateDir(), 'dockerd.log');
  // A pid file of a killed engine makes the next one refuse to start, while the pid may belong to any process by now.
  if (existsSync(PID_FILE) && !isDockerd(pidIn(PID_FILE))) {
    const [remove, removeArgs] = await asRoot('rm', ['-f', PID_FILE]);
    await run(remove, removeArgs);
  }
  const [command, args] = await asRoot(findProgram('dockerd') ?? 'dockerd', []);
  const title = `starting the Docker Engine (dockerd, by hand: no systemd here; log ${logFile})`;
  const { answer, pid } = await log.step(title, async () => {
    const output = openSync(logFile, 'a');
    const child = spawn(command, args, { detached: true, stdio: ['ignore', output, output], cwd: '/' });
    closeSync(output);
    let ended = false;
    child.once('error', () => (ended = true));
    child.once('exit', () => (ended = true));
    child.unref();
    const came = await waitForEngine(() => !ended, logFile);
    const engine = pidIn(PID_FILE);
    // Another set-up may have been faster: then its engine answers, and this program must not end it.
    if (ended || engine === undefined || !isWithin(engine, child.pid)) return { answer: came };
    writeFileSync(record(), JSON.stringify({ pid: engine, startTicks: startTicks(engine) }));
    return { answer: came, pid: engine };
  });
  if (pid !== undefined && process.env.CI === undefined)
    log.say(`  this engine stays up after you leave; to end it: ${process.getuid?.() === 0 ? '' : 'sudo '}kill ${pid}`);
  return answer;
}

/** Waits for an answer; `alive` tells whether the started engine still runs (another may win the race). */
async function waitForEngine(alive, logFile) {
  const untilMs = Date.now() + START_TIMEOUT_MS;
  let deadSinceMs;
  for (;;) {
    const answer = await pingEngine(2000);
    if (answer === 'up' || answer === 'no_permission') return answer;
    if (!alive()) deadSinceMs ??= Date.now();
    const gone = deadSinceMs !== undefined && Date.now() - deadSinceMs > 3000;
    if (gone || Date.now() > untilMs) throw new SetupError(`The Docker Engine did not start.${tailOf(logFile)}`);
    await sleep(100);
  }
}

function tailOf(file) {
  if (!existsSync(file)) return ` See: ${file}`;
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n').slice(-12).join('\n  ');
  return ` The end of ${file}:\n  ${lines}`;
}

function pidIn(file) {
  try {
    const pid = Number.parseInt(readFileSync(file, 'utf8'), 10);
    return Number.isInteger(pid) && pid > 1 ? pid : undefined;
  } catch {
    return undefined;
  }
}

/** A zombie has an empty command line; `kill -0` would still find it. */
function isDockerd(pid) {
  try {
    return pid !== undefined && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('dockerd');
  } catch {
    return false;
  }
}

/** Field 22 of /proc/PID/stat: with the pid it names one process for good, even after the number is reused. */
function startTicks(pid) {
  return statFields(pid)[19];
}

/** Whether the process is the other one or its descendant; sudo may stand between. */
function isWithin(pid, ancestor) {
  for (let at = pid, steps = 0; at > 1 && steps < 5; steps += 1) {
    if (at === ancestor) return true;
    at = Number(statFields(at)[1]);
  }
  return false;
}

function statFields(pid) {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ');
  } catch {
    return [];
  }
}

/**
 * Ends the engine that this state directory's set-up started, if it still runs, and only that one.
 * @returns {Promise<'none' | 'stopped' | 'still_running'>}
 */
export async function stopStartedEngine() {
  if (!existsSync(record())) return 'none';
  const { pid, startTicks: ticks } = JSON.parse(readFileSync(record(), 'utf8'));
  const lives = () => isDockerd(pid) && startTicks(pid) === ticks;
  if (lives()) {
    const [command, args] = await asRoot('kill', ['-TERM', String(pid)]);
    await run(command, args, { allowFailure: true });
    for (let waited = 0; lives() && waited < 300; waited += 1) await sleep(100);
  }
  if (lives()) return 'still_running';
  rmSync(record(), { force: true });
  return 'stopped';
}
