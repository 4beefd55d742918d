/**
 * `node scripts/traces/convert.mjs FORMAT FILE > trace.jsonl`: turns a public trace of a cluster into one that
 * `longshore simulate` runs. docs/simulate.md has the formats. Files are read piece by piece, and lines are put into
 * the order of their time on the disk, so that memory does not grow with them. No data of others is kept here.
 */
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { azure2019, azure2021 } from './azure.mjs';
import { alibaba2020, alibaba2023, helios, philly } from './jobs.mjs';
import { FileError } from './read.mjs';
import { inOrder } from './sort.mjs';

/** Readers of formats, each with the other files that it needs. */
const FORMATS = {
  'azure-2019': { read: azure2019, needs: 'durations' },
  'azure-2021': { read: azure2021 },
  'alibaba-2020': { read: alibaba2020, needs: 'jobs' },
  'alibaba-2023': { read: alibaba2023 },
  philly: { read: philly },
  helios: { read: helios },
};

/** Bounds of a trace, as scheduler/control/simulator/ has them. */
const MOST_DEPLOYMENTS = 20_000;
const MOST_WORKSPACES = 10_000;

/**
 * @typedef {object} Work
 * @property {number} at - seconds, from any begin
 * @property {Readonly<Record<string, unknown>>} deploy - fields of the deployment's line
 * @property {Readonly<Record<string, unknown>>} task - fields of the task's line, but for its time and deployment
 */

/**
 * @typedef {object} Options
 * @property {string} format
 * @property {string} file
 * @property {string} [durations]
 * @property {string} [jobs]
 * @property {string} [gpu]
 * @property {number} [sample]
 * @property {number} [sortAtOnce]
 */

/**
 * The lines of the trace.
 * @param {Options} options
 * @param {{ leftOut: number }} counts - gets the number of rows that are not in the trace
 * @returns {AsyncGenerator<Record<string, unknown>>}
 */
export async function* converted(options, counts) {
  const { read, needs } = FORMATS[options.format] ?? {};
  if (read === undefined)
    throw new FileError(`there is no format ${options.format}; there are ${Object.keys(FORMATS).join(', ')}`);
  if (needs !== undefined && options[needs] === undefined)
    throw new FileError(`${options.format} needs --${needs} with its other file`);
  const known = new Set();
  const workspaces = new Set();
  let first;
  let last = 0;
  for await (const { at, deploy, task } of inOrder(
    sampled(read(options, counts), options.sample, counts),
    options.sortAtOnce,
  )) {
    first ??= at;
    last = Math.round((at - first) * 1000) / 1000;
    const { deployment, workspace } = deploy;
    if (!known.has(deployment)) {
      known.add(deployment);
      workspaces.add(workspace);
      if (known.size > MOST_DEPLOYMENTS || workspaces.size > MOST_WORKSPACES)
        throw new FileError(
          `the trace has more than ${MOST_DEPLOYMENTS} deployments or ${MOST_WORKSPACES} workspaces: take a part of its workspaces, such as --sample 0.1`,
        );
      yield { t: last, kind: 'deploy', ...deploy };
    }
    yield { t: last, kind: 'task', deployment, ...task };
  }
  if (first === undefined) throw new FileError(`${options.file} has no work`);
  yield { t: last, kind: 'end' };
}

/** Takes a part of the workspaces: the same ones each time. */
async function* sampled(works, part, counts) {
  for await (const work of works) {
    if (part !== undefined && hashPart(String(work.deploy.workspace)) >= part) counts.leftOut += 1;
    else yield work;
  }
}

/** A number from 0 up to 1 that the text decides: FNV-1a. */
function hashPart(text) {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1)
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193) >>> 0;
  return (Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d) >>> 0) / 2 ** 32;
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      durations: { type: 'string' },
      jobs: { type: 'string' },
      gpu: { type: 'string' },
      sample: { type: 'string' },
    },
  });
  const [format = '', file = ''] = positionals;
  if (positionals.length !== 2)
    throw new FileError(
      `usage: convert.mjs FORMAT FILE [--durations FILE] [--jobs FILE] [--gpu MODEL] [--sample PART]`,
    );
  const sample = values.sample === undefined ? undefined : Number(values.sample);
  if (sample !== undefined && !(sample > 0 && sample <= 1))
    throw new FileError(`--sample ${values.sample} must be a part above 0, and 1 at most`);
  const counts = { leftOut: 0 };
  let lines = 0;
  for await (const line of converted({ ...values, sample, format, file }, counts)) {
    lines += 1;
    if (!process.stdout.write(`${JSON.stringify(line)}\n`)) await once(process.stdout, 'drain');
  }
  process.stderr.write(`${lines} lines; ${counts.leftOut} rows of ${file} are left out\n`);
}

if (import.meta.main ?? process.argv[1] === import.meta.filename) {
  try {
    await main();
  } catch (error) {
    if (!(error instanceof FileError) && typeof error?.code !== 'string') throw error;
    process.stderr.write(`${error.message}\n`);
    process.exitCode = 1;
  }
}
