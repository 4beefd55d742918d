// The command tree's part for machines, workers and pools. Names, flags and help are here; each command's module is
// loaded when it runs.
import { Option } from 'commander';
import type { Command } from 'commander';
import { USER_DATA_KINDS } from '#shared/user-data.ts';
import { usageError } from './errors.ts';
import type { UpgradeFlags } from './commands/machine-upgrade.ts';
import type { Invocation } from './commands/run.ts';
import type { DrainFlags, EnrolTokenFlags, PoolFlags, PoolOwnerFlags } from './flags.ts';
import {
  command,
  countFromOne,
  examples,
  labelsOrDefault,
  mirrorOrDefault,
  nameOrDefault,
  numberOrDefault,
  wholeNumber,
  yesNoOrDefault,
} from './program-parts.ts';

export function addMachine(program: Command, invocation: () => Invocation): void {
  const machine = command(program, 'machine', 'Admit machines, look at them, delete them');
  examples(
    command(
      machine,
      'create',
      'Admit a machine to a pool; prints its token, once, and the line that runs its agent',
    ).option('--pool <name>', 'the pool, made when it is missing', 'default'),
    'machine create',
    'machine create --pool gpu --json',
  ).action(async (flags: { readonly pool: string }) => {
    const { runMachineCreate } = await import('./commands/machine.ts');
    await runMachineCreate(flags.pool, invocation());
  });
  examples(
    command(
      machine,
      'upgrade',
      "Print the line that brings a machine's agent to the release that the scheduler gives out; or upgrade a pool",
    )
      .option('--pool <name>', 'upgrade its machines: the first one alone, then as many at once as --parallel says')
      .option(
        '--run <command>',
        'runs for each machine, with the line on standard input; {host} and {id} in it are the machine',
      )
      .option('--to <version>', 'the version that counts as new; unless said, that of the release')
      .option('--deadline <seconds>', 'for each machine to be connected with it', wholeNumber, 300)
      .option('--parallel <n>', 'machines at once, after the first one alone, the canary', countFromOne, 1)
      .option(
        '--max-failures <n>',
        'failed machines after which no other is begun; the canary always',
        countFromOne,
        1,
      ),
    'machine upgrade',
    "machine upgrade --pool gpu --run 'ssh {host} sh'",
  ).action(async (flags: UpgradeFlags) => {
    const { runMachineUpgrade } = await import('./commands/machine.ts');
    await runMachineUpgrade(flags, invocation());
  });
  examples(
    command(machine, 'list', 'List machines, present or not').option('--pool <name>', 'of one pool'),
    'machine list --pool gpu',
  ).action(async (flags: { readonly pool?: string }) => {
    const { runMachineList } = await import('./commands/machine.ts');
    await runMachineList(flags.pool, invocation());
  });
  examples(
    command(machine, 'show', 'Show one machine, and what its host is made of').argument(
      '<id>',
      'as `machine list` shows it',
    ),
    'machine show 1f2e3d4c',
  ).action(async (id: string) => {
    const { runMachineShow } = await import('./commands/machine-show.ts');
    await runMachineShow(id, invocation());
  });
  examples(
    command(machine, 'delete', 'Delete a machine that never came, is lost, or was drained')
      .argument('<id>', 'as `machine list` shows it')
      .option('--force', 'in any state: stop everything there, forget it a minute later'),
    'machine delete 1f2e3d4c',
  ).action(async (id: string, flags: { readonly force?: boolean }) => {
    const { runMachineDelete } = await import('./commands/machine.ts');
    await runMachineDelete(id, flags, invocation());
  });
  examples(
    command(machine, 'label', 'Give a machine labels, or take them back; without any, print those that it has')
      .argument('<id>', 'as `machine list` shows it')
      .argument('[labels...]', '`zone=a` sets a label, `zone-` removes it')
      .option('--remove <key>', 'remove a label; may be repeated', collected, []),
    'machine label 1f2e3d4c zone=a disk=nvme',
    'machine label 1f2e3d4c zone-',
    'machine label 1f2e3d4c --remove zone',
  ).action(async (id: string, labels: readonly string[], flags: { readonly remove: readonly string[] }) => {
    const { runMachineLabel } = await import('./commands/machine-label.ts');
    await runMachineLabel(id, labels, flags.remove, invocation());
  });
  addMachineGpu(machine, invocation);
}

