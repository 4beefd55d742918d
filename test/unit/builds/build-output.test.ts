// The builder's output as people see it: their steps by name, their lines, and what explains a failure.
import { expect, test } from 'vitest';
import type { BuildEvent } from '#shared/protocol/build-events.ts';
import { BuildOutput } from '#agent/builds/output.ts';

function reader(titles: readonly (string | undefined)[]) {
  const events: BuildEvent[] = [];
  const output = new BuildOutput(titles.filter((title) => title !== undefined).length, (event) => events.push(event));
  output.instructions(titles);
  return { events, output };
}
const TITLES = ['FROM the base image', undefined, 'RUN pip install six', 'RUN make'];

test('steps have their titles, without those of ours and without the noise of the builder', () => {
  const { events, output } = reader(TITLES);
  output.push(
    'Step 1/4 : FROM sha256:1\n ---> 0123456789ab\nStep 2/4 : LABEL a=b\n ---> Using cache\n ---> 0123456789ab\n',
  );
  output.push('Step 3/4 : RUN ["/bin/sh"]\n ---> Running in 0123456789ab\nColl');
  output.push('ecting six\r\n\u001b[91mwarning\u001b[0m\n');
  output.push('Removing intermediate container 0123456789ab\nStep 4/4 : RUN make\n ---> Using cache\n');
  output.end();
  expect(events).toEqual([
    { step: 1, of: 3, title: 'FROM the base image' },
    { step: 2, of: 3, title: 'RUN pip install six' },
    { text: 'Collecting six' },
    { text: 'warning' },
    { step: 3, of: 3, title: 'RUN make' },
    { text: 'unchanged: its layer is used again' },
  ]);
});

test('a failure names its step, its exit code and its last lines', () => {
  const { output } = reader(TITLES);
  output.push('Step 1/4 : x\nStep 2/4 : x\nStep 3/4 : x\nfrom before\nStep 4/4 : x\n');
  for (let line = 1; line <= 30; line += 1) output.push(`line ${line}\n`);
  const failed = output.failed("The command '/bin/sh -c make' returned a non-zero code: 2");
  expect(failed).toMatchObject({ step: 'RUN make' });
  const text = 'failed' in failed ? failed.failed : '';
  expect(text).toMatch(/^step 3 of 3 failed \(RUN make\): exit code 2\nline 11\n/);
  expect(text).not.toContain('from before');
  expect(text.endsWith('line 30')).toBe(true);
});

test('a certificate that is not trusted is called so, although pip speaks of a missing distribution', () => {
  const { output } = reader(['RUN pip install six']);
  output.push('Step 1/1 : x\nSSLError(SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")) - skipping\n');
  output.push('ERROR: No matching distribution found for six\n');
  expect(output.failed('returned a non-zero code: 1')).toMatchObject({
    failed: expect.stringMatching(/certificate of the package index is not trusted.*LONGSHORE_CA_BUNDLE/s) as string,
  });
});

test('a step that prints lines like the builder’s does not shift the steps', () => {
  const { events, output } = reader(['RUN a', 'RUN b']);
  output.push('Step 1/2 : x\nStep 1/2 : spoof\nStep 2/9 : spoof\n');
  expect(events.at(-1)).toEqual({ text: 'Step 2/9 : spoof' });
});

test('an endless output is bounded', () => {
  const { events, output } = reader(['RUN a']);
  output.push(`Step 1/1 : x\n${'line\n'.repeat(30_000)}`);
  expect(events).toHaveLength(20_002);
  expect(events.at(-1)).toHaveProperty('note');
});

test('a step that was killed says why that may be', () => {
  const { output } = reader(['RUN a']);
  output.push('Step 1/1 : x\n');
  expect(output.failed('returned a non-zero code: 137')).toMatchObject({
    failed: expect.stringContaining('want of memory') as string,
  });
});

test.each([
  ['/bin/sh: 1: git: not found', 'git'],
  ['/bin/sh: apt-get: not found', 'apt-get'],
  ['bash: line 1: wget: command not found', 'wget'],
])('a program that the image lacks is named: %s', (line, name) => {
  const { output } = reader(['RUN a']);
  output.push(`Step 1/1 : x\n${line}\n`);
  const failed = output.failed('returned a non-zero code: 127');
  expect(failed).toMatchObject({ failed: expect.stringContaining(`The image has no program ${name}: `) as string });
  expect(output.failed('returned a non-zero code: 1')).not.toMatchObject({
    failed: expect.stringContaining('has no program') as string,
  });
});
