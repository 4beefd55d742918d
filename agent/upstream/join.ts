/**
 * Joins an installation and keeps the membership. Swaps the join token for a machine credential, and renews that at
 * half its life. The machine's key proves it when no credential is valid. Must stay true: the secret goes only to the
 * scheduler whose CA the token names; a credential is on disk before it is used.
 */
import { X509Certificate } from 'node:crypto';
import { hostname } from 'node:os';
import type { ServiceError } from '@grpc/grpc-js';
import { AppError, StartupError, messageOf } from '#shared/errors.ts';
import { backoffMs, sleep } from '#shared/backoff.ts';
import { sha256Hex } from '#shared/domain/ids.ts';
import type { Log } from '#shared/log.ts';
import type { ShownHost } from '#shared/protocol/host-header.ts';
import { PROTOCOL_VERSION } from '#shared/protocol/link.ts';
import type {
  AgentLinkClient,
  ChallengeResponse__Output,
  JoinResponse__Output,
  ProveResponse__Output,
  RenewCredentialResponse__Output,
} from '#shared/protocol/generated/messages.ts';
import { parseJoinToken } from '../config.ts';
import { readMachineFingerprint } from '../telemetry/inventory.ts';
import { bearer, openChannel, shows } from './channel.ts';
import type { Identity, IdentityFile } from './identity.ts';
import { newPrivateKey, publicKeyOf, signWith } from './identity.ts';
import { isRevocation } from './revocation.ts';
import type { ProxySettings } from '../proxy.ts';
import { routeTo } from '../proxy.ts';
import { readTrustedCa } from './trust.ts';
import { grpcText, isFull, isRefusal, isTransient, reasonOf } from '../grpc-errors.ts';
import { emptyTokenFile } from './token-file.ts';

const CALL_DEADLINE_MS = 10_000;
const AGAIN = { baseMs: 250, capMs: 10_000, floorMs: 100 };
/** Each try takes a turn at the row of the token, and many hosts may wait for days. */
const FULL_AGAIN = { ...AGAIN, capMs: 60_000 };

export interface JoinFacts {
  readonly address: string | undefined;
  /**
   * Socket of the scheduler on this machine. The join itself uses the address, where the token's fingerprint is
   * checked.
   */
  readonly socketPath?: string | undefined;
  readonly joinToken: string | undefined;
  /** The service's file with the join token: emptied after the join. */
  readonly tokenPath: string;
  readonly proxies: ProxySettings;
  readonly version: string;
  /** The host in which this agent runs. */
  readonly host: ShownHost;
}

/** Whether a token is given that did not create the present identity, and names another installation. */
export function isTokenOfAnother(facts: JoinFacts, identity: Identity): boolean {
  if (!hasNewToken(facts, identity)) return false;
  const fingerprint = new X509Certificate(identity.caPem).fingerprint256.replaceAll(':', '').toLowerCase();
  return parseJoinToken(facts.joinToken ?? '')?.fingerprint !== fingerprint;
}

/** Whether a token is given that did not create the present identity. */
export function hasNewToken(facts: JoinFacts, identity: Identity | undefined): boolean {
  const { joinToken } = facts;
  return (
    joinToken !== undefined &&
    parseJoinToken(joinToken) !== undefined &&
    sha256Hex(joinToken.trim()) !== identity?.joinTokenHash
  );
}

/**
 * Joins with the token; retries until the scheduler answers.
 * @param onFull - told why, each time that the token admits no more machines: the join waits for room. Absent: such a
 *   token is refused
 * @throws StartupError `not_joined`, `join_refused`, `wrong_scheduler`
 */