const collected = (value: string, before: readonly string[]): readonly string[] => [...before, value];

function addMachineGpu(machine: Command, invocation: () => Invocation): void {
  const gpu = command(machine, 'gpu', 'Look at the GPUs of a machine; take one out of service and back');
  examples(
    command(gpu, 'list', 'List the GPUs of a machine with their state and why, or those of all with their use')
      .argument('[machine]', 'as `machine list` shows it; absent: the GPUs of all machines')
      .option('--pool <name>', 'of all machines of that pool'),
    'machine gpu list',
    'machine gpu list --pool h100',
    'machine gpu list 1f2e3d4c',
  ).action(async (id: string | undefined, { pool }: { readonly pool?: string }) => {
    const { runGpuMap, runMachineGpuList } = await import('./commands/machine-gpu.ts');
    if (id !== undefined && pool !== undefined)
      throw usageError('--pool is for the GPUs of all its machines: leave the machine out');
    await (id === undefined ? runGpuMap(pool, invocation()) : runMachineGpuList(id, invocation()));
  });
  for (const [action, what] of [
    ['exclude', 'Give a GPU to nobody until it is returned, over reboots; what runs on it goes on'],
    ['return', 'Probe a GPU, and use it again when the probe has passed'],
    ['reset', 'Reset a GPU that nothing uses, by a unit of its host; a probe follows'],
    ['forget', 'Forget a lost GPU, whose card was taken out'],
  ] as const) {
    examples(
      command(gpu, action, what)
        .argument('<machine>', 'as `machine list` shows it')
        .argument('<uuid>', 'as `machine gpu list` shows it'),
      `machine gpu ${action} 1f2e3d4c GPU-7c3a1d52-0f4e-4d0b-9a55-1c6f5a1e9b01`,
    ).action(async (id: string, uuid: string) => {
      const { runMachineGpuAction } = await import('./commands/machine-gpu.ts');
      await runMachineGpuAction(action, id, uuid, invocation());
    });
  }
}

export function addEnrolToken(program: Command, invocation: () => Invocation): void {
  const token = command(program, 'enrol-token', 'Make, look at and revoke tokens by which many hosts join a pool');
  examples(
    command(token, 'create', 'Make a token for golden images and groups of instances; prints it, once')
      .argument('<name>', 'a name that no active token has')
      .option('--pool <name>', 'the pool that hosts join; it must exist', 'default')
      .option('--machines <n>', 'machines that there may be by it at once, 1 to 10000', wholeNumber, 50)
      .option('--expires <when>', 'as 90d, 12h or 2030-01-31, at most 365 days; unless said, 30 days')
      .addOption(
        new Option('--user-data [kind]', 'print user data of an instance, by which it joins, instead of the token')
          .choices([...USER_DATA_KINDS])
          .preset('cloud-init'),
      ),
    'enrol-token create gpu-group --pool gpu',
    'enrol-token create gpu-group --pool gpu --machines 200 --expires 90d',
    'enrol-token create gpu-group --pool gpu --user-data cloud-init',
  ).action(async (name: string, flags: EnrolTokenFlags) => {
    const { runEnrolTokenCreate } = await import('./commands/enrol-token.ts');
    await runEnrolTokenCreate(name, flags, invocation());
  });
  examples(
    command(token, 'list', 'List enrolment tokens, and how many machines there are by each'),
    'enrol-token list',
  ).action(async () => {
    const { runEnrolTokenList } = await import('./commands/enrol-token.ts');
    await runEnrolTokenList(invocation());
  });
  examples(
    command(token, 'revoke', 'Have no host join by a token any more; its machines stay').argument(
      '<token>',
      'id or name, as `enrol-token list` shows it',
    ),
    'enrol-token revoke gpu-group',
  ).action(async (reference: string) => {
    const { runEnrolTokenRevoke } = await import('./commands/enrol-token.ts');
    await runEnrolTokenRevoke(reference, invocation());
  });
}

