// `longshore enrol-token`: tokens by which many hosts join a pool. A token is shown once, when it is made.
import { createHash } from 'node:crypto';
import { installerPath, joinLine } from '#shared/join-line.ts';
import { userDataOf } from '#shared/user-data.ts';
import { CliError, notFound } from '../errors.ts';
import type { EnrolTokenFlags } from '../flags.ts';
import { ageOf, durationOf } from '../format.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import { note, print, printJson } from '../print.ts';
import { showDone, showList, withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { timeIn } from './token.ts';

/** Prints the token or the user data alone on stdout, for scripts; the description goes to stderr. */
export async function runEnrolTokenCreate(name: string, flags: EnrolTokenFlags, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.gateway('POST', '/enrolment-tokens', {
      name,
      poolName: flags.pool,
      maxMachines: flags.machines,
      ...(flags.expires === undefined ? {} : { expiresInSeconds: secondsUntil(flags.expires, Date.now()) }),
    });
    const token = objectField(answer, 'token');
    const secret = textField(answer, 'secret');
    const channel = textField(answer, 'agentUpstreamBranch');
    const script = await client.call(installerPath(channel), { anonymous: true });
    const place = {
      baseUrl: client.context.url,
      upstream: textField(answer, 'agentUpstreamUrl'),
      channel,
      scriptSha256: script.status === 200 ? createHash('sha256').update(script.body).digest('hex') : null,
    };
    if (invocation.options.json === true) {
      printJson({
        ...answer,
        installLine: place.scriptSha256 === null ? null : joinLine(place, secret),
        ...(flags.userData === undefined ? {} : { userData: userDataOf(place, secret) }),
      });
      return;
    }
    // The document ends with a line end of its own.
    print(flags.userData === undefined ? secret : userDataOf(place, secret).trimEnd());
    const facts = `pool ${textField(token, 'poolName')}, ${numberField(token, 'maxMachines')} machines, expires ${textField(token, 'expiresAt')}`;
    note(`enrolment token ${name} (${facts}); it is shown this once: keep it`);
    if (flags.userData !== undefined && place.scriptSha256 === null)
      note('the scheduler gives out no release: the image of the instances must have the agent');
  });
}

/** Seconds to a time such as `90d` or `2030-01-31`. @internal exported for its test */
export function secondsUntil(text: string, nowMs: number): number {
  const time = timeIn(text, nowMs);
  if (time === null) throw new CliError('--expires never: an enrolment token lasts at most 365 days');
  return Math.max(1, Math.round((Date.parse(time) - nowMs) / 1000));
}

export async function runEnrolTokenList(invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client.gateway('GET', '/enrolment-tokens');
    const nowMs = Date.now();
    showList(
      invocation,
      listField(answer, 'tokens'),
      ['ID', 'NAME', 'POOL', 'STATE', 'MACHINES', 'EXPIRES', 'LAST USED', 'CREATED', 'BY'],
      (token) => [
        textField(token, 'id'),
        textField(token, 'name'),
        textField(token, 'poolName'),
        textField(token, 'state'),
        `${numberField(token, 'machines')} of ${numberField(token, 'maxMachines')}`,
        textField(token, 'state') === 'active'
          ? `in ${durationOf(new Date(nowMs).toISOString(), textField(token, 'expiresAt'), nowMs)}`
          : '-',
        agoOf(textField(token, 'lastUsedAt'), nowMs),
        agoOf(textField(token, 'createdAt'), nowMs),
        textField(token, 'createdBy'),
      ],
    );
  });
}

const agoOf = (time: string, nowMs: number): string => (time === '' ? 'never' : `${ageOf(time, nowMs)} ago`);

export async function runEnrolTokenRevoke(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const answer = await client
      .gateway('DELETE', `/enrolment-tokens/${encodeURIComponent(reference)}`)
      .catch((error: unknown) => {
        if (!(error instanceof CliError) || error.message !== 'enrolment token not found') throw error;
        throw notFound(`there is no enrolment token ${reference}: \`longshore enrol-token list\` shows them`, error);
      });
    const token = objectField(answer, 'token');
    const machines = numberField(token, 'machines');
    showDone(invocation, token, [
      `enrolment token ${textField(token, 'name')} is revoked: no host joins by it any more; its machines stay (${machines})`,
    ]);
  });
}
