// Which machines can run work in the base image of a Python version. Pure.

/** Versions of base images, such as `3.11`, that a machine has or can make; null: any, or it has not said. */
export type BasePythons = readonly string[] | null;

/** The wish for a base image of any version. */
export const ANY_PYTHON = '3';

/**
 * The base image that work needs: the version's number, or `ANY_PYTHON` where none is named. micromamba brings its own
 * Python, and is installed into a base image of any version.
 * @param pythonVersion - such as `python3.11`
 */
export const wantedPython = (pythonVersion: string): string =>
  /^python(3\.\d+)$/.exec(pythonVersion)?.[1] ?? ANY_PYTHON;

/** Whether a machine can have the base image. @param wanted - as `wantedPython` gives it; empty: none is needed */
export function canHavePython(there: BasePythons, wanted: string): boolean {
  if (wanted === '' || there === null) return true;
  return wanted === ANY_PYTHON ? there.length > 0 : there.includes(wanted);
}
