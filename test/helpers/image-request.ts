import type { ImageRequest } from '#scheduler/fleet/builds/definition.ts';

/** A definition that asks for nothing. */
export const NO_IMAGE: ImageRequest = {
  pythonVersion: '',
  pythonPackages: [],
  systemPackages: [],
  commands: [],
  existingImageUri: '',
  buildSteps: [],
  envVars: [],
  dockerfile: '',
  buildCtxObject: '',
  secrets: [],
  gpu: '',
  ignorePython: false,
};
