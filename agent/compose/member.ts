/**
 * This machine's membership of an installation: its identity, joined once with a token, and the labels that mark its
 * own objects in the engine. Called by the composition root. Must stay true: an agent that has an identity starts
 * without its scheduler; only a token of another installation makes it join again.
 */
import { hostname } from 'node:os';
import type { ServiceManager } from '#shared/service-manager.ts';
import { JOIN_TOKEN_PATH } from '../config.ts';
import { LABELS } from '../containers/runtime.ts';
import { readHostIdentity } from '../telemetry/host-identity.ts';
import { IdentityFile } from '../upstream/identity.ts';
import type { JoinFacts } from '../upstream/join.ts';
import { isTokenOfAnother, join } from '../upstream/join.ts';
import { emptyTokenFile } from '../upstream/token-file.ts';
import { routeTo } from '../proxy.ts';
import { ownVersion } from '#shared/version.ts';
import type { Host } from './host.ts';

export interface Member {
  readonly identity: IdentityFile;
  readonly joinFacts: JoinFacts;
  /** Empty once the machine is forgotten. */
  readonly machineId: () => string;
  /** The current machine id and earlier ones. */
  readonly machineIds: () => readonly string[];
  /** Labels of everything that this agent creates in the engine. */
  readonly labels: () => Record<string, string>;
}

/**
 * @param extraLabels - labels of every container beside our own
 * @throws StartupError of `join`
 */
export async function joinInstallation(
  { config, log, stateDir }: Host,
  manager: ServiceManager,
  extraLabels: Readonly<Record<string, string>> | undefined,
  signal: AbortSignal,
): Promise<Member> {
  const identity = new IdentityFile(stateDir);
  await identity.open();
  const joinFacts: JoinFacts = {
    address: config.LONGSHORE_SCHEDULER_ADDRESS,
    socketPath: config.LONGSHORE_LINK_SOCKET,
    joinToken: config.LONGSHORE_JOIN_TOKEN,
    tokenPath: JOIN_TOKEN_PATH,
    proxies: config,
    version: ownVersion(),
    host: { hostname: hostname(), identity: await readHostIdentity() },
  };
  const address = joinFacts.address ?? identity.current?.address;
  const proxy = address === undefined ? undefined : routeTo(address, config).proxy;
  if (proxy !== undefined) log.info({ address, proxy: proxy.shown }, 'the scheduler is dialled through a proxy');
  if (identity.current === undefined || isTokenOfAnother(joinFacts, identity.current)) {
    // The unit counts as started: nothing has to be rebuilt, and the scheduler may stay out of reach for long.
    manager.ready('joining');
    await join(identity, joinFacts, log, signal, (why) => manager.status(`joining: ${why}`));
  } else {
    // The process may have been killed between the join and this step.
    await emptyTokenFile(joinFacts.tokenPath, identity.current.joinTokenHash, log);
  }
  const machineId = (): string => identity.current?.machineId ?? '';
  return {
    identity,
    joinFacts,
    machineId,
    machineIds: () => [machineId(), ...(identity.current?.formerMachineIds ?? [])],
    labels: () => ({ ...extraLabels, [LABELS.managed]: '1', [LABELS.machine]: machineId() }),
  };
}
