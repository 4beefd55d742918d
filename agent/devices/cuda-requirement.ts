// Needs of an image for the GPU driver, in the words of NVIDIA's base images. Pure.
import { compareVersions, cudaOf, driverText } from '#shared/domain/cuda.ts';

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
  const has = driver === '' ? '' : `; the driver of this machine is ${driverText(driver)}`;
  return `the image needs ${needed === undefined ? `a driver with ${words.trim()}` : `CUDA ${needed} or newer`}${has}`;
}
