// The texts by which a new host joins: the line for a shell, and user data for cloud-init.
import { parseYaml } from '@redocly/openapi-core';
import { expect, test } from 'vitest';
import { joinLine, upgradeLine } from '#shared/join-line.ts';
import { joinTexts, userDataOf } from '#shared/user-data.ts';

const TOKEN = `lsj1.${'ab'.repeat(32)}.${'s'.repeat(43)}`;
const DIGEST = 'cd'.repeat(32);
const PLACE = {
  baseUrl: 'https://longshore.example:1994/',
  upstream: 'grpcs://longshore.example:1995',
  channel: 'stable',
  scriptSha256: DIGEST,
};

interface Document {
  readonly write_files: readonly { path: string; owner: string; permissions: string; content: string }[];
  readonly runcmd: readonly (readonly string[])[];
}
const read = (text: string): Document => parseYaml(text) as Document;

test('the line checks the script by its hash, and gives the token through a pipe', () => {
  expect(joinLine(PLACE, TOKEN)).toBe(
    `f=$(mktemp) && curl -fsSL 'https://longshore.example:1994/install/agent?channel=stable' -o "$f" && echo "${DIGEST}  $f" | sha256sum -c --quiet - && { echo '${TOKEN}'; env | grep -iE '^(https?|no)_proxy='; } | sudo sh "$f" install --from 'https://longshore.example:1994' --scheduler 'longshore.example:1995'`,
  );
  expect(upgradeLine({ ...PLACE, channel: '' })).toContain(
    'sudo sh "$f" install --from \'https://longshore.example:1994\' </dev/null',
  );
});

test('a loopback address gives way to the host that agents dial', () => {
  const line = joinLine({ ...PLACE, baseUrl: 'http://127.0.0.1:1994', upstream: '[fd00::7]:1995' }, TOKEN);
  expect(line).toContain("--from 'http://[fd00::7]:1994' --scheduler '[fd00::7]:1995'");
});

test('user data keeps the token in a file of root alone, and no command has it', () => {
  const { userData, joinLine: line } = joinTexts(PLACE, TOKEN);
  expect(line).toBe(joinLine(PLACE, TOKEN));
  expect(userData.startsWith('#cloud-config\n')).toBe(true);
  const { write_files: files, runcmd } = read(userData);
  expect(files.map(({ path, owner, permissions }) => [path, owner, permissions])).toEqual([
    ['/run/longshore-join/token', 'root:root', '0600'],
    ['/run/longshore-join/join.sh', 'root:root', '0600'],
  ]);
  expect(files[0]?.content).toBe(`${TOKEN}\n`);
  expect(files[1]?.content).toContain(`echo "${DIGEST}  $f" | sha256sum -c`);
  expect(files[1]?.content).not.toContain('lsj1');
  expect(runcmd).toEqual([['sh', '/run/longshore-join/join.sh']]);
});

test('without a release, user data joins with the agent of the image', () => {
  const { write_files: files } = read(userDataOf({ ...PLACE, scriptSha256: null }, TOKEN));
  expect(files[1]?.content).toContain("longshore-agent join --scheduler 'longshore.example:1995'");
  expect(files[1]?.content).not.toContain('curl');
});
