// `longshore deploy` of several handlers: a file's, or a folder's. Nothing of a file is deployed where a handler of the
// file is known to be refused. What fails later hinders no other handler. One table says how it went, and the exit code
// is 1 when something failed. An installation that does not answer or does not accept the token ends it at the first
// handler, with the code of that.
import type { Client } from '../client.ts';
import { deployDefinition, uploadCode } from '../deploy/deploy.ts';
import type { Deployed } from '../deploy/deploy.ts';
import { kindOf } from '../deploy/describe.ts';
import type { SoundTargets } from '../deploy/targets.ts';
import { CliError } from '../errors.ts';
import { EXIT } from '../exit-codes.ts';
import { callLines } from './call-lines.ts';
import { waitForRollout } from './deploy-rollout.ts';
import { counted } from '../format.ts';
import { note, print, printError, printJson, printTable } from '../print.ts';

/** Failures that no handler is the reason of: nobody answers, or the token is not accepted. */
const OF_INSTALLATION: ReadonlySet<number> = new Set([EXIT.refused, EXIT.unreachable]);

export async function deployAll(
  client: Client,
  { items, failed, heldBack }: SoundTargets,
  { isJson, now, program }: { readonly isJson: boolean; readonly now: boolean; readonly program: string },
): Promise<number> {
  const uploads = new Map<string, Promise<string>>();
  const codeOf = (root: string): Promise<string> => {
    const begun = uploads.get(root) ?? uploadCode(client, root, note);
    uploads.set(root, begun);
    return begun;
  };
  const begun: (Deployed & { readonly target: string })[] = [];
  const errors = failed.map(({ target, error }) => ({ target, error: error.message }));
  const rows: string[][] = [];
  for (const { target, root, handler } of items) {
    const onStep = (line: string): void => note(`${handler.name}: ${line}`);
    try {
      const objectId = await codeOf(root);
      const read = { handler, others: [], objectId };
      const one = await deployDefinition(client, read, { name: undefined, reuse: false, now, onStep });
      begun.push({ ...one, target });
      rows.push([one.name, one.kind, `v${one.version}`, one.url]);
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      // The next handler would fail likewise, and the cure is the same.
      if (begun.length === 0 && OF_INSTALLATION.has(error.exitCode)) {
        for (const unread of failed) printError(`${unread.target}: ${unread.error.message}`);
        throw error;
      }
      errors.push({ target, error: error.message });
      rows.push([handler.name, kindOf(handler), 'failed', target]);
    }
  }
  const deployed = await Promise.all(
    begun.map(async (one) => ({ ...one, rollout: await waitForRollout(client, one, program) })),
  );
  const isServed = deployed.every(({ rollout }) => rollout.state === 'done');
  if (isJson) {
    printJson({ deployed, failed: errors, heldBack: heldBack.map(({ target }) => target) });
  } else {
    printTable(
      ['NAME', 'KIND', 'VERSION', 'URL'],
      [
        ...rows,
        ...[...new Set(failed.map(({ target }) => target))].map((target) => [handlerOf(target), '-', 'failed', target]),
        ...heldBack.map(({ handler, target }) => [handler.name, kindOf(handler), 'held back', target]),
      ],
    );
    if (errors.length > 0) print(`\n${counted(deployed.length, 'deployment')}, ${counted(errors.length, 'problem')}`);
    printCalls(
      deployed.filter(({ rollout }) => rollout.state === 'done'),
      program,
    );
  }
  for (const { target, error } of errors) printError(`${target}: ${error}`);
  if (heldBack.length > 0)
    note(
      `nothing was changed for ${counted(heldBack.length, 'handler')} of the same file: correct it, and deploy it again`,
    );
  return errors.length === 0 && isServed ? 0 : 1;
}

/** Name of the handler in `app.py:handler`; `-` for a file. */
const handlerOf = (target: string): string => /\.py:([^:]+)$/.exec(target)?.[1] ?? '-';

/** How the first deployment of each kind is called, and the first that is public: the others are called likewise. */
function printCalls(deployed: readonly Deployed[], program: string): void {
  const kinds = new Set<string>();
  const firsts = deployed.filter(({ kind, isRealtime, isPublic }) => {
    const manner = `${isRealtime === true ? 'realtime' : kind} ${isPublic}`;
    return !kinds.has(manner) && kinds.add(manner).has(manner);
  });
  if (firsts.length === 0) return;
  print('\nCall them:');
  for (const line of firsts.flatMap((one) => callLines(one, program))) print(`  ${line}`);
}