export function addWorker(program: Command, invocation: () => Invocation): void {
  const worker = command(program, 'worker', 'Look at what machines offer; take them out of service and back');
  examples(command(worker, 'list', 'List workers, one for each machine, and what is free'), 'worker list').action(
    async () => {
      const { runWorkerList } = await import('./commands/worker.ts');
      await runWorkerList(invocation());
    },
  );
  for (const [verb, what] of [
    ['cordon', 'Place nothing new on a worker; what runs there goes on'],
    ['uncordon', 'Place containers on a worker again'],
  ] as const) {
    examples(
      command(worker, verb, what).argument('<id>', "the worker's id, which is its machine's"),
      `worker ${verb} 1f2e3d4c`,
    ).action(async (id: string) => {
      const { runWorkerVerb } = await import('./commands/worker.ts');
      await runWorkerVerb(verb, id, invocation());
    });
  }
  examples(
    command(worker, 'drain', 'Cordon a worker and have its containers leave: before maintenance')
      .argument('<id>', "the worker's id, which is its machine's")
      .option('--deadline <seconds>', 'what runs then is handed back and stopped; 0: now', wholeNumber)
      .option('--wait', 'show how it goes, until nothing is left'),
    'worker drain 1f2e3d4c --wait',
    'worker drain 1f2e3d4c --deadline 600',
  ).action(async (id: string, flags: DrainFlags) => {
    const { runWorkerDrain } = await import('./commands/worker.ts');
    await runWorkerDrain(id, flags, invocation());
  });
}

const POOL = 'as `pool list` shows it';
const OWNED_BY = 'the workspace that owns the pool, for an administrator';

export function addPool(program: Command, invocation: () => Invocation): void {
  const pool = command(program, 'pool', 'Make, look at, set and delete pools of machines');
  examples(
    poolSettings(
      command(pool, 'create', 'Make a pool (creating a machine in it does, too)').argument(
        '<name>',
        'a name that no pool has',
      ),
    ),
    'pool create gpu',
    'pool create build --cpu-overcommit 4 --requires-pool-selector yes',
  ).action(async (name: string, flags: PoolFlags) => {
    const { runPoolCreate } = await import('./commands/pool.ts');
    await runPoolCreate(name, flags, invocation());
  });
  examples(
    poolSettings(
      command(
        pool,
        'set',
        'Change settings of a pool: for what is placed from now on; what runs stays. `default` puts one back',
      ).argument('<name>', POOL),
    ).option('--workspace <id>', OWNED_BY),
    'pool set gpu --cpu-work-on-gpu-machines yes --reserved-memory-mib 8192',
    'pool set gpu --cpu-overcommit default',
    'pool set gpu --expected-gpus 8',
    'pool set gpu --provider cloud --machine-gpu-model H100 --machine-gpu-count 8 --machine-cpu-cores 96 --machine-memory-mib 1048576',
  ).action(async (name: string, flags: PoolFlags & PoolOwnerFlags) => {
    const { runPoolSet } = await import('./commands/pool.ts');
    await runPoolSet(name, flags, invocation());
  });
  examples(
    command(pool, 'show', 'Show how a pool is set').argument('<name>', POOL).option('--workspace <id>', OWNED_BY),
    'pool show gpu',
    'pool show gpu --json',
  ).action(async (name: string, flags: PoolOwnerFlags) => {
    const { runPoolShow } = await import('./commands/pool.ts');
    await runPoolShow(name, flags, invocation());
  });
  examples(
    command(pool, 'delete', 'Delete a pool that has no machines').argument('<name>', POOL),
    'pool delete gpu',
  ).action(async (name: string) => {
    const { runPoolDelete } = await import('./commands/pool.ts');
    await runPoolDelete(name, invocation());
  });
  examples(command(pool, 'list', 'List pools and what is free in them'), 'pool list').action(async () => {
    const { runPoolList } = await import('./commands/pool.ts');
    await runPoolList(invocation());
  });
}

export function addProvider(program: Command, invocation: () => Invocation, setExitCode: (code: number) => void): void {
  const provider = command(program, 'provider', 'Look at the programs that make machines for pools, and check them');
  examples(
    command(provider, 'list', 'List providers with their pools, machines and last calls'),
    'provider list',
  ).action(async () => {
    const { runProviderList } = await import('./commands/provider.ts');
    await runProviderList(invocation());
  });
  examples(
    command(
      provider,
      'check',
      'Run list of a provider now, and compare it with its machines; changes nothing',
    ).argument('<name>', 'as `provider list` shows it'),
    'provider check cloud',
    'provider check cloud --json',
  ).action(async (name: string) => {
    const { runProviderCheck } = await import('./commands/provider.ts');
    setExitCode(await runProviderCheck(name, invocation()));
  });
}

