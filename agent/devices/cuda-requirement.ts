// Needs of an image for the GPU driver, in the words of NVIDIA's base images. Pure.

/**
 * CUDA versions by the driver's branch: the newest that the branch runs.
 * Source: table 3 of the release notes of the CUDA toolkit.
 */
const CUDA_OF_BRANCH: readonly (readonly [branch: number, cuda: string])[] = [
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
 * Why an image's requirement is not met by a driver; undefined: it is, or nobody knows.
 * @param requirement - `NVIDIA_REQUIRE_CUDA`: alternatives with blanks between them, each a list of conditions with
 * commas, such as `cuda>=12.8 brand=tesla,driver>=535,driver<536`
 */
export function requirementProblem(requirement: string, driver: string): string | undefined {
  const cuda = cudaOf(driver);
  const alternatives = requirement.split(/\s+/).filter((one) => one !== '');
  if (cuda === undefined || alternatives.length === 0) return undefined;
  const met = (condition: string): boolean => {
    const [, name = '', operator = '', wanted = ''] = /^(cuda|driver)(>=|<=|!=|=|<|>)([\d.]+)$/.exec(condition) ?? [];
    // Brand and architecture of the device are not judged here.
    if (name === '') return true;
    const order = compareVersions(name === 'cuda' ? cuda : driver, wanted);
    return { '>=': order >= 0, '<=': order <= 0, '!=': order !== 0, '=': order === 0, '<': order < 0, '>': order > 0 }[
      operator
    ] as boolean;
  };
  if (alternatives.some((one) => one.split(',').every(met))) return undefined;
  return needText(requirement, driver);
}

/** The need and what the machine has, as a sentence. @param words - of the requirement, or of NVIDIA's hook */
export function needText(words: string, driver: string): string {
  const needed = /cuda>=([\d.]+)/.exec(words)?.[1];
  const cuda = cudaOf(driver);
  const has =
    driver === '' ? '' : `; the driver of this machine is ${driver}${cuda === undefined ? '' : ` (CUDA ${cuda})`}`;
  return `the image needs ${needed === undefined ? `a driver with ${words.trim()}` : `CUDA ${needed} or newer`}${has}`;
}

/** Compares as many numbers as the second version has: 12.8.1 is a 12.8. */
function compareVersions(one: string, other: string): number {
  const [left, right] = [one, other].map((text) => text.split('.').map(Number)) as [number[], number[]];
  for (const [at, number] of right.entries()) {
    const difference = (left[at] ?? 0) - number;
    if (difference !== 0) return difference;
  }
  return 0;
}
