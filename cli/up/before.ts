// Checks for causes that would end a start, before anything is started. Each part checks
// again later, and the later check counts. Only a certain cause ends the start here.
import { createServer } from 'node:net';
import { messageOf } from '#shared/errors.ts';
import { CliError, errorCode } from '../errors.ts';
import { daemonEnv } from './settings.ts';
import type { UpSettings } from './settings.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Settings whose values need no check here: any text is valid. */
const FREE: ReadonlySet<string> = new Set([
  'LONGSHORE_DATA_DIR',
  'LONGSHORE_HTTP_ADDRESS',
  'LONGSHORE_AGENT_ADDRESS',
  'LONGSHORE_BASE_IMAGE',
]);

/** @throws CliError naming every wrong or unknown setting of a daemon */
export async function judgeSettings(settings: UpSettings, env: Env): Promise<void> {
  const said = Object.entries(daemonEnv(env)).filter(([, value]) => value !== undefined && value !== '');
  // The schemas cost this process 14 MiB for its whole life, so they load only when a setting needs judging.
  if (!said.some(([name]) => name === 'DOCKER_HOST' || (name.startsWith('LONGSHORE_') && !FREE.has(name)))) return;
  const [{ loadConfig }, { SETTING_NAMES }, { SchedulerSettings }, { loadAgentConfig }] = await Promise.all([
    import('#shared/config.ts'),
    import('#shared/settings.ts'),
    import('#scheduler/config.ts'),
    import('#agent/config.ts'),
  ]);
  const given = { ...daemonEnv(env), LONGSHORE_DATA_DIR: settings.dataDir };
  try {
    loadConfig(SchedulerSettings, given, { known: SETTING_NAMES });
    // `up` sets the scheduler's address and the join token itself, so the person's values for them are not judged.
    loadAgentConfig({ ...given, LONGSHORE_SCHEDULER_ADDRESS: '', LONGSHORE_JOIN_TOKEN: 'none' });
  } catch (error) {
    throw new CliError(messageOf(error), { cause: error });
  }
}

/**
 * Call it when nothing of an earlier start is left.
 * @throws CliError naming the setting of a port that another program has
 */
export async function lookAtPorts(settings: UpSettings, env: Env): Promise<void> {
  const addresses = {
    LONGSHORE_HTTP_ADDRESS: settings.httpAddress,
    LONGSHORE_AGENT_ADDRESS: settings.agentAddress,
    LONGSHORE_AGENT_METRICS_ADDRESS: env['LONGSHORE_AGENT_METRICS_ADDRESS'] || '127.0.0.1:9464',
  };
  for (const [name, address] of Object.entries(addresses)) {
    if (!(await isTaken(address))) continue;
    throw new CliError(
      `cannot listen on ${address}: another program has that port; stop it or set ${name} to a free one (port 0 picks one)`,
    );
  }
}

/** @returns false also when the check fails for another cause: the daemon that listens there later reports it */
async function isTaken(address: string): Promise<boolean> {
  const [, host = '', port = '0'] = /^(.*):(\d{1,5})$/.exec(address) ?? [];
  if (Number(port) === 0 || Number(port) > 65_535) return false;
  const server = createServer((socket) => socket.destroy());
  return new Promise((resolve) => {
    server.once('error', (error) => resolve(errorCode(error) === 'EADDRINUSE'));
    server.listen({ host: host.replace(/^\[|\]$/g, '') || '::', port: Number(port) }, () =>
      server.close(() => resolve(false)),
    );
  });
}
