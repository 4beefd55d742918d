// Names of images that Longshore builds. No registry answers for such a name: the image is on the machines that built
// it. Pure.

/** The host part of the names; a name that public name servers never have. */
const HOST = 'longshore.internal';

/** Stands in a build's first step for the base image of a Python version, which each machine names for itself. */
export const BASE_IMAGE = `${HOST}/base`;

/** The name of a built image; the hash tells its workspace and its definition. */
export const builtImageName = (hash: string): string => `${HOST}/${hash.slice(0, 32)}`;

/** Whether a build of ours can have made that name. */
export const isBuiltImageName = (name: string): boolean => /^longshore\.internal\/[0-9a-f]{32}$/.test(name);

/** Whether an image has a name of ours, so that nobody may pull it or build on it. */
export const isBuiltImage = (reference: string): boolean => reference.toLowerCase().startsWith(`${HOST}/`);

/** Label of a built image and of all its layers: the machine whose agent built it. */
export const BUILD_LABEL = 'io.longshore.build';
/** Label likewise: the workspace. A layer is therefore never used again for another workspace. */
export const BUILD_WORKSPACE_LABEL = 'io.longshore.build.workspace';
/** Label of a layer that the agent made by a container of its own: a key of everything that the layer follows from. */
export const BUILD_STEP_LABEL = 'io.longshore.build.step';
/** Labels whose names begin with this are the agent's alone. */
export const OWN_LABELS = 'io.longshore.';

/** Variable of a step that may use packages from before: the folder in which the package managers keep them. */
export const PACKAGES_VARIABLE = 'LONGSHORE_PACKAGES';