/** A flag for each setting, named and bounded as it is in the interface: a test holds them equal. */
function poolSettings(of: Command): Command {
  return of
    .option(
      '--cpu-overcommit <n>',
      'offer the cores of each machine so many times over, 1 to 64',
      numberOrDefault(1, 64),
    )
    .option(
      '--cpu-work-on-gpu-machines <yes|no>',
      'machines with GPUs take work without one, too; unless said, as LONGSHORE_CPU_WORK_ON_GPU_POOLS says',
      yesNoOrDefault,
    )
    .option('--requires-pool-selector <yes|no>', 'place only what names this pool', yesNoOrDefault)
    .option('--priority <n>', 'fill pools of a higher one first, 0 to 1000', numberOrDefault(0, 1000, 'whole number'))
    .option(
      '--reserved-cpu-cores <n>',
      'cores of each machine that stay for its host; unless said, a tenth, at most one',
      numberOrDefault(0, 1024),
    )
    .option(
      '--reserved-memory-mib <n>',
      'memory of each machine that stays for its host; unless said, 5 %',
      numberOrDefault(0, 16_777_216, 'whole number'),
    )
    .option(
      '--labels <labels>',
      'labels of each machine of the pool, such as zone=a,disk=nvme; `default` for none',
      labelsOrDefault,
    )
    .option(
      '--hourly-cost <n>',
      'cost of each machine in an hour; unless said, as the provider lists it, else not known',
      numberOrDefault(0, 1_000_000),
    )
    .option(
      '--expected-gpus <n>',
      'GPUs that each machine should have: one with fewer says so',
      numberOrDefault(0, 64, 'whole number'),
    )
    .option('--registry-mirror <a=b>', 'pull layers of images of registry a from its mirror b first', mirrorOrDefault)
    .option(
      '--registry-mirror-auth <yes|no>',
      'send the credentials of private images to the mirror, too',
      yesNoOrDefault,
    )
    .option(
      '--provider <name>',
      'the provider that makes machines for the pool; unless said, they are admitted by hand',
      nameOrDefault,
    )
    .option('--min-free-gpu <n>', 'GPUs that the provider keeps free', numberOrDefault(0, 100_000, 'whole number'))
    .option('--min-free-cpu-cores <n>', 'cores that the provider keeps free', numberOrDefault(0, 1_000_000))
    .option(
      '--min-free-memory-mib <n>',
      'memory that the provider keeps free',
      numberOrDefault(0, 999_999_999, 'whole number'),
    )
    .option(
      '--min-machines <n>',
      'machines of the provider that stay, also without work',
      numberOrDefault(0, 10_000, 'whole number'),
    )
    .option('--max-machines <n>', 'most machines of the provider at once', numberOrDefault(0, 10_000, 'whole number'))
    .option(
      '--hourly-budget <n>',
      "most that the provider's machines may cost in an hour; unless said, no bound but their number",
      numberOrDefault(0, 999_999_999),
    )
    .option('--machine-gpu-model <model>', 'GPU model of a machine that the provider makes', nameOrDefault)
    .option('--machine-gpu-count <n>', 'GPUs of such a machine', numberOrDefault(0, 64, 'whole number'))
    .option(
      '--machine-gpu-memory-mib <n>',
      'memory of each of its GPUs, so that it may be made for `any:>=40GiB`',
      numberOrDefault(1, 16_777_216, 'whole number'),
    )
    .option('--machine-cpu-cores <n>', 'cores of such a machine; needed with a provider', numberOrDefault(0.1, 1024))
    .option(
      '--machine-memory-mib <n>',
      'memory of such a machine; needed with a provider',
      numberOrDefault(64, 16_777_216, 'whole number'),
    )
    .option(
      '--idle-seconds <n>',
      "time without work after which the provider's machine may go, 600 by default",
      numberOrDefault(5, 604_800, 'whole number'),
    )
    .option(
      '--demand-seconds <n>',
      'time that a container waits in vain before a machine is made for it, 5 by default',
      numberOrDefault(0, 3600),
    );
}
