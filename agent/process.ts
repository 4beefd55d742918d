// The agent as a process: settings from the environment, signals, and messages to and from its parent over the IPC
// channel. Called by the command line and by the unit's program.
import { createLog } from '#shared/log.ts';
import { takeServiceManager } from '#shared/service-manager.ts';
import { straySettings, warnOfStrays } from '#shared/settings.ts';
import { AgentSettings, loadAgentConfig } from './config.ts';
import { createAgent } from './main.ts';

/**
 * Runs the agent as a program: reads the settings, runs until SIGTERM or SIGINT (containers go on) and returns. A
 * parent process receives `{kind: 'ready', metricsAddress}` over IPC at the first connection, and may send `{kind:
 * 'stop', containers: 'keep' | 'stop'}`.
 * @throws StartupError when the agent cannot start: its exit code is 78 for wrong settings
 */
export async function runAgent(env: Readonly<Record<string, string | undefined>>): Promise<void> {
  const manager = takeServiceManager(process.env, () => log);
  const config = loadAgentConfig(env);
  const log = createLog({ name: 'agent', level: config.LONGSHORE_LOG_LEVEL });
  // A parent such as `longshore up` gives one environment to both daemons. The mount helper shares the agent's file.
  if (process.send === undefined)
    warnOfStrays(log, straySettings(env, Object.keys(AgentSettings.properties), ['scheduler']));
  const agent = createAgent(config, log, { manager });
  let toEnd: (containers: 'keep' | 'stop') => void = () => undefined;
  const ended = new Promise<'keep' | 'stop'>((done) => (toEnd = done));
  const onSignal = (): void => toEnd('keep');
  const onMessage = (message: unknown): void => {
    if (typeof message !== 'object' || message === null || !('kind' in message) || message.kind !== 'stop') return;
    toEnd('containers' in message && message.containers === 'stop' ? 'stop' : 'keep');
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('message', onMessage);
  try {
    void agent.connected.then(() => process.send?.({ kind: 'ready', metricsAddress: agent.metricsAddress }));
    const started = agent.start();
    const first = await Promise.race([started.then(() => undefined), ended]);
    if (first !== undefined) started.catch(() => undefined);
    const end = first ?? (await Promise.race([ended, agent.ended]));
    if (typeof end !== 'string') throw end;
    await agent.stop(end);
  } finally {
    process.removeListener('SIGTERM', onSignal);
    process.removeListener('SIGINT', onSignal);
    process.removeListener('message', onMessage);
  }
}
