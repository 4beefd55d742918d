// What a definition of an image means while images are not built here: one that asks for nothing on top of what it starts from is there already, every other is refused with the way out.
import {
  BuildImageRequest,
  BuildImageResponse,
  VerifyImageBuildRequest,
  VerifyImageBuildResponse,
} from '#shared/api/images.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

const NOT_BUILT =
  'images are not built in this version: build one with these packages, commands and variables, push it to a registry, and name it as the base image';

/** The fields that ask for a build. */
type Definition = Pick<
  VerifyImageBuildRequest,
  'pythonPackages' | 'commands' | 'buildSteps' | 'envVars' | 'dockerfile'
>;

const needsBuild = ({ pythonPackages, commands, buildSteps, envVars, dockerfile }: Definition): boolean =>
  dockerfile !== '' || [pythonPackages, commands, buildSteps, envVars].some((list) => list.length > 0);

export function verifyImageBuild(): Operation {
  return operation({
    name: 'VerifyImageBuild',
    http: 'POST /images/verify-build',
    scope: 'any',
    request: VerifyImageBuildRequest,
    response: VerifyImageBuildResponse,
    handle: (_caller, request) => {
      // What was named by its id is there, whatever else was sent along.
      if (request.imageId === '' && needsBuild(request)) {
        return { ok: false, errMsg: NOT_BUILT, imageId: '', valid: false, exists: false };
      }
      const imageId = request.imageId === '' ? request.existingImageUri : request.imageId;
      return { ok: true, errMsg: '', imageId, valid: true, exists: true };
    },
  });
}

/** One line, which is the last one. */
export function buildImage(): Operation {
  return operation({
    name: 'BuildImage',
    http: 'POST /images/build',
    scope: 'any',
    request: BuildImageRequest,
    response: BuildImageResponse,
    handle: (_caller, request) => {
      const common = { done: true, pythonVersion: request.pythonVersion, warning: false };
      if (needsBuild(request)) return { result: { ...common, success: false, msg: NOT_BUILT, imageId: '' } };
      return { result: { ...common, success: true, msg: '', imageId: request.existingImageUri } };
    },
  });
}
