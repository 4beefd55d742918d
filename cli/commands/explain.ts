// `longshore explain`: why a task, a container or a deployment is as it is, as sentences; `--json` has the numbers.
import { isUuid } from '#shared/domain/ids.ts';
import type { ExplainedAttempt, ExplainedScaling, Explanation } from '#shared/api/explain.ts';
import type { Client } from '../client.ts';
import { painted, styleOfState } from '../colours.ts';
import type { Style } from '../colours.ts';
import { CliError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import { ageOf, counted } from '../format.ts';
import { listField, textField } from '../json.ts';
import { print, printJson, withoutControls } from '../print.ts';
import { attemptLines } from './attempts.ts';
import { CONTAINER, runningId, SHORT } from './container.ts';
import { shownDeployment } from './deployment-reference.ts';
import { withClient } from './run.ts';
import type { Invocation } from './run.ts';
import { taskIdOf } from './whole-ids.ts';

const SHOWN_DECISIONS = 5;

export async function runExplain(reference: string, invocation: Invocation): Promise<void> {
  await withClient(invocation, async (client) => {
    const workspaceId = await client.workspaceId();
    let noDeployment: CliError | undefined;
    const id = await idOf(client, reference).catch((error: unknown) => {
      // The scheduler also finds containers by the names of their stubs.
      if (!(error instanceof CliError) || error.exitCode !== EXIT.notFound || error.status !== undefined) throw error;
      noDeployment = error;
      return reference;
    });
    const path = `/explain/${workspaceId}/${encodeURIComponent(id)}`;
    const found = await client.rest(path).catch(async (error: unknown) => {
      if (!(error instanceof CliError) || error.status !== 404) throw error;
      if (noDeployment !== undefined) throw noDeployment;
      const refusal = await machineRefusal(client, reference, error);
      if (refusal !== undefined) throw refusal;
      const ended = SHORT.test(reference) ? '; a container that ended long ago is meant by its whole id' : '';
      const hint = `\`longshore task list\`, \`container list\` and \`deployment list\` show what there is${ended}`;
      throw new CliError(`there is no task, container or deployment ${reference}: ${hint}`, { cause: error });
    });
    const state = textField(found, 'state');
    if (invocation.options.json === true) printJson(found);
    else for (const line of linesOf(found as unknown as Explanation, Date.now())) print(paintedLine(line, state));
  });
}

/**
 * The refusal of a machine's id, which only `machine show` describes.
 * @returns undefined: no machine has that id, or this token sees none
 * @internal exported for its test
 */
export async function machineRefusal(
  client: Pick<Client, 'gateway'>,
  reference: string,
  cause: unknown,
): Promise<CliError | undefined> {
  if (!/^[0-9a-f]{8}$/.test(reference)) return undefined;
  const answer = await client
    .gateway('GET', `/machines?machineId=${encodeURIComponent(reference)}`)
    .catch(() => undefined);
  if (answer === undefined || listField(answer, 'machines').length === 0) return undefined;
  return new CliError(
    `${reference} is a machine, and explain knows tasks, containers and deployments: \`longshore machine show ${reference}\` tells of a machine`,
    { cause },
  );
}

/**
 * Resolves a reference in this order: a text in the form of an id, the
 * end of a container's id as lists show it, a deployment's name.
 */
async function idOf(client: Client, reference: string): Promise<string> {
  if (isUuid(reference) || CONTAINER.test(reference)) return reference;
  const isShort = SHORT.test(reference);
  const running = isShort ? await runningId(client, reference) : undefined;
  if (running !== undefined) return running;
  const deployment = await shownDeployment(client, reference).catch(async (error: unknown) => {
    const task = await taskIdOf(client, reference);
    if (isUuid(task)) return { id: task };
    // The scheduler also finds removed containers by the end of their ids.
    if (isShort && error instanceof CliError && error.exitCode === EXIT.notFound) return { id: reference };
    if (!(error instanceof CliError) || !/^[0-9a-f-]{4,36}$/i.test(reference)) throw error;
    throw new CliError(`${error.message} (\`longshore task list\` shows the ids of tasks)`, {
      cause: error,
    });
  });
  return deployment.id;
}

const HEADINGS = /^(waits for|its last lines|last decisions|what to do):/;

/** A line with its heading or the state in colour. Output of a container in it gives a terminal no orders. */
function paintedLine(line: string, state: string): string {
  const paint = (style: Style | undefined, text: string): string => painted(style, text, process.stdout);
  return withoutControls(line)
    .replace(HEADINGS, (heading) => paint('bold', heading))
    .replace(` is ${state}`, () => ` is ${paint(styleOfState(state), state)}`);
}

/** @internal exported for its test */
export function linesOf(found: Explanation, nowMs: number): readonly string[] {
  const lines = [`${found.summary}${found.since === null ? '' : ` (for ${ageOf(found.since, nowMs)})`}`];
  if (found.waits_for !== '') lines.push(`waits for: ${found.waits_for}${untilText(found.until, nowMs)}`);
  lines.push(...found.details.map((detail) => `  - ${withTimes(detail, nowMs)}`));
  const attempts = found.task?.attempts ?? [];
  lines.push(
    ...attemptLines(
      attempts,
      (one) => one.attempt,
      (one) => attemptText(one, nowMs),
    ).map((line) => `  ${line}`),
  );
  if (found.container !== null && found.container.message !== '') {
    lines.push(
      'its last lines:',
      ...found.container.message
        .trimEnd()
        .split('\n')
        .slice(-10)
        .map((line) => `  ${line}`),
    );
  }
  if (found.kind === 'deployment' && found.scaling !== null) lines.push(...decisionLines(found.scaling, nowMs));
  if (found.next_steps.length > 0) lines.push('what to do:', ...found.next_steps.map((step) => `  - ${step}`));
  return lines;
}

function attemptText(
  { attempt, container_id: id, outcome, ended_at: endedAt, error }: ExplainedAttempt,
  nowMs: number,
) {
  const ended = endedAt === null ? '' : ` ${ageOf(endedAt, nowMs)} ago`;
  return `attempt ${attempt} in ${id}: ${outcome}${ended}${error === '' ? '' : `: ${error}`}`;
}

function untilText(until: string | null, nowMs: number): string {
  const untilMs = until === null ? Number.NaN : Date.parse(until);
  if (Number.isNaN(untilMs)) return '';
  return untilMs <= nowMs
    ? ' (due now)'
    : `, ${ageOf(new Date(2 * nowMs - untilMs).toISOString(), nowMs)} more at most`;
}

/** Replaces timestamps in sentences by UTC clock times with the time since or until then. */
function withTimes(text: string, nowMs: number): string {
  return text.replaceAll(/\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)(?:\.\d+)?Z/g, (time, clock: string) => {
    const leftMs = Date.parse(time) - nowMs;
    const span = ageOf(new Date(nowMs - Math.abs(leftMs)).toISOString(), nowMs);
    return leftMs >= 0 ? `${clock} UTC (in ${span})` : `${clock} UTC (${span} ago)`;
  });
}

function decisionLines(scaling: ExplainedScaling, nowMs: number): readonly string[] {
  const shown = scaling.decisions.slice(0, SHOWN_DECISIONS);
  if (shown.length === 0) return [];
  return [
    'last decisions:',
    ...shown.map((made) => {
      const times = made.times > 1 ? ` (${counted(made.times, 'time')})` : '';
      const numbers = `${made.live} live, ${made.wanted ?? '?'} wanted, ${made.in_flight === null ? '? tasks' : counted(made.in_flight, 'task')}`;
      return `  ${ageOf(made.until ?? '', nowMs)} ago: ${made.text}${times}; ${numbers}`;
    }),
  ];
}
