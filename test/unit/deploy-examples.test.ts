// Examples for hosts that join by an enrolment token: they can be read, and give no token away.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseYaml } from '@redocly/openapi-core';
import { expect, test } from 'vitest';

const DEPLOY = join(import.meta.dirname, '../../deploy');
const textOf = (path: string): string => readFileSync(join(DEPLOY, path), 'utf8');

test('user data for a golden image keeps the token in a file of root alone, and joins', () => {
  const text = textOf('cloud-init/golden-image.yaml');
  expect(text.startsWith('#cloud-config\n')).toBe(true);
  const { write_files: files, runcmd } = parseYaml(text) as {
    readonly write_files: readonly { readonly path: string; readonly permissions: string; readonly content: string }[];
    readonly runcmd: readonly (readonly string[])[];
  };
  expect(files).toMatchObject([{ path: '/run/longshore-join/token', owner: 'root:root', permissions: '0600' }]);
  expect(files[0]?.content).toMatch(/^lse1\.[^\n]+\n$/);
  expect(runcmd.flat().join(' ')).toContain('longshore-agent join --scheduler');
  expect(runcmd.flat().join(' ')).not.toContain('lse1');
});

test('the playbook gives the line on standard input and logs it nowhere', () => {
  const [play] = parseYaml(textOf('ansible/longshore-agent.yaml')) as readonly {
    readonly tasks: readonly Readonly<Record<string, unknown>>[];
  }[];
  const install = play?.tasks.find((task) => JSON.stringify(task).includes('installLine'));
  expect(install).toMatchObject({ 'ansible.builtin.command': { cmd: 'sh' }, no_log: true });
});

test('examples for Ansible leave a host alone that has joined, and not one that only has settings', () => {
  for (const text of [textOf('ansible/longshore-agent.yaml'), textOf('../docs/machines.md')])
    expect(/ansible\.builtin\.stat:[^\n]*\n?[^\n]*path: (\S+)/.exec(text)?.[1]).toBe(
      '/var/lib/longshore-agent/agent/machine.json',
    );
});

test('an enrolment token that is written to a file is readable to its owner alone', () => {
  const texts = [textOf('ansible/longshore-agent.yaml'), textOf('../docs/enrolment.md')];
  const lines = texts.flatMap((text) => text.match(/^.*longshore enrol-token create .*>\S+$/gm) ?? []);
  expect(lines).toHaveLength(3);
  for (const line of lines) expect(line).toContain('(umask 077; ');
});
