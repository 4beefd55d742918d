// Definitions of images and their builds. A definition that asks for nothing on top of its base image is valid and
// needs no build.
import {
  BuildImageRequest,
  BuildImageResponse,
  VerifyImageBuildRequest,
  VerifyImageBuildResponse,
} from '#shared/api/images.ts';
import type { BuildMessage, Builds } from '../../fleet/builds/builds.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function verifyImageBuild(builds: Pick<Builds, 'verify'>): Operation {
  return operation({
    name: 'VerifyImageBuild',
    http: 'POST /images/verify-build',
    scope: 'any',
    request: VerifyImageBuildRequest,
    response: VerifyImageBuildResponse,
    handle: async (caller, request) => {
      const found = await builds.verify(caller.workspaceId, request);
      return found.kind === 'refused'
        ? { ok: false, errMsg: found.errMsg, imageId: '', valid: false, exists: false, steps: [] }
        : { ok: true, errMsg: '', imageId: found.imageId, valid: true, exists: found.exists, steps: [...found.steps] };
    },
  });
}

/** Streams the output of a build, a line for each message; the last one is `done`. */
export function buildImage(builds: Pick<Builds, 'build'>): Operation {
  return operation({
    name: 'BuildImage',
    http: 'POST /images/build',
    scope: 'full',
    request: BuildImageRequest,
    response: BuildImageResponse,
    stream: async function* (caller, request, signal) {
      for await (const message of builds.build(caller.workspaceId, request, signal))
        yield responseOf(message, request.pythonVersion);
    },
    handle: async (caller, request) => {
      let last: BuildMessage = { kind: 'done', imageId: '', errMsg: 'the build was cut off: begin it again' };
      for await (const message of builds.build(caller.workspaceId, request, new AbortController().signal))
        last = message;
      return responseOf(last, request.pythonVersion);
    },
  });
}

function responseOf(message: BuildMessage, pythonVersion: string): BuildImageResponse {
  const common = { imageId: '', msg: '', done: false, success: false, pythonVersion, warning: false };
  switch (message.kind) {
    case 'line':
      return { result: { ...common, msg: `${message.text}\n`, warning: message.isNote } };
    case 'waiting':
      return { result: common };
    case 'done':
      return {
        result: {
          ...common,
          done: true,
          success: message.errMsg === '',
          msg: message.errMsg,
          imageId: message.imageId,
        },
      };
  }
}