export async function join(
  file: IdentityFile,
  facts: JoinFacts,
  log: Log,
  signal: AbortSignal,
  onFull?: (why: string) => void,
): Promise<Identity> {
  const { joinToken, address } = facts;
  const token = joinToken === undefined ? undefined : parseJoinToken(joinToken);
  if (joinToken === undefined || token === undefined) {
    throw new StartupError(
      'not_joined',
      'this machine has not joined and has no join token; make one with `longshore machine create` and give it as LONGSHORE_JOIN_TOKEN or LONGSHORE_JOIN_TOKEN_FILE',
      { exitCode: 78 },
    );
  }
  if (address === undefined) {
    throw new StartupError(
      'bad_config',
      'LONGSHORE_SCHEDULER_ADDRESS: missing; set it to host:port of the scheduler (agentUpstreamUrl of CreateMachine)',
      { exitCode: 78 },
    );
  }
  const { proxy } = routeTo(address, facts.proxies);
  const joinTokenHash = sha256Hex(joinToken.trim());
  const privateKey = file.current?.privateKey ?? newPrivateKey();
  for (let tries = 0; ; tries += 1) {
    try {
      const caPem = await readTrustedCa(address, token.fingerprint, proxy);
      const nonce = await file.nonce(joinTokenHash);
      const answer = await callJoin(
        openChannel(address, caPem, proxy),
        {
          joinToken: token.secret,
          nonce,
          machineFingerprint: await readMachineFingerprint(),
          hostname: hostname(),
          publicKey: publicKeyOf(privateKey),
          agentVersion: facts.version,
          protocol: PROTOCOL_VERSION,
          enrolment: token.isEnrolment,
        },
        facts.host,
      );
      await file.save({
        version: 1,
        machineId: answer.machineId,
        poolName: answer.poolName,
        address,
        caPem,
        credential: answer.credential,
        credentialExpiresAtMs: answer.credentialExpiresAtMs,
        credentialSinceMs: Date.now(),
        privateKey,
        installationKey: answer.installationKey,
        joinTokenHash,
        formerMachineIds: [],
      });
      const identity = file.current as Identity;
      log.info({ machineId: identity.machineId, pool: identity.poolName }, 'machine joined');
      await emptyTokenFile(facts.tokenPath, joinTokenHash, log);
      return identity;
    } catch (error) {
      if (error instanceof AppError && error.code === 'wrong_scheduler')
        throw new StartupError('wrong_scheduler', error.message, { cause: error });
      const unreachable = error instanceof AppError && error.code === 'scheduler_unreachable';
      const full = isFull(error);
      if (!unreachable && (!isTransient(error) || (full && onFull === undefined))) {
        throw new StartupError(
          'join_refused',
          token.isEnrolment
            ? `the scheduler refused the enrolment token: ${grpcText(error)}`
            : `the scheduler refused the join token (${grpcText(error)}); each works once and for 30 minutes: make a new one with \`longshore machine create\``,
          // Another start would be refused, too; a disk that is full may have room then.
          { cause: error, ...(isRefusal(error) ? { exitCode: 78 } : {}) },
        );
      }
      if (full) onFull?.(grpcText(error));
      log.info(
        { reason: reasonOf(error), tries },
        full ? 'no room to join; trying again' : 'scheduler cannot be reached to join; trying again',
      );
      if (!(await sleep(backoffMs(tries, full ? FULL_AGAIN : AGAIN), signal)))
        throw new StartupError('join_refused', `stopped before joining: ${messageOf(error)}`, { cause: error });
    }
  }
}

async function callJoin(
  client: AgentLinkClient,
  request: Parameters<AgentLinkClient['join']>[0],
  host: ShownHost,
): Promise<JoinResponse__Output> {
  try {
    return await answered<JoinResponse__Output>((deadline, done) => client.join(request, shows(host), deadline, done));
  } finally {
    client.close();
  }
}

type Done<T> = (error: ServiceError | null, answer?: T) => void;

/** Makes a call with a deadline. */
function answered<T>(call: (options: { readonly deadline: number }, done: Done<T>) => unknown): Promise<T> {
  return new Promise((resolve, reject) => {
    call({ deadline: Date.now() + CALL_DEADLINE_MS }, (error, answer) => {
      if (error !== null) reject(error);
      else if (answer === undefined) reject(new Error('no answer'));
      else resolve(answer);
    });
  });
}

/**
 * Returns to the installation without a valid credential: signs a challenge with the key of the join, and stores the
 * issued credential.
 * @returns `revoked` when the scheduler proves that this machine was deleted
 */
export async function prove(
  client: AgentLinkClient,
  file: IdentityFile,
  host: ShownHost,
): Promise<'proven' | 'revoked'> {
  const identity = file.current;
  if (identity === undefined) throw new Error('not joined');
  const { machineId, privateKey, installationKey } = identity;
  const { challenge } = await answered<ChallengeResponse__Output>((deadline, done) =>
    client.challenge({ machineId }, deadline, done),
  );
  const signature = signWith(privateKey, challenge);
  const answer = await answered<ProveResponse__Output>((deadline, done) =>
    client.prove({ machineId, challenge, signature }, shows(host), deadline, done),
  );
  if (answer.credential === '') {
    if (await isRevocation(answer.revoked?.statement ?? '', machineId, installationKey)) return 'revoked';
    throw new Error('the scheduler gave neither a credential nor a valid revocation');
  }
  await keep(file, identity, answer);
  return 'proven';
}

/** Requests a fresh credential on a session's channel, and stores it. */
export async function renew(client: AgentLinkClient, file: IdentityFile, host: ShownHost): Promise<Identity> {
  const identity = file.current;
  if (identity === undefined) throw new Error('not joined');
  const answer = await answered<RenewCredentialResponse__Output>((deadline, done) =>
    client.renewCredential({}, shows(host, bearer(identity.credential)), deadline, done),
  );
  await keep(file, identity, answer);
  return file.current as Identity;
}

async function keep(
  file: IdentityFile,
  identity: Identity,
  { credential, credentialExpiresAtMs }: RenewCredentialResponse__Output,
): Promise<void> {
  await file.save({ ...identity, credential, credentialExpiresAtMs, credentialSinceMs: Date.now() });
}
