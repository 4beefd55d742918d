// `longshore invoke`: calls a deployment once and prints the answer's bytes unchanged.
import { cureOf, isToldByContainer } from '#shared/domain/task-failures.ts';
import { messageOf } from '#shared/errors.ts';
import { shellWord } from '#shared/shell-word.ts';
import { jsonTextOf } from '#shared/json-text.ts';
import type { JsonText } from '#shared/json-text.ts';
import { isRecord } from '#shared/json.ts';
import { Client, isConnectionLost, isEventStream, sentenceOf } from '../client.ts';
import type { CallOptions, RawAnswer } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { CliError, usageError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import { note, printBytes, printError, printJson } from '../print.ts';
import type { InvokeFlags } from '../flags.ts';
import { deploymentsNamed, parseReference } from './deployment-reference.ts';
import type { DeploymentFacts } from './deployment-reference.ts';
import { configOf, settingsOfRecord } from './deployment-settings.ts';
import { readSource } from '../typed.ts';
import { sayWhatItWaitsFor } from './waiting.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** The event with which a failed generator ends its stream; text of an item contains no line breaks. */
const FAILED_EVENT = '\nevent: error\n';

/** Prints the answer; an error status prints its text on stderr and gives exit code 1. */
export async function runInvoke(name: string, flags: InvokeFlags, options: GlobalOptions, env: Env): Promise<number> {
  const body = await readInput(flags.data);
  const called = targetOf(name, flags);
  const client = new Client(await resolveContext(options, env));
  const answered = new AbortController();
  const call = (kind: string): Promise<RawAnswer> => {
    void sayWhatItWaitsFor(client, referenceOf({ ...called, kind }), note, answered.signal);
    return invoke(client, {
      path: invokePath(kind, called.name, called.version),
      body,
      timeoutMs: flags.timeout * 1000,
      headers: {
        ...(flags.key === undefined ? {} : { 'x-longshore-key': encodeURIComponent(flags.key) }),
        ...(flags.priority === undefined ? {} : { 'x-longshore-priority': String(flags.priority) }),
        ...(flags.idempotencyKey === undefined ? {} : { 'idempotency-key': flags.idempotencyKey }),
      },
      ...(options.json === true ? {} : { onEvents: (part: Uint8Array) => printBytes(part) }),
    });
  };
  try {
    const first = await call(called.kind ?? ENDPOINT);
    const kind = called.kind === undefined && isUnknown(first) ? await otherKindOf(client, called) : undefined;
    const answer = kind === undefined ? first : await call(kind);
    answered.abort();
    const taskId = answer.headers['x-task-id'] ?? '';
    const isReplay = answer.headers['idempotency-replayed'] === 'true';
    if (isReplay && options.json !== true)
      note(`not run again: this is the answer to the first call with that key, task ${taskId}`);
    // The items of a stream came with status 200; a failed generator ends it with an error event.
    const isFailed = answer.status >= 300 || (isEventStream(answer.headers) && answer.body.includes(FAILED_EVENT));
    if (options.json === true)
      printJson({ status: answer.status, taskId, ...(isReplay ? { isReplay } : {}), body: jsonOrText(answer.body) });
    else if (!isEventStream(answer.headers) && !isFailed) printBytes(answer.body, isText(answer.headers));
    // This throws where no deployment has the name.
    const cure = isFailed && taskId === '' ? await uncalledText(client, called, answer) : '';
    if (options.json === true) return exitCodeOf(answer.status, isFailed);
    if (answer.status >= 300) {
      printError(cure === '' ? `${name} answered ${answer.status}: ${failureText(answer)}` : cure);
      const step = cureOf(failureText(answer));
      if (step !== undefined) note(`what to do: ${step}`);
      const detail = cure === '' ? detailOf(answer) : '';
      if (detail !== '' && detail !== failureText(answer)) note(detail);
    }
    if (!isFailed) {
      const begun = begunTask(kind ?? called.kind, answer);
      if (begun !== '') note(`its end and result: longshore task watch ${begun}`);
    } else if (taskId !== '') {
      // The handler of a refused input never ran, so it has no output.
      if (answer.status !== UNPROCESSABLE) note(await taskHint(client, name, answer.status, taskId));
    } else if (answer.status === 503) note(`why: longshore explain ${shellWord(referenceOf(called))}`);
    return exitCodeOf(answer.status, isFailed);
  } catch (error) {
    if (!isConnectionLost(error)) throw error;
    const again = flags.idempotencyKey === undefined ? '' : '; the same command with the same key gives its answer';
    throw new CliError(
      `the connection to ${client.context.url} was lost while the call ran; it may still complete: \`longshore task list --deployment ${shellWord(referenceOf(called))}\`${again}`,
      { cause: error },
    );
  } finally {
    answered.abort();
    await client.close();
  }
}

const isText = (headers: RawAnswer['headers']): boolean =>
  /^(?:text\/|application\/(?:[\w.-]+\+)?json\b)/i.test(headers['content-type'] ?? '');

/** The status of a call whose input the handler does not take. */
const UNPROCESSABLE = 422;

function exitCodeOf(status: number, isFailed: boolean): number {
  if (!isFailed) return EXIT.ok;
  return status === 401 || status === 403 ? EXIT.refused : EXIT.failed;
}

/** The task of a call that is answered before its handler ran; empty: the answer is the handler's. */
function begunTask(kind: string | undefined, answer: RawAnswer): string {
  if (kind === undefined || !ASYNCHRONOUS.has(kind)) return '';
  const value = parsedOrText(answer.body);
  return isRecord(value) ? textField(value, 'task_id') : '';
}

const ASYNCHRONOUS: ReadonlySet<string> = new Set(['taskqueue', 'function', 'schedule']);

/** A short limit: a hint is not worth a long wait. */
const HINT_TIMEOUT_MS = 5_000;

/**
 * The command that explains a failed task. A 503 or 504 means that no handler
 * answered, so its logs hold nothing useful: `explain` tells why it waited.
 */
async function taskHint(client: Client, name: string, status: number, taskId: string): Promise<string> {
  if (status === 503 || status === 504) return `why: longshore explain ${taskId}`;
  const own = `its output: longshore logs --task ${taskId}`;
  try {
    const task = await client.rest(`/task/${await client.workspaceId()}/${taskId}`, HINT_TIMEOUT_MS);
    if (!isToldByContainer(textField(task, 'failure_reason'))) return own;
    const container = textField(task, 'container_id');
    return `its container's output: longshore logs ${container === '' ? shellWord(name) : `--container ${container}`}`;
  } catch {
    return own;
  }
}

/** The deployment that a call goes to. */
interface Target {
  readonly name: string;
  /** undefined: an endpoint of the name, else the kind that the name has. */
  readonly kind: string | undefined;
  readonly version: number | undefined;
}

const ENDPOINT = 'endpoint';

/** Reads `hello`, `hello/v3` and `taskqueue/hello`; flags say the same. @throws CliError when they contradict it */
function targetOf(text: string, flags: InvokeFlags): Target {
  const named = parseReference(text);
  if ('id' in named)
    throw usageError(`${text} is an id, and calls go to names: \`longshore deployment list\` shows the name`);
  for (const [flag, said, wanted] of [
    ['--kind', named.kind, flags.kind],
    ['--version', named.version, flags.version],
  ] as const)
    if (said !== undefined && wanted !== undefined && said !== wanted)
      throw usageError(`${text} and ${flag} ${wanted} say different things: give one of them`);
  return { name: named.name, kind: flags.kind ?? named.kind, version: flags.version ?? named.version };
}

const referenceOf = ({ name, kind, version }: Target): string =>
  `${kind === undefined ? '' : `${kind}/`}${name}${version === undefined ? '' : `/v${version}`}`;

/** No deployment of that kind has the name: nothing was run. */
const isUnknown = (answer: RawAnswer): boolean =>
  (answer.status === 400 || answer.status === 404) && (answer.headers['x-task-id'] ?? '') === '';

/** The kind of a deployment that a caller named without it; undefined: none, several, an endpoint or a pod. */
async function otherKindOf(client: Client, target: Target): Promise<string | undefined> {
  const found = await deploymentsNamed(client, referenceOf(target)).catch(() => []);
  const kinds = [...new Set(found.map((one) => one.kind))];
  const [kind] = kinds;
  return kinds.length === 1 && kind !== ENDPOINT && kind !== 'pod' ? kind : undefined;
}

/**
 * Explains a call that matched no deployment or a stopped one, or whose token is not accepted, and names the cure; the
 * answer itself says less. Empty when none of them is the cause.
 */
async function uncalledText(client: Client, target: Target, answer: RawAnswer): Promise<string> {
  // No task was made, so the answer is about the caller's token.
  if (answer.status === 401) return sentenceOf(401, { message: failureText(answer) }, client.context.url);
  if (answer.status !== 400 && answer.status !== 404) return '';
  try {
    const { kind = ENDPOINT } = target;
    const reference = referenceOf({ ...target, kind: undefined });
    const found = await deploymentsNamed(client, reference);
    const ofKind = found.find((one) => one.kind === kind);
    const [other] = found;
    if (ofKind === undefined && other?.kind === 'pod') return await podText(client, other);
    if (ofKind === undefined && other !== undefined) {
      const kinds = [...new Set(found.map((one) => one.kind))];
      if (kinds.length > 1)
        return `${reference} is the name of several kinds: say ${kinds.map((one) => `--kind ${one}`).join(' or ')}`;
      if (target.kind !== undefined) return `${reference} is of another kind: invoke it with --kind ${other.kind}`;
    }
    // The highest version: calls of the name reach it, unless a newer one is still coming.
    const reached = ofKind ?? other;
    return reached === undefined || reached.active
      ? ''
      : `${reference} is stopped: longshore deployment start ${shellWord(reference)}`;
  } catch (error) {
    if (error instanceof CliError && error.exitCode === EXIT.notFound && error.status === undefined) throw error;
    return '';
  }
}

/** Where a pod is called: at its port, or one of them. */
async function podText(client: Client, { id, name }: Pick<DeploymentFacts, 'id' | 'name'>): Promise<string> {
  const record = await client.rest(`/deployment/${await client.workspaceId()}/${id}`).catch((): JsonObject => ({}));
  const { ports } = settingsOfRecord(configOf(record));
  const [port = 'PORT'] = ports;
  const which =
    ports.length === 1 ? 'its port' : `one of its ports${ports.length === 0 ? '' : ` (${ports.join(', ')})`}`;
  return `${name} is a pod: call ${which}, ${client.context.url}/pod/${encodeURIComponent(name)}/${port}/ (docs/pods.md)`;
}

/** The path form of an invoke URL. */
export function invokePath(kind: string, name: string, version?: number): string {
  const base = `/${encodeURIComponent(kind)}/${encodeURIComponent(name)}`;
  return version === undefined ? base : `${base}/v${version}`;
}

/** Calls a handler with JSON bytes; the answer comes back unread. */
export function invoke(
  client: Client,
  call: { readonly path: string } & Pick<CallOptions, 'body' | 'timeoutMs' | 'onEvents' | 'headers'>,
): Promise<RawAnswer> {
  const { path, ...rest } = call;
  return client.call(path, { method: 'POST', ...rest });
}

/** The text of a failed invocation: `{error}`, `{message}`, or the body itself. */
export function failureText(answer: RawAnswer): string {
  const value = parsedOrText(answer.body);
  if (typeof value === 'object' && value !== null) {
    for (const name of ['error', 'message', 'detail'] as const) {
      const text = (value as Record<string, unknown>)[name];
      if (typeof text === 'string') return text;
    }
  }
  return answer.body.toString('utf8');
}

/** More about a refused call, such as the inputs that the handler takes. */
function detailOf(answer: RawAnswer): string {
  const value = parsedOrText(answer.body);
  return isRecord(value) ? textField(value, 'detail') : '';
}

/** Reads and checks `{…}`, `@file` or `-` before the call, so that a typing mistake costs no task. */
export async function readInput(data: string): Promise<Buffer> {
  const bytes = await readSource(data, '--data');
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw new CliError(
      `--data is not JSON (${messageOf(error)}): give it as '{"name": "you"}', or a file as @input.json`,
      { cause: error, exitCode: EXIT.usage },
    );
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw usageError('--data must be a JSON object, such as {"name": "you"}');
  }
  return bytes;
}

/** The answer's JSON as it came, else its text. */
function jsonOrText(body: Buffer): JsonText | string {
  const text = body.toString('utf8');
  return jsonTextOf(text) ?? text;
}

function parsedOrText(body: Buffer): unknown {
  const text = body.toString('utf8');
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
