// Definitions of images while images are not built here. A definition that asks for nothing on top of its base image is
// valid; every other one is refused, with the alternative in the text.
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

/** Fields of a request that ask for a build. */
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
      // An image named by its id exists, so the other fields of the request do not matter.
      if (request.imageId === '' && needsBuild(request)) {
        return { ok: false, errMsg: NOT_BUILT, imageId: '', valid: false, exists: false };
      }
      const imageId = request.imageId === '' ? request.existingImageUri : request.imageId;
      return { ok: true, errMsg: '', imageId, valid: true, exists: true };
    },
  });
}

/** Answers with a single line, which is the last one. */
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
