// Image definitions. The interface document does not describe them; field names follow published clients.
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Anything, Flag, Text } from './fields.ts';

const definition = {
  pythonVersion: Text(),
  pythonPackages: Type.Array(Text()),
  systemPackages: Type.Array(Text(), { description: 'Debian packages' }),
  commands: Type.Array(Text()),
  existingImageUri: Text({ description: 'what it starts from; empty: the base image of the Python version' }),
  buildSteps: Type.Array(Anything()),
  envVars: Type.Array(Text()),
  dockerfile: Text(),
  buildCtxObject: Text(),
  secrets: Type.Array(Text()),
  gpu: Text({ description: 'GPU that the packages and commands have while the image is built; none by default' }),
  machineGpu: Text({ description: 'GPU of the machine that builds, where the image is then; steps get none' }),
  pool: Text({ description: 'built on a machine of that pool' }),
  ignorePython: Flag(),
};

export const VerifyImageBuildRequest = Type.Object({ ...definition, forceRebuild: Flag(), imageId: Text() });
export type VerifyImageBuildRequest = Static<typeof VerifyImageBuildRequest>;

export const VerifyImageBuildResponse = Type.Object({
  ok: Flag(),
  errMsg: Text(),
  imageId: Text({ description: 'for the imageId of stubs' }),
  valid: Flag(),
  exists: Flag(),
  steps: Type.Array(Text(), { description: 'of its build, in order; none for an image that is used as it is' }),
});
export type VerifyImageBuildResponse = Static<typeof VerifyImageBuildResponse>;

export const BuildImageRequest = Type.Object({
  ...definition,
  existingImageCreds: Anything(),
  forceRebuild: Flag(),
});
export type BuildImageRequest = Static<typeof BuildImageRequest>;

/** A message in a build's answer stream. */
export const BuildImageResponse = Type.Object({
  result: Type.Object({
    imageId: Text(),
    msg: Text(),
    done: Flag(),
    success: Flag(),
    pythonVersion: Text(),
    warning: Flag(),
  }),
});
export type BuildImageResponse = Static<typeof BuildImageResponse>;
