// A host's means to mount buckets: FUSE, s3fs, and the mount helper. None of it is needed for anything else.
import { access, constants } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '#shared/errors.ts';
import { runProgram } from '#shared/child-process.ts';
import type { AgentConfig } from '../config.ts';
import { MountHelper } from '../volumes/mount-helper.ts';
import { MOUNT_SOCKET } from '../volumes/mount-messages.ts';
import type { Finding } from './finding.ts';
import { ok, warning } from './finding.ts';

const DEADLINE_MS = 10_000;
const START = 'install the package s3fs, then `systemctl enable --now longshore-mounts` (docs/volumes.md)';

/** Never worse than a warning: a machine without a mount helper serves everything but buckets. */
export async function mountsFinding({ LONGSHORE_MOUNTS_DIR: directory }: AgentConfig): Promise<Finding> {
  const check = 'buckets';
  const hasFuse = await access('/dev/fuse', constants.F_OK).then(
    () => true,
    () => false,
  );
  const s3fs = await runProgram('s3fs', ['--version'], { deadlineMs: DEADLINE_MS });
  const hasS3fs = s3fs.kind === 'ended' && s3fs.exitCode === 0;
  const missing = [...(hasFuse ? [] : ['/dev/fuse']), ...(hasS3fs ? [] : ['s3fs'])];
  // The socket is the agent's user's: somebody else can look only at the programs.
  const socket = join(directory, MOUNT_SOCKET);
  const mayAsk = await access(socket, constants.W_OK).then(
    () => true,
    () => false,
  );
  if (!mayAsk) {
    const lack = missing.length > 0 ? `without ${missing.join(' and ')}` : `without a mount helper at ${socket}`;
    return ok(check, `none can be mounted here, ${lack}; who wants it: ${START}`);
  }
  try {
    const { volumes, mounts } = await new MountHelper(socket).state();
    return ok(check, `the mount helper answers, with ${mounts} mounts${volumes ? ', and serves s3 volumes' : ''}`);
  } catch (error) {
    return warning(check, messageOf(error), 'look at `journalctl -u longshore-mounts`');
  }
}
