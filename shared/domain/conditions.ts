// Conditions that an agent reports of its machine: data only. Health and intent are other facts.

interface Condition {
  /** No container is placed on a machine with this condition. */
  readonly blocks: boolean;
  /** The text that follows "2 machines: ". */
  readonly says: string;
  /** The operator's next step. */
  readonly step: string;
}

export const CONDITIONS = {
  DiskPressure: {
    blocks: true,
    says: 'too little free disk or too few inodes',
    step: 'make room on the disk of that machine (its agent removes unused images by itself); it takes containers again 5 minutes after there is room',
  },
  DockerDown: {
    blocks: true,
    says: 'the container engine does not answer',
    step: 'look at the Docker Engine of that machine (`systemctl status docker`)',
  },
  EngineCannotStart: {
    blocks: true,
    says: 'the container engine starts no container, not even one of ours',
    step: 'mend the Docker Engine of that machine (its own words are beside the condition in `longshore machine list`; often a runc that does not fit its dockerd); its agent tries again every minute at most',
  },
  ClockSkew: { blocks: true, says: 'a clock that is wrong', step: 'set the clock of that machine (NTP)' },
  AgentTooOld: { blocks: true, says: 'an agent that is too old', step: 'upgrade the agent of that machine' },
  Preflight: {
    blocks: true,
    says: 'a failed check before the start',
    step: 'run `longshore agent check` on that machine',
  },
  SuspectHost: {
    blocks: false,
    says: 'several broken GPUs',
    step: 'look at `nvidia-smi` and the kernel log of that machine; its other GPUs go on, and the condition ends once fewer than two are broken',
  },
  Unauthorized: {
    blocks: false,
    says: 'an identity that two agents use by turns',
    step: 'its state directory was copied, or its credential stolen: delete the machine, and join its host anew',
  },
  CopiedDisk: {
    blocks: false,
    says: 'a disk that also came to another host, which was refused',
    step: 'run `longshore-agent reset` on the other host, then `longshore-agent join` with a token; where the disk has moved for good, delete this machine',
  },
  GpuDegraded: {
    blocks: false,
    says: 'a GPU that is not healthy, or missing',
    step: 'the words beside the condition in `longshore machine list` name it; `longshore agent check-gpu` and `nvidia-smi` on that machine say more',
  },
  GpusUnusable: {
    blocks: false,
    says: 'GPUs that no program reaches',
    step: 'look at the words beside the condition in `longshore machine list`: CUDA error 802 is nvidia-fabricmanager, others are the driver or the container toolkit; the GPUs return by themselves',
  },
  GpuProbeMissing: {
    blocks: false,
    says: 'GPUs that are offered without a probe',
    step: 'this copy was set up without its GPU probe: install a C compiler there and run `node scripts/setup.mjs` again, or install a release and then `docker image rm -f longshore-holder:2`',
  },
  CdiOutdated: {
    blocks: false,
    says: 'a CDI specification that lacks GPUs of the machine',
    step: 'run `sudo nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml` there, or enable nvidia-cdi-refresh',
  },
  KernelLogUnread: {
    blocks: false,
    says: 'a kernel log that is not read: errors of GPUs (Xid) are not seen there',
    step: "look at the words beside the condition in `longshore machine list`; on that machine `sudo journalctl --dmesg --lines=1` must print a line (a journal without the kernel's lines: ReadKMsg= of journald)",
  },
  StuckContainer: {
    blocks: false,
    says: 'a container that does not die',
    step: 'look at its processes there; a process in uninterruptible sleep needs its disk or driver back, or a reboot',
  },
  LogBackpressure: {
    blocks: false,
    says: 'more log lines than can be sent',
    step: 'write less, or look at the database',
  },
  LocalVolumesDown: {
    blocks: false,
    says: 'a disk with local volumes that does not answer',
    step: 'look at the disk below its data directory; containers that mount a volume of that machine wait for it',
  },
  CacheVolumesDown: {
    blocks: false,
    says: 'a disk with cache volumes that does not answer or is not mounted',
    step: 'look at the disk of LONGSHORE_AGENT_CACHE_DIR there (`cache` below its data directory when it is not set); containers that mount a cache volume go to other machines',
  },
  SharedVolumesDown: {
    blocks: false,
    says: 'shared volumes that do not answer or are not mounted',
    step: 'look at what is mounted at LONGSHORE_SHARED_VOLUMES_DIR there; containers that mount a shared volume go to other machines',
  },
  NfsVolumesDown: {
    blocks: false,
    says: 'nfs volumes that do not answer',
    step: 'look at the server of LONGSHORE_NFS_VOLUMES and at the way to it; containers that mount an nfs volume go to other machines',
  },
  S3VolumesDown: {
    blocks: false,
    says: 's3 volumes that do not answer',
    step: 'look at the mount helper there (`systemctl status longshore-mounts`) and at the way to the server of LONGSHORE_S3_VOLUMES; containers that mount an s3 volume go to other machines',
  },
  BucketMountsDown: {
    blocks: false,
    says: 'a mount helper that does not answer',
    step: 'look at the mount helper there (`systemctl status longshore-mounts`); containers that mount a bucket go to other machines',
  },
  EmptySnapshotRefused: {
    blocks: false,
    says: 'an order to stop everything that was not confirmed',
    step: "look at the scheduler's log",
  },
} as const satisfies Record<string, Condition>;

/** The reason of a failed start on a machine whose engine starts no container: not the container's fault. */
export const ENGINE_CANNOT_START = 'engine_cannot_start';

export type ConditionName = keyof typeof CONDITIONS;
export const CONDITION_NAMES = Object.keys(CONDITIONS) as readonly ConditionName[];

/** An unknown name from a newer agent is shown, and blocks nothing. */
export const conditionOf = (name: string): Condition | undefined =>
  Object.hasOwn(CONDITIONS, name) ? CONDITIONS[name as ConditionName] : undefined;
