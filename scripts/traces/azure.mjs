/** Traces of Azure Functions: https://github.com/Azure/AzurePublicDataset */
import { FileError, rows } from './read.mjs';

const MINUTES = 1440;
const PERCENTILES = [0, 1, 25, 50, 75, 99, 100];
/** Most functions whose lengths are remembered. */
const MOST_FUNCTIONS = 1_000_000;
/** The trace names apps by hashes of 64 characters; so many of them are enough to tell apps apart. */
const SHORT = 16;

const short = (name) => name.slice(0, SHORT);
/** Without --gpu, functions need a core and no GPU. */
const gpuOf = ({ gpu }) => (gpu === undefined ? {} : { gpu });

/** 2021: `app,func,end_timestamp,duration`, a row for each invocation. */
export async function* azure2021(options) {
  for await (const row of rows(options.file)) {
    const [workspace, seconds] = [short(row.name('app')), row.number('duration')];
    const deployment = `${workspace}-${short(row.name('func'))}`;
    yield {
      at: row.number('end_timestamp') - seconds,
      deploy: { deployment, workspace, ...gpuOf(options) },
      task: { seconds: milli(seconds) },
    };
  }
}

/** 2019: a row for each function with its invocations in each minute; lengths are in a file of percentiles. */
export async function* azure2019(options, counts) {
  const lengths = await lengthsOf(options.durations);
  for await (const row of rows(options.file)) {
    const [workspace, app] = [short(row.name('HashOwner')), short(row.name('HashApp'))];
    const deployment = `${app}-${short(row.name('HashFunction'))}`;
    const percentiles = lengths.get(deployment);
    if (percentiles === undefined) {
      counts.leftOut += 1;
      continue;
    }
    const deploy = { deployment, workspace, run_seconds: percentiles, ...gpuOf(options) };
    for (let minute = 1; minute <= MINUTES; minute += 1) {
      const count = row.number(String(minute), 0);
      if (!Number.isInteger(count)) row.refuse(String(minute), 'a whole number');
      if (count > 0) yield { at: (minute - 1) * 60, deploy, task: { count, over_seconds: 60 } };
    }
  }
}

async function lengthsOf(file) {
  const lengths = new Map();
  for await (const row of rows(file)) {
    if (lengths.size >= MOST_FUNCTIONS) throw new FileError(`${file} has more than ${MOST_FUNCTIONS} functions`);
    let before = 0;
    const percentiles = PERCENTILES.map((percentile) => {
      // Milliseconds. They are percentiles of means, and rounding may make one a little less than that before it.
      before = Math.max(before, milli(row.number(`percentile_Average_${percentile}`) / 1000));
      return [String(percentile), before];
    });
    lengths.set(`${short(row.name('HashApp'))}-${short(row.name('HashFunction'))}`, Object.fromEntries(percentiles));
  }
  return lengths;
}

const milli = (seconds) => Math.round(seconds * 1000) / 1000;
