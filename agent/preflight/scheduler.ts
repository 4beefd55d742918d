// Checks whether the scheduler can be reached, by which proxy, is the one this machine trusts, and agrees about the
// time. Nothing secret is sent.
import { X509Certificate } from 'node:crypto';
import type { AgentLinkClient, ChallengeResponse__Output } from '#shared/protocol/generated/messages.ts';
import { AppError, messageOf } from '#shared/errors.ts';
import type { AgentConfig } from '../config.ts';
import { parseJoinToken } from '../config.ts';
import { openChannel } from '../upstream/channel.ts';
import type { Identity } from '../upstream/identity.ts';
import type { Proxy, Route } from '../proxy.ts';
import { routeTo } from '../proxy.ts';
import { readTrustedCa } from '../upstream/trust.ts';
import { dialThrough } from '../upstream/tunnel.ts';
import type { Finding } from './finding.ts';
import { failed, ok, warning } from './finding.ts';

const DEADLINE_MS = 10_000;
const SKEW_WARNED_MS = 5_000;
const SKEW_FAILED_MS = 30_000;

export async function schedulerFindings(config: AgentConfig, identity: Identity | undefined): Promise<Finding[]> {
  const token = parseJoinToken(config.LONGSHORE_JOIN_TOKEN ?? '');
  const address = config.LONGSHORE_SCHEDULER_ADDRESS ?? identity?.address;
  const fingerprint =
    identity === undefined
      ? token?.fingerprint
      : new X509Certificate(identity.caPem).fingerprint256.replaceAll(':', '').toLowerCase();
  const joined = joinFinding(identity, token !== undefined);
  if (address === undefined)
    return [
      joined,
      failed('scheduler', 'its address is not set', 'set LONGSHORE_SCHEDULER_ADDRESS to its host:port (1995)'),
    ];
  const { proxy, why, problem } = routeChecked(address, config);
  if (problem !== undefined) return [joined, problem];
  const byProxy = proxy === undefined ? ok('proxy', `none for ${address}: ${why}`) : await proxyFinding(proxy, address);
  if (fingerprint === undefined || byProxy.level === 'failed') return [joined, byProxy];
  try {
    const caPem = await readTrustedCa(address, fingerprint, proxy);
    const found = ok('scheduler', `${address} answers, and is the one that is trusted`);
    return [joined, byProxy, found, await clockFinding(openChannel(address, caPem, proxy))];
  } catch (error) {
    const isWrong = error instanceof AppError && error.code === 'wrong_scheduler';
    const remedy = isWrong
      ? proxy === undefined
        ? 'check the address, or take a join token from that scheduler'
        : 'check the address; a proxy that opens TLS (inspection) must let this address through as it is, or have it in NO_PROXY'
      : 'check the address, the name service and the firewalls between: the port (1995) must be reachable from here';
    const cause = !isWrong && error instanceof Error && error.cause !== undefined ? ` (${messageOf(error.cause)})` : '';
    return [joined, byProxy, failed('scheduler', `${messageOf(error)}${cause}`, remedy)];
  }
}

function joinFinding(identity: Identity | undefined, hasToken: boolean): Finding {
  if (identity !== undefined) return ok('joined', `as machine ${identity.machineId} of the pool ${identity.poolName}`);
  if (hasToken) return ok('joined', 'not yet; there is a join token');
  return failed(
    'joined',
    'no, and there is no join token',
    'make one with `longshore machine create` and put it into a file that LONGSHORE_JOIN_TOKEN_FILE names',
  );
}

/** The route to an address from the identity, which the check of the settings did not cover. */
function routeChecked(address: string, config: AgentConfig): Route & { readonly problem?: Finding } {
  try {
    return routeTo(address, config);
  } catch (error) {
    return {
      why: '',
      problem: failed('proxy', messageOf(error), 'set a proxy that can be used, or have the address in NO_PROXY'),
    };
  }
}

/** Whether the proxy grants a connection to that address; nothing is sent on it. */
async function proxyFinding(proxy: Proxy, address: string): Promise<Finding> {
  const which = `${address} by ${proxy.shown} (${proxy.setting})`;
  try {
    (await dialThrough(proxy, address)).destroy();
    return ok('proxy', which);
  } catch (error) {
    const cause = error instanceof Error && error.cause !== undefined ? ` (${messageOf(error.cause)})` : '';
    return failed(
      'proxy',
      `${which}: ${messageOf(error)}${cause}`,
      'have the proxy allow CONNECT to this address and port, correct its URL or its password, or have the address in NO_PROXY',
    );
  }
}

/** The scheduler's clock: a challenge carries the second of its creation, and is open to everybody. */
async function clockFinding(client: AgentLinkClient): Promise<Finding> {
  try {
    const fromMs = Date.now();
    const { challenge } = await new Promise<ChallengeResponse__Output>((resolve, reject) => {
      client.challenge({ machineId: 'check' }, { deadline: fromMs + DEADLINE_MS }, (error, answer) =>
        answer === undefined ? reject(error ?? new Error('no answer')) : resolve(answer),
      );
    });
    const { iat } = JSON.parse(Buffer.from(challenge.split('.')[1] ?? '', 'base64url').toString()) as { iat: number };
    return clockJudged((Date.now() + fromMs) / 2 - iat * 1000 - 500);
  } catch (error) {
    return warning('clock', `could not be compared with the scheduler's (${messageOf(error)})`, 'try again');
  } finally {
    client.close();
  }
}

/** Judges the clock. Pure. @param aheadMs - lead of the scheduler's clock, exact to about half a second */
export function clockJudged(aheadMs: number): Finding {
  const seconds = Math.abs(aheadMs / 1000).toFixed(0);
  const text = `${seconds} s ${aheadMs < 0 ? 'behind' : 'ahead of'} the scheduler's`;
  const remedy = 'set the clock by NTP (timedatectl set-ntp true), here or on the scheduler';
  if (Math.abs(aheadMs) > SKEW_FAILED_MS) return failed('clock', text, remedy);
  return Math.abs(aheadMs) > SKEW_WARNED_MS ? warning('clock', text, remedy) : ok('clock', 'as the scheduler');
}
