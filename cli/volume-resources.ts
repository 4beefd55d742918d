// The command tree's part for volumes and their files. Names, flags and help are here; each command's module is loaded
// when it runs.
import { Option } from 'commander';
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import type { VolumeCopyFlags, VolumeCreateFlags, VolumeDeleteFlags, VolumeEntryFlags } from './flags.ts';
import { command, examples } from './program-parts.ts';

const VOLUME = 'as `volume list` shows it';
const LOOK_HELP = 'VOLUME, or VOLUME:PATH, such as models:base';
const PLACE_HELP = 'VOLUME:PATH, such as models:base/weights.bin; VOLUME: alone is all of it';

export function addVolume(program: Command, invocation: () => Invocation): void {
  const volume = command(program, 'volume', 'Make volumes and delete them; look at their files, copy and remove them');
  addRecords(volume, invocation);
  addEntries(volume, invocation);
  examples(
    command(volume, 'cp', 'Copy files and folders into a volume, or out of it')
      .argument(
        '<paths...>',
        'the sources, then the target: paths of this machine on one side, VOLUME:PATH on the other',
      )
      .addOption(new Option('-r, --recursive', 'folders are copied in any case').hideHelp())
      .option('--all', 'also files that are there already, with the same size and time of change')
      .option('--quiet', 'show no progress'),
    'volume cp ./data models:data',
    'volume cp weights.bin tokenizer.json models:base/',
    'volume cp models:runs/7 ./run-7',
  ).action(async (paths: string[], flags: VolumeCopyFlags) => {
    const { runVolumeCopy } = await import('./commands/volume-copy.ts');
    await runVolumeCopy(paths, flags, invocation());
  });
}

function addRecords(volume: Command, invocation: () => Invocation): void {
  examples(
    command(volume, 'create', 'Make a volume')
      .argument('<name>', 'how apps name it')
      .option('--driver <driver>', 'local, cache, shared or nfs (else the installation default)')
      .option('--machine <id>', 'the home of a local volume (else the first machine that mounts or fills it)'),
    'volume create models',
  ).action(async (name: string, flags: VolumeCreateFlags) => {
    const { runVolumeCreate } = await import('./commands/volume.ts');
    await runVolumeCreate(name, flags, invocation());
  });
  examples(command(volume, 'list', 'List volumes'), 'volume list').action(async () => {
    const { runVolumeList } = await import('./commands/volume.ts');
    await runVolumeList(invocation());
  });
  examples(
    command(volume, 'show', 'Show a volume, and what mounts it').argument('<name>', VOLUME),
    'volume show models',
  ).action(async (name: string) => {
    const { runVolumeShow } = await import('./commands/volume.ts');
    await runVolumeShow(name, invocation());
  });
  examples(
    command(volume, 'delete', 'Delete a volume with all its files, unless something mounts it')
      .argument('<name>', VOLUME)
      .option('--yes', 'delete its files without a question'),
    'volume delete models',
    'volume delete models --yes',
  ).action(async (name: string, flags: VolumeDeleteFlags) => {
    const { runVolumeDelete } = await import('./commands/volume.ts');
    await runVolumeDelete(name, flags, invocation());
  });
}

function addEntries(volume: Command, invocation: () => Invocation): void {
  examples(
    command(volume, 'ls', 'List the entries of a folder')
      .argument('<place>', LOOK_HELP)
      .option('-r, --recursive', 'with everything below'),
    'volume ls models:',
    'volume ls models:base --recursive --json',
  ).action(async (place: string, flags: VolumeEntryFlags) => {
    const { runVolumeEntries } = await import('./commands/volume-entries.ts');
    await runVolumeEntries(place, flags, invocation());
  });
  examples(
    command(volume, 'size', 'Count the bytes and files of a volume or a folder').argument('<place>', LOOK_HELP),
    'volume size models:base',
  ).action(async (place: string) => {
    const { runVolumeSize } = await import('./commands/volume-entries.ts');
    await runVolumeSize(place, invocation());
  });
  examples(
    command(volume, 'rm', 'Remove files, links and folders')
      .argument('<place...>', PLACE_HELP)
      .option('-r, --recursive', 'folders with everything in them'),
    'volume rm models:old.bin',
    'volume rm models:runs/7 --recursive',
  ).action(async (places: string[], flags: VolumeEntryFlags) => {
    const { runVolumeRemove } = await import('./commands/volume-entries.ts');
    await runVolumeRemove(places, flags, invocation());
  });
  examples(
    command(volume, 'mv', 'Give a file or a folder another path in its volume')
      .argument('<from>', PLACE_HELP)
      .argument('<to>', 'the new place; a slash at the end: into that folder, under its own name')
      .option('--replace', 'a file takes the place of a file'),
    'volume mv models:tmp/weights.bin models:base/',
  ).action(async (from: string, to: string, flags: VolumeEntryFlags) => {
    const { runVolumeMove } = await import('./commands/volume-entries.ts');
    await runVolumeMove(from, to, flags, invocation());
  });
}
