// Names of images that Longshore builds. No registry answers for such a name: the image is on the machines that built
// it, and with the managed registry in the repository of its workspace there. Pure.

/** The host part of the names; a name that public name servers never have. */
const HOST = 'longshore.internal';

/** Stands in a build's first step for the base image of a Python version, which each machine names for itself. */
export const BASE_IMAGE = `${HOST}/base`;

/** The id by which answers name the base image of a Python version; an empty id of a stub means the same image. */
export const baseImageId = (pythonVersion: string): string => `${BASE_IMAGE}:${pythonVersion}`;

/** The Python version, such as `python3.11`, of a base image's id; undefined: another image. */
export const basePythonOf = (imageId: string): string | undefined =>
  /^longshore\.internal\/base:(python3(?:\.\d{1,2})?)$/.exec(imageId)?.[1];

/** The name of a built image; the hash tells its workspace and its definition. */
export const builtImageName = (hash: string): string => `${HOST}/${hash.slice(0, 32)}`;

/** Whether a build of ours can have made that name. */
export const isBuiltImageName = (name: string): boolean => /^longshore\.internal\/[0-9a-f]{32}$/.test(name);

/** Whether an image has a name of ours, so that nobody may pull it or build on it. */
export const isBuiltImage = (reference: string): boolean => reference.toLowerCase().startsWith(`${HOST}/`);

/** The base image of a Python version that a machine makes itself where no registry is reached. */
export const madeBaseImage = (version: string): string => `longshore-python:${version}`;

/** The Python version of such an image; undefined: another image. */
export const madeBaseVersion = (reference: string): string | undefined =>
  /^longshore-python:(\d+\.\d+)$/.exec(reference)?.[1];

/** Label of a built image and of all its layers: the machine whose agent built it. */
export const BUILD_LABEL = 'io.longshore.build';
/** Label likewise: the workspace. A layer is therefore never used again for another workspace. */
export const BUILD_WORKSPACE_LABEL = 'io.longshore.build.workspace';
/** Label of a layer that the agent made by a container of its own: a key of everything that the layer follows from. */
export const BUILD_STEP_LABEL = 'io.longshore.build.step';
/** Labels whose names begin with this are the agent's alone. */
export const OWN_LABELS = 'io.longshore.';
/** Labels of the base images that set-up makes; a build may begin with such an image. */
export const SET_UP_LABELS: readonly string[] = ['io.longshore.base', 'io.longshore.base.ca'];

/** Repositories of the managed registry begin so; nobody may name one. */
const REPOSITORIES = 'longshore-built/';

/** Repository of a workspace in the managed registry. Its images share their layers, and no other workspace's. */
export const builtRepository = (workspaceId: string): string => `${REPOSITORIES}${workspaceId}`;

/** The workspace of a repository; empty: it is no repository of built images. */
export const workspaceOfRepository = (repository: string): string =>
  repository.startsWith(REPOSITORIES) ? repository.slice(REPOSITORIES.length) : '';

/** Tag of a built image in its workspace's repository. */
export const builtTag = (image: string): string => image.slice(HOST.length + 1);

/** Whether a reference names an image as the agent's registry port has it, on any port. Only the agent itself may. */
export const isRegistryPortReference = (reference: string): boolean =>
  /^(?:127\.[0-9.]+|localhost|\[::1\]):[0-9]+\//i.test(reference) &&
  reference.slice(reference.indexOf('/') + 1).startsWith(REPOSITORIES);

/** Variable of a step that may use packages from before: the folder in which the package managers keep them. */
export const PACKAGES_VARIABLE = 'LONGSHORE_PACKAGES';
