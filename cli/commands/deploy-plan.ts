// `longshore deploy --dry-run`: prints what a deploy would do, and what is wrong. Exit code 1 when something is.
import type { Client } from '../client.ts';
import type { DeployPlan, FilesPlan, ImagePlan, VolumePlan } from '../deploy/plan.ts';
import { planFiles, planItem } from '../deploy/plan.ts';
import type { DeployTargets, FailedItem } from '../deploy/targets.ts';
import { CliError } from '../errors.ts';
import { bytesOf, counted } from '../format.ts';
import { print, printError, printJson } from '../print.ts';
import { settingRows, settingsOfRequest } from './deployment-settings.ts';

/** Files that are listed by name; of more, the largest are. */
const MOST_FILES = 20;

export async function runDeployPlan(
  client: Client,
  { items, failed }: DeployTargets,
  flags: { readonly name?: string | undefined; readonly isJson: boolean },
): Promise<number> {
  const plans: DeployPlan[] = [];
  const wrong: FailedItem[] = [...failed];
  for (const item of items) plans.push(await planItem(client, item, flags.name));
  const files: FilesPlan[] = [];
  for (const root of new Set(items.map((item) => item.root))) {
    try {
      files.push(await planFiles(client, root));
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      wrong.push({ target: root, error });
    }
  }
  const problems = plans.reduce((sum, plan) => sum + plan.problems.length, 0) + wrong.length;
  if (flags.isJson) {
    const unread = wrong.map(({ target, error }) => ({ target, error: error.message }));
    printJson({ ok: problems === 0, deployments: plans, files, failed: unread });
    return problems === 0 ? 0 : 1;
  }
  for (const plan of plans) for (const line of [...planLines(plan), '']) print(line);
  for (const one of files) for (const line of [...filesLines(one), '']) print(line);
  for (const { target, error } of wrong) printError(`${target}: ${error.message}`);
  print(
    problems === 0
      ? 'nothing was changed: without --dry-run this is deployed'
      : `nothing was changed: ${counted(problems, 'problem')}`,
  );
  return problems === 0 ? 0 : 1;
}

/** @internal exported for its test */
export function planLines(plan: DeployPlan): readonly string[] {
  const { config } = plan;
  const rows: (readonly [string, string])[] = [
    ['from', plan.target],
    ...(config === null ? [] : settingRows(settingsOfRequest(config), plan.retriedAfter)),
    ...plan.volumes.map((volume) => ['volume', volumeText(volume)] as const),
    ...(plan.secrets.length === 0 ? [] : [['secrets', plan.secrets.join(', ')] as const]),
    ['image', imageText(plan.image)],
  ];
  return [
    `${plan.name} (${plan.kind}) would be version ${plan.version}`,
    ...rows.map(([name, text]) => `  ${name.padEnd(11)} ${text}`),
    ...plan.image.steps.map((step, index) => `    ${index + 1}. ${step}`),
    ...(plan.image.context === null ? [] : filesLines(plan.image.context).map((line) => `    ${line}`)),
    ...plan.problems.map((text) => `  problem: ${text}`),
    ...plan.warnings.map((text) => `  warning: ${text}`),
  ];
}

function volumeText({ name, mountPath, kind, exists }: VolumePlan): string {
  const note = exists === false ? ', would be made' : '';
  return `${kind === 'bucket' ? 'bucket ' : ''}${name} at ${mountPath}${note}`;
}

function imageText(image: ImagePlan): string {
  if (image.kind === 'base') return `the base image of ${image.pythonVersion}`;
  if (image.kind === 'named') return image.name;
  if (image.exists) return `${image.name}, built already`;
  return `would be built${image.steps.length === 0 ? '' : `, ${counted(image.steps.length, 'step')}:`}`;
}

/** @internal exported for its test */
export function filesLines(plan: FilesPlan): readonly string[] {
  const shown =
    plan.files.length <= MOST_FILES
      ? plan.files
      : plan.files.toSorted((a, b) => b.bytes - a.bytes).slice(0, MOST_FILES);
  const width = Math.max(0, ...shown.map(({ path }) => path.length));
  const hidden = plan.files.length - shown.length;
  return [
    `${plan.directory}: ${counted(plan.files.length, 'file')}, ${bytesOf(plan.totalBytes)}; ${
      plan.isThere ? 'uploaded already' : `would upload ${bytesOf(plan.archiveBytes)}`
    }`,
    ...shown.map(({ path, bytes }) => `  ${path.padEnd(width)}  ${bytesOf(bytes)}`),
    ...(hidden === 0 ? [] : [`  and ${counted(hidden, 'smaller file')}`]),
    ...plan.leftOut.map((path) => `  left out: ${path}, a link to nothing or to a directory, or no file`),
  ];
}
