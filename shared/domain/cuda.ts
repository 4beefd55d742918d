// CUDA versions that drivers of NVIDIA run. Pure.

/**
 * CUDA versions by the driver's branch: the newest that the branch runs.
 * Source: table 3 of the release notes of the CUDA toolkit.
 */
const CUDA_OF_BRANCH: readonly (readonly [branch: number, cuda: string])[] = [
  [384, '9.0'],
  [390, '9.1'],
  [396, '9.2'],
  [410, '10.0'],
  [418, '10.1'],
  [440, '10.2'],
  [450, '11.0'],
  [455, '11.1'],
  [460, '11.2'],
  [465, '11.3'],
  [470, '11.4'],
  [495, '11.5'],
  [510, '11.6'],
  [515, '11.7'],
  [520, '11.8'],
  [525, '12.0'],
  [530, '12.1'],
  [535, '12.2'],
  [545, '12.3'],
  [550, '12.4'],
  [555, '12.5'],
  [560, '12.6'],
  [565, '12.7'],
  [570, '12.8'],
  [575, '12.9'],
  [580, '13.0'],
];

/** The newest CUDA version of a driver; undefined: not known, also for a driver that is newer than this table. */
export function cudaOf(driver: string): string | undefined {
  const branch = Number(/^\d+/.exec(driver)?.[0] ?? Number.NaN);
  const newest = CUDA_OF_BRANCH.at(-1)?.[0] ?? 0;
  // Branches come in steps of five; one that is not listed may run more than the one below it.
  if (!(branch < newest + 5)) return undefined;
  return CUDA_OF_BRANCH.findLast(([from]) => from <= branch)?.[1];
}

/**
 * Whether the driver runs that CUDA version; undefined: nobody knows, because the driver is not known, or both are
 * newer than the table.
 * @param cuda - such as `12.8`; empty: none
 */
export function runsCuda(driver: string, cuda: string): boolean | undefined {
  // Placement asks for each kind of machine, mostly for work that names no version.
  if (cuda === '') return true;
  const newest = cudaOf(driver);
  if (newest !== undefined) return compareVersions(newest, cuda) >= 0;
  const [branch = Infinity, last = ''] = CUDA_OF_BRANCH.at(-1) ?? [];
  // A driver that is newer than the table runs what its newest entry runs.
  return Number(/^\d+/.exec(driver)?.[0]) > branch && compareVersions(last, cuda) >= 0 ? true : undefined;
}

/** Whether the driver may run that CUDA version: `min_cuda` keeps only drivers away that are known not to. */
export const mayRunCuda = (driver: string, cuda: string): boolean => runsCuda(driver, cuda) !== false;

/** The least driver of a CUDA version, as a branch such as `570`; undefined: the version is newer than the table. */
export const driverOf = (cuda: string): string | undefined =>
  CUDA_OF_BRANCH.find(([, newest]) => compareVersions(newest, cuda) >= 0)?.[0].toString();

/** A driver with its CUDA version, for people: `535.183.01 (CUDA 12.2)`. */
export function driverText(driver: string): string {
  const cuda = cudaOf(driver);
  return `${driver}${cuda === undefined ? '' : ` (CUDA ${cuda})`}`;
}

/** Compares as many numbers as the second version has: 12.8.1 is a 12.8. */
export function compareVersions(one: string, other: string): number {
  const [left, right] = [one, other].map((text) => text.split('.').map(Number)) as [number[], number[]];
  for (const [at, number] of right.entries()) {
    const difference = (left[at] ?? 0) - number;
    if (difference !== 0) return difference;
  }
  return 0;
}
