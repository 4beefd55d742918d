/** The licences of what is bundled. */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { repositoryRoot } from '../setup/paths.mjs';

/**
 * Licences of bundled packages, which must travel with them.
 * @param {readonly string[]} packages - their folders, from the repository's root
 * @returns {Promise<string>} a text in Markdown
 */
export async function thirdParty(packages) {
  const parts = await Promise.all(
    [...new Set(packages)]
      .toSorted((a, b) => (a < b ? -1 : 1))
      .map(async (path) => {
        const folder = join(repositoryRoot, path);
        const { name, version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
        const file = (await readdir(folder))
          .toSorted()
          .find((entry) => /^(?:licen[cs]e|copying)(?:[.-]|$)/i.test(entry));
        const text = file === undefined ? '' : (await readFile(join(folder, file), 'utf8')).trim();
        return `## ${name} ${version} (${license ?? 'see its text'})\n\n${text}\n`;
      }),
  );
  return `# What Longshore is built from\n\n${parts.join('\n')}`;
}
