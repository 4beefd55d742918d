// Chooses the default image of apps when nobody sets one: `up` uses the image that `npm start`
// would use. Set-up leaves only the image in the engine, so the engine's tags decide, by
// set-up's own rule (scripts/setup/base-image.mjs; a test compares the two). Pure.

type Env = Readonly<Record<string, string | undefined>>;

export interface BaseImage {
  /** For the agent. */
  readonly env: Readonly<Record<string, string>>;
  /** For the person. */
  readonly why: string;
}

/** The Python of apps that name no version, by the agent's settings. */
const DEFAULT_PYTHON = '3.11';
const MADE_HERE = /^longshore-python:3\.(\d{1,2})$/;

/**
 * The image that set-up built, when the engine holds it and not the official one.
 * When only another Python could be had, that version becomes the default too.
 * @param held - tags that the engine holds
 * @returns undefined: the person's LONGSHORE_BASE_IMAGE counts, else the agent's default, which is pulled
 */
export function baseImageOf(held: readonly string[], env: Env): BaseImage | undefined {
  if (env['LONGSHORE_BASE_IMAGE']) return undefined;
  const asked = env['LONGSHORE_DEFAULT_PYTHON'];
  const version = asked || DEFAULT_PYTHON;
  const official = `python:${version}-slim`;
  if (held.includes(official)) return undefined;
  const minors = held.flatMap((tag) => MADE_HERE.exec(tag)?.[1] ?? []).map(Number);
  const newest = `3.${Math.max(...minors)}`;
  const found = held.includes(`longshore-python:${version}`) ? version : newest;
  if (minors.length === 0 || (asked && found !== asked)) return undefined;
  return {
    env: {
      LONGSHORE_BASE_IMAGE: 'longshore-python:{version}',
      ...(found === version ? {} : { LONGSHORE_DEFAULT_PYTHON: found }),
    },
    why: `apps that name no image run on longshore-python:${found}, which set-up built, since Docker holds no ${official} (LONGSHORE_BASE_IMAGE names another)`,
  };
}
