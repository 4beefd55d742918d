// The command tree's part for built images. Each command's module is loaded when it runs.
import type { Command } from 'commander';
import type { Invocation } from './commands/run.ts';
import { ROOT_OPTION, command, examples } from './program-parts.ts';

export function addImageCommands(program: Command, invocation: () => Invocation): void {
  const image = command(program, 'image', 'Look at images that were built from app files');
  examples(command(image, 'list', 'List images, the newest first'), 'image list').action(async () => {
    const { runImageList } = await import('./commands/image.ts');
    await runImageList(invocation());
  });
  examples(
    command(image, 'show', 'Show the steps of an image, and the output of its last build').argument(
      '<id>',
      'as `image list` shows it',
    ),
    'image show 0f3a9c…',
  ).action(async (id: string) => {
    const { runImageShow } = await import('./commands/image.ts');
    await runImageShow(id, invocation());
  });
  examples(
    command(image, 'build', 'Build the image of an app, without a deployment')
      .argument('<file[:handler]>', 'the file, and the handler when it defines several')
      .option(...ROOT_OPTION),
    'image build app.py:handler',
  ).action(async (target: string, { root }: { readonly root?: string }) => {
    const { runImageBuild } = await import('./commands/image.ts');
    await runImageBuild(target, root, invocation());
  });
  examples(
    command(image, 'delete', 'Delete an image that no deployment has').argument('<id>', 'as `image list` shows it'),
    'image delete 0f3a9c…',
  ).action(async (id: string) => {
    const { runImageDelete } = await import('./commands/image.ts');
    await runImageDelete(id, invocation());
  });
}
