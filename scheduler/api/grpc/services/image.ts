// Builds of images.
import type { Plain } from '../descriptor.ts';
import { recordOf } from './service.ts';
import type { Service } from './service.ts';

const NO_GIT = 'images are not built from a repository: clone it, and build from its Dockerfile';

const fromGit = ({ git_source: source }: Plain): string | undefined => (source === null ? undefined : NO_GIT);

export const IMAGE: Service = {
  pack: 'image',
  name: 'ImageService',
  messages: {
    BuildImageRequest: `
      python_version 1; python_packages 2 string[]; commands 3 string[]; existing_image_uri 4;
      existing_image_creds 5 map<string,string>; build_steps 6 BuildStep[]; env_vars 7 string[]; dockerfile 8;
      build_ctx_object 9; secrets 10 string[]; gpu 11; ignore_python 12 bool; git_source 13 GitBuildSource`,
    BuildImageResponse: 'image_id 1; msg 2; done 3 bool; success 4 bool; python_version 5; warning 6 bool',
    BuildStep: 'type 1; command 2',
    GitBuildSource: `
      repo_url 1; ref 2; token 3; working_dir 4; dockerfile_path 5; start_command 6; build_command 7`,
    VerifyImageBuildRequest: `
      python_version 1; python_packages 2 string[]; commands 3 string[]; force_rebuild 4 bool;
      existing_image_uri 5; build_steps 6 BuildStep[]; env_vars 7 string[]; dockerfile 8; build_ctx_object 9;
      secrets 10 string[]; gpu 11; ignore_python 12 bool; image_id 13 string?; git_source 14 GitBuildSource`,
    VerifyImageBuildResponse: 'image_id 1; valid 2 bool; exists 3 bool',
  },
  calls: {
    VerifyImageBuild: { refuses: fromGit },
    BuildImage: { refuses: fromGit, tell: (answer) => recordOf(answer['result']) },
  },
};
