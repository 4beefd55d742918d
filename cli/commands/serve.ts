// `longshore serve`: a handler in a container of its own, which loads what is saved here. Ends with Ctrl-C.
import { sleep } from '#shared/backoff.ts';
import { shellWord } from '#shared/shell-word.ts';
import { Client } from '../client.ts';
import { resolveContext } from '../context.ts';
import type { GlobalOptions } from '../context.ts';
import { createStub, saySkipped } from '../deploy/deploy.ts';
import { appRoot, describeApp, kindOf } from '../deploy/describe.ts';
import type { AppDefinition, HandlerDefinition } from '../deploy/describe.ts';
import { uploadArchive } from '../deploy/upload.ts';
import { CliError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import type { ServeFlags } from '../flags.ts';
import { follow } from '../follow.ts';
import { counted } from '../format.ts';
import { textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { note, print } from '../print.ts';
import { programName } from '../program-name.ts';
import { OwnOutput } from '../serve/own-output.ts';
import { DefinitionChanges } from '../serve/said-once.ts';
import { ServeSession } from '../serve/session.ts';
import type { Reloaded, Sent } from '../serve/session.ts';
import { packFolder } from '../serve/tree.ts';
import type { PackedFolder } from '../serve/tree.ts';
import { foldersIn, watchFolders } from '../serve/watch.ts';
import { SERVED_KINDS } from '#shared/domain/status.ts';
import { callLines } from './call-lines.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Signals that end a session. */
const ENDING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** Files that are named of many. */
const MOST_NAMED = 3;
/** Lines of a container come some tenths of a second after they were printed. */
const QUIET_MS = 700;
/** Longest wait for the last lines of the log. */
const LAST_LINES_MS = 3_000;
const LOOK_MS = 50;

/** @returns the exit code: 130 after Ctrl-C, 0 after the other signals */
export async function runServe(
  target: string,
  { root: rootFlag, gpu }: ServeFlags,
  options: GlobalOptions,
  env: Env,
): Promise<number> {
  const client = new Client(await resolveContext(options, env));
  const over = new AbortController();
  const leaves = new AbortController();
  let code: number = EXIT.ok;
  const end = (signal: NodeJS.Signals): void => {
    if (signal === 'SIGINT') code = EXIT.interrupted;
    // A second one does not wait for the last lines.
    if (over.signal.aborted) leaves.abort();
    over.abort();
  };
  for (const signal of ENDING) process.on(signal, end);
  try {
    const say = speaker(options.json === true);
    const own = new OwnOutput();
    const { app, handler, files } = await readApp(target, rootFlag, { gpu, env }, own);
    const kind = kindOf(handler);
    saySkipped(files.found, say.step);
    const objectId = await uploadArchive(client, files.archive, say.step).finally(() => files.archive.remove());
    const fields = async () => ({ stubType: `${kind}/serve`, objectId, forceCreate: true });
    const stubId = await createStub(client, handler, fields, say.step);
    const url = textField(await client.gateway('GET', `/stubs/${stubId}/url`), 'url');
    let isFirst = true;
    const definition = new DefinitionChanges(handler);
    let checking = Promise.resolve();
    const session = new ServeSession({
      client,
      stubId,
      root: app.root,
      uploaded: files.tree,
      signal: over.signal,
      onNote: say.step,
      onServing: (containerId) => {
        if (isFirst) say.serving({ handler, stubId, containerId, url, lines: linesOf(handler, kind, url, env) });
        else say.step(`container ${containerId.slice(-8)} serves in place of the one before`);
        isFirst = false;
      },
      onReloaded: (reloaded) => {
        say.reloaded(reloaded);
        checking = checking.then(() => checkDefinition(definition, target, rootFlag, { gpu, env }, say.step));
      },
      onSent: say.sent,
      own,
    });
    const watching = watchFolders(app.root, own.hasPath.bind(own), () => {
      void session.sync().then(
        () => watching.follow(foldersIn(session.files.keys())),
        (error: unknown) => say.step(`the folder cannot be read: ${(error as Error).message}`),
      );
    });
    watching.follow(foldersIn(files.tree.keys()));
    let lastAtMs = -Infinity;
    const onLine = (line: JsonObject): void => {
      lastAtMs = performance.now();
      say.line(line);
    };
    const logs = followLogs(client, stubId, onLine, leaves.signal);
    try {
      await session.keep();
    } finally {
      over.abort();
      watching.close();
      if (await session.end()) say.step('ended: the container stops');
      else say.step('the scheduler could not be told: the container stops within a minute');
      if (!isFirst) await lastLines(() => lastAtMs, leaves.signal);
      leaves.abort();
      await logs;
    }
    return code;
  } finally {
    for (const signal of ENDING) process.off(signal, end);
    await client.close();
  }
}

/** Waits until no line of the log has come for a moment. */
async function lastLines(lastAtMs: () => number, signal: AbortSignal): Promise<void> {
  const endedAtMs = performance.now();
  const isOver = (nowMs: number): boolean =>
    nowMs - Math.max(endedAtMs, lastAtMs()) >= QUIET_MS || nowMs - endedAtMs >= LAST_LINES_MS;
  while (!isOver(performance.now()) && (await sleep(LOOK_MS, signal)));
}

interface ReadApp {
  readonly app: AppDefinition;
  readonly handler: HandlerDefinition;
  readonly files: PackedFolder;
}

interface Asked {
  readonly gpu: string | undefined;
  readonly env: Env;
}

/** Packs the files while Python reads the definition. A definition that is refused ends the packing. */
async function readApp(
  target: string,
  rootFlag: string | undefined,
  { gpu, env }: Asked,
  own: OwnOutput,
): Promise<ReadApp> {
  const refused = new AbortController();
  const packing = packFolder(appRoot(target, rootFlag), own, refused.signal);
  // A failure of the packing is told after the definition was read.
  packing.catch(() => undefined);
  try {
    const app = await describeApp(target, rootFlag, env);
    const handler = withGpu(app.handler, gpu);
    checkKind(handler, target, programName(env));
    return { app, handler, files: await packing };
  } catch (error) {
    refused.abort();
    await packing.then(
      ({ archive }) => archive.remove(),
      () => undefined,
    );
    throw error;
  }
}

function withGpu(handler: HandlerDefinition, gpu: string | undefined): HandlerDefinition {
  if (gpu === undefined) return handler;
  const count = handler['gpuCount'];
  return { ...handler, gpu, gpuCount: typeof count === 'number' && count > 0 ? count : 1 };
}

/** @throws CliError naming the command for handlers that no development server serves */
function checkKind(handler: HandlerDefinition, target: string, program: string): void {
  const kind = kindOf(handler);
  if (SERVED_KINDS.some((one) => one === kind)) return;
  const instead =
    kind === 'schedule'
      ? `\`${program} deploy ${shellWord(target)}\`, then \`${program} invoke ${shellWord(handler.name)} --kind schedule\` runs it at once`
      : `\`${program} deploy ${shellWord(target)}\`, and \`${program} container shell\` or \`container cp\` to work in it`;
  throw new CliError(`serve is for ${SERVED_KINDS.join(', ')} handlers, and ${handler.name} is a ${kind}: ${instead}`);
}

function linesOf(handler: HandlerDefinition, kind: string, url: string, env: Env): readonly string[] {
  const isPublic = handler['authorized'] === false;
  const { isRealtime = false, name, requiredInputs } = handler;
  const shown = { hostUrl: null, isPublic, isRealtime, kind, name, ports: [], requiredInputs, url };
  // A development server has no name to invoke it by.
  return callLines(shown, programName(env)).filter((line) => line.startsWith('curl') || line.startsWith('WebSockets'));
}

/** Says so when the file defines another recipe now: only a new session has another container. */
async function checkDefinition(
  definition: DefinitionChanges,
  target: string,
  rootFlag: string | undefined,
  { gpu, env }: Asked,
  step: (line: string) => void,
): Promise<void> {
  const now = await describeApp(target, rootFlag, env).catch(() => undefined);
  if (now === undefined) return;
  const changed = definition.news(withGpu(now.handler, gpu));
  if (changed.length > 0) step(`${changed.join(', ')} changed: end this session and start it again to have that`);
}

function followLogs(
  client: Client,
  stubId: string,
  onLine: (line: JsonObject) => void,
  signal: AbortSignal,
): Promise<void> {
  return client
    .workspaceId()
    .then((workspaceId) =>
      follow(client, `/logs/${workspaceId}/stream?stub_id=${stubId}&seq_num=1`, {
        onRecord: ({ event, data }) => {
          if (event === 'log') onLine(JSON.parse(data) as JsonObject);
        },
        signal,
        onNote: () => undefined,
      }),
    )
    .catch((error: unknown) => note(`its output cannot be shown: ${(error as Error).message}`));
}

interface Serving {
  readonly handler: HandlerDefinition;
  readonly stubId: string;
  readonly containerId: string;
  readonly url: string;
  readonly lines: readonly string[];
}

interface Speaker {
  readonly step: (line: string) => void;
  readonly serving: (serving: Serving) => void;
  readonly reloaded: (reloaded: Reloaded) => void;
  readonly sent: (sent: Sent) => void;
  readonly line: (line: JsonObject) => void;
}

/** With `--json`, a line of JSON for each thing that happens. */
function speaker(asJson: boolean): Speaker {
  if (asJson) {
    const tell = (kind: string, value: object): void => print(JSON.stringify({ kind, ...value }));
    return {
      step: (text) => tell('note', { text }),
      serving: ({ handler, stubId, containerId, url }) =>
        tell('serving', { name: handler.name, stubId, containerId, url }),
      reloaded: (reloaded) => tell('reloaded', reloaded),
      sent: (sent) => tell('sent', { ...sent, paths: sent.paths.slice(0, MOST_NAMED) }),
      line: (line) => tell('log', line),
    };
  }
  return {
    step: note,
    serving: ({ handler, containerId, lines }) => {
      print(
        `${handler.name} is served by container ${containerId.slice(-8)}; what you save is loaded. Ctrl-C ends it.`,
      );
      print('');
      for (const line of lines) print(`  ${line}`);
      print('');
    },
    reloaded: (reloaded) => note(reloadText(reloaded)),
    sent: (sent) => note(sentText(sent)),
    line: (line) => print(logText(line)),
  };
}

const countsOf = (files: number, removed: number): string =>
  [...(files > 0 ? [`${counted(files, 'file')} sent`] : []), ...(removed > 0 ? [`${removed} removed`] : [])].join(', ');

/** @internal exported for its test */
export function sentText({ files, removed, paths }: Sent): string {
  const named = paths.slice(0, MOST_NAMED).join(', ');
  const more = paths.length > MOST_NAMED ? ', …' : '';
  return `${countsOf(files, removed)} without a reload: ${named}${more} (no code that the program has loaded)`;
}

/** @internal exported for its test */
export function reloadText({ files, removed, state, error, tookMs }: Reloaded): string {
  const counts = countsOf(files, removed);
  if (state === 'loaded') return `reloaded in ${tookMs} ms (${counts})`;
  if (state === 'loading') return `${counts}; the app still loads: calls wait for it`;
  return `${counts}; the app could not be loaded: ${error}`;
}

/** A line of output, with the end of the id of the task that wrote it. */
function logText(line: JsonObject): string {
  const time = textField(line, 'timestamp').slice(11, 23);
  const task = textField(line, 'task_id').slice(-8) || '-'.padEnd(8);
  return `${time} ${task} ${textField(line, 'message')}`;
}
