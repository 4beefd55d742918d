// Images from definitions, through a whole installation and the engine's own builder.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:net';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { networkInterfaces } from 'node:os';
import { describe, expect } from 'vitest';
import { Builder } from '../helpers/builder.ts';
import { MAIN, ROOT, jsonOf, test as base } from '../helpers/platform.ts';
import { runProgram } from '../helpers/programs.ts';
import { waitFor } from '../helpers/services.ts';

const test = base.extend('builder', { scope: 'file' }, ({ platform }): Builder => new Builder(platform));

/** A command that runs Python. */
const python = (...lines: readonly string[]): string => `python3 - <<'EOF'\n${lines.join('\n')}\nEOF`;

const DEFINITION = {
  pythonVersion: 'python3.11',
  pythonPackages: ['six==1.16.0', 'iniconfig==2.0.0'],
  commands: ['mkdir /built', 'echo hello > /built/file'],
  envVars: ['BUILT=a "quoted" $value'],
};

describe('a definition', () => {
  test(
    'with packages, commands and variables is built once, and its app runs',
    { timeout: 170_000 },
    async ({ builder }) => {
      const { platform } = builder;
      const before = await builder.verify(DEFINITION);
      expect(before).toMatchObject({ exists: false, valid: true });
      const { last, text } = await builder.build(DEFINITION);
      expect(last).toMatchObject({ done: true, success: true, imageId: before.imageId });
      expect(text).toMatch(/Step 1\/\d+: FROM the base image\n/);
      expect(text).toContain('RUN pip install six==1.16.0 iniconfig==2.0.0\n');
      expect(text).toContain('Successfully installed');
      expect(text).not.toContain('LABEL');
      expect(await builder.verify(DEFINITION)).toMatchObject({ exists: true, imageId: before.imageId });

      const app = await platform.deploy({ app: 'packages.py', handler: 'handler', imageId: before.imageId });
      const answer = await platform.invoke(app);
      expect(jsonOf(answer)).toEqual({ six: '1.16.0', file: 'hello', variable: 'a "quoted" $value' });

      const again = await builder.run(DEFINITION);
      expect(again).toHaveLength(1);
      expect(again[0]).toMatchObject({ done: true, success: true, imageId: before.imageId });
    },
  );

  test('whose last command changes builds that layer alone', { timeout: 170_000 }, async ({ builder }) => {
    const changed = { ...DEFINITION, commands: ['mkdir /built', 'echo changed > /built/file; date +%N'] };
    const { last, text } = await builder.build(changed);
    expect(last.success).toBe(true);
    const steps = text.split(/^Step /m).slice(1);
    expect(
      steps.filter((step) => !step.includes('its layer is used again')).map((step) => step.split(': ')[1]),
    ).toEqual([
      expect.stringContaining('FROM the base image') as string,
      expect.stringContaining('RUN echo changed') as string,
    ]);
  });

  test(
    'with calls of their own has a layer for each, within constraints, and uv installs where it is there',
    { timeout: 170_000 },
    async ({ builder }) => {
      const packages = {
        pythonPackages: ['six', 'constraint: six<1.17'],
        commands: ['python3 -c \'import six; print("six", six.__version__)\''],
        buildSteps: [
          { type: 'pip', command: 'uv', layer: 1 },
          { type: 'pip', command: 'iniconfig', layer: 2 },
          { type: 'pip', command: 'constraint: iniconfig==2.0.0', layer: 2 },
        ],
      };
      const { last, text } = await builder.build(packages);
      expect(last.msg).toBe('');
      expect(text).toContain('six 1.16.0');
      expect(text).toContain('+ iniconfig==2.0.0');
      const more = [...packages.buildSteps, { type: 'pip', command: 'tabulate', layer: 3 }];
      const again = await builder.build({ ...packages, buildSteps: more });
      const steps = again.text.split(/^Step /m).slice(1);
      const anew = steps.filter((step) => step.includes('RUN ') && !step.includes('its layer is used again'));
      expect(anew.map((step) => step.split('RUN ')[1]?.split('\n')[0])).toEqual(['pip install tabulate']);
    },
  );

  test('that cannot be is refused with the field, and its secrets with the reason', async ({ builder }) => {
    for (const [definition, why] of [
      [{ pythonVersion: 'python2.7', commands: ['x'] }, /^pythonVersion must be/],
      [{ commands: ['x'], secrets: ['TOKEN'] }, /^secrets: a build gets none/],
      [{ dockerfile: 'FROM $X' }, /^dockerfile: line 1: FROM has a variable/],
    ] as const) {
      const answer = await builder.platform.call('/api/v1/gateway/images/verify-build', { body: definition });
      expect(jsonOf(answer)).toMatchObject({ ok: false, valid: false, errMsg: expect.stringMatching(why) as string });
      expect((await builder.build(definition)).last).toMatchObject({ success: false, imageId: '' });
    }
  });
});

test(
  'the command line builds an app file with its output, and builds nothing at the second deploy',
  { timeout: 170_000 },
  async ({ builder }) => {
    const { platform } = builder;
    const env = {
      PATH: process.env['PATH'],
      HOME: platform.directory,
      LONGSHORE_URL: platform.url,
      LONGSHORE_TOKEN: platform.token,
    };
    const deploy = (): Promise<string> =>
      runProgram(process.execPath, [MAIN, 'deploy', 'examples/packages/app.py', '--json'], { cwd: ROOT, env });
    const first = await deploy();
    expect(first).toMatch(/^building the image$/m);
    expect(first).toMatch(/^ {2}Step \d\/\d: RUN pip install humanize==4\.9\.0 tabulate==0\.9\.0$/m);
    expect(first).toMatch(/^built image longshore\.internal\/[0-9a-f]{32}$/m);
    const { url } = JSON.parse(first.slice(first.indexOf('{\n'))) as { url: string };
    const answer = await platform.call(url, { body: {} });
    expect(jsonOf(answer)).toMatchObject({
      greeting: 'hello',
      number: '1,234,567',
      table: expect.stringContaining('4.9.0') as string,
    });
    expect(await deploy()).not.toContain('building');
    const list = await runProgram(process.execPath, [MAIN, 'image', 'list'], { cwd: ROOT, env });
    const id = /^([0-9a-f]{32}) +READY/m.exec(list)?.[1] ?? '';
    const shown = await runProgram(process.execPath, [MAIN, 'image', 'show', id], { cwd: ROOT, env });
    expect(shown).toContain('Last build:');
  },
);

test('a failing command names its step and its last lines', { timeout: 100_000 }, async ({ builder }) => {
  const { last } = await builder.build({ commands: ['true', 'echo before; echo why >&2; exit 7', 'echo never'] });
  expect(last).toMatchObject({ done: true, success: false, imageId: '' });
  expect(last.msg).toMatch(/^step 3 of 4 failed \(RUN echo before; echo why >&2; exit 7\): exit code 7\n/);
  expect(last.msg).toContain('before');
  expect(last.msg).toContain('why');
});

test('a Dockerfile with files of its own is built', { timeout: 100_000 }, async ({ builder }) => {
  const { platform } = builder;
  const buildCtxObject = await platform.upload({ 'data/file': Buffer.from('from the context') });
  const dockerfile = [
    '# Two stages.',
    `FROM ${platform.engine.baseImage} AS first`,
    'COPY data/file /from-context',
    `FROM ${platform.engine.baseImage}`,
    'COPY --from=first /from-context /copied',
    'RUN cat /copied \\',
    '  && echo',
  ].join('\n');
  const { last, text } = await builder.build({
    dockerfile,
    buildCtxObject,
    commands: ['cat /copied; echo; echo added'],
  });
  expect(last.msg).toBe('');
  expect(last.success).toBe(true);
  expect(text.match(/from the context/g)).toHaveLength(2);
  expect(text).toContain('added');
  const foreign = await builder.build({ dockerfile, buildCtxObject: randomUUID() });
  expect(foreign.last.msg).toMatch(/^buildCtxObject .* is not an object of this workspace/);
});

test(
  'steps reach neither the host nor metadata addresses, also by frames of their own',
  { timeout: 150_000 },
  async ({ builder }) => {
    const own = Object.values(networkInterfaces())
      .flatMap((list) => list ?? [])
      .filter(({ internal, family }) => !internal && family === 'IPv4')
      .map(({ address }) => address);
    const server = createServer((socket) => socket.destroy());
    server.listen(0, '0.0.0.0');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const heard: string[] = [];
    const datagrams = createSocket('udp4', (message) => heard.push(message.toString()));
    datagrams.bind(port, '0.0.0.0');
    await once(datagrams, 'listening');
    try {
      const tcp = python(
        'import socket',
        `for host in ${JSON.stringify([...own, '169.254.169.254', '100.100.100.200'])}:`,
        '  try:',
        `    socket.create_connection((host, ${port}), 3); print(host, "is" + " open")`,
        '  except OSError as error: print(host, error)',
      );
      const raw = python(
        'import fcntl, socket, struct, time',
        'def check(b):',
        '  s = sum(struct.unpack("!%dH" % (len(b) // 2), b)); s = (s >> 16) + (s & 0xffff); s += s >> 16; return ~s & 0xffff',
        'try: socket.create_connection(("192.0.2.77", 9), 0.3)',
        'except OSError: pass',
        's = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)); s.bind(("eth0", 0))',
        'mac = fcntl.ioctl(s.fileno(), 0x8927, struct.pack("256s", b"eth0"))[18:24]',
        'me = socket.inet_ntoa(fcntl.ioctl(s.fileno(), 0x8915, struct.pack("256s", b"eth0"))[20:24])',
        'gateway = bytes.fromhex(open("/proc/net/arp").read().splitlines()[1].split()[3].replace(":", ""))',
        `for host in ${JSON.stringify(own)}:`,
        '  for source in (me, "192.0.2.9"):',
        '    for bypass in (0, 1):',
        '      s.setsockopt(263, 20, bypass)',
        `      udp = struct.pack("!HHHH", 4444, ${port}, 16, 0) + b"rawframe"`,
        '      ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(host))',
        '      ip = ip[:10] + struct.pack("!H", check(ip)) + ip[12:]',
        '      try: s.send(gateway + mac + b"\\x08\\x00" + ip + udp); print("sent")',
        '      except OSError as error: print("refused", error)',
      );
      const { last, text } = await builder.build({ commands: [tcp, raw] });
      expect(last.msg).toBe('');
      expect(last.success).toBe(true);
      expect(text).not.toContain('is open');
      for (const host of [...own, '169.254.169.254']) expect(text).toContain(`${host} [Errno 113]`);
      expect(heard).toEqual([]);
    } finally {
      server.close();
      datagrams.close();
    }
  },
);

test(
  'two builds of a definition at once are one, and a caller who leaves ends none',
  { timeout: 100_000 },
  async ({ builder }) => {
    const command = `cat /proc/sys/kernel/random/uuid; sleep 2; echo ${randomUUID()}`;
    const definition = { commands: [command] };
    const leaving = new AbortController();
    const left = fetch(`${builder.platform.url}/api/v1/gateway/images/build`, {
      method: 'POST',
      headers: { authorization: `Bearer ${builder.platform.token}`, 'content-type': 'application/json' },
      body: JSON.stringify(definition),
      signal: leaving.signal,
    }).then((answer) => answer.text());
    left.catch(() => undefined);
    await waitFor(
      async () =>
        (await builder.platform.engine.client.listContainers()).some(({ Command }) => Command.includes('random/uuid')),
      'the step runs',
    );
    leaving.abort();
    const [one, other] = await Promise.all([builder.build(definition), builder.build(definition)]);
    const uuids = [one, other].map(({ text }) => /^[0-9a-f]{8}-[0-9a-f-]{27}$/m.exec(text)?.[0]);
    expect(uuids[0]).toBeDefined();
    expect(uuids[1]).toBe(uuids[0]);
    expect(one.last).toMatchObject({ success: true, imageId: other.last.imageId });
  },
);

test('another workspace gets neither the image nor its layers', { timeout: 100_000 }, async ({ builder }) => {
  const { platform } = builder;
  const definition = { commands: ['echo one'] };
  const own = (await builder.build(definition)).last.imageId;
  const made = await platform.call('/api/v1/workspace', { body: { name: 'theirs' } });
  const { token } = jsonOf<{ token: string }>(made);
  const stub = await platform.call('/api/v1/gateway/stubs', {
    token,
    body: { stubType: 'endpoint/deployment', handler: 'app:handler', cpu: 100, memory: 128, imageId: own },
  });
  expect(jsonOf(stub)).toMatchObject({
    ok: false,
    errMsg: expect.stringContaining('is not an image of this workspace') as string,
  });
  const verified = jsonOf<{ imageId: string; exists: boolean }>(
    await platform.call('/api/v1/gateway/images/verify-build', { token, body: definition }),
  );
  expect(verified).toMatchObject({ exists: false });
  expect(verified.imageId).not.toBe(own);
  const byId = await platform.call('/api/v1/gateway/images/verify-build', { token, body: { imageId: own } });
  expect(jsonOf(byId)).toMatchObject({ ok: false });
  const asBase = await platform.call('/api/v1/gateway/images/verify-build', {
    token,
    body: { existingImageUri: own, commands: ['x'] },
  });
  expect(jsonOf(asBase)).toMatchObject({ ok: false, errMsg: expect.stringContaining('is not a base') as string });
});

test(
  'an agent killed during a build leaves nothing, and the build can be begun again',
  { timeout: 150_000 },
  async ({ builder }) => {
    const { platform } = builder;
    const { client } = platform.engine;
    const mark = randomUUID();
    const definition = { commands: [`echo ${mark} > /first`, `sleep 8; cat /first`] };
    const containersOf = async () =>
      (await client.listContainers({ all: true })).filter(({ Command }) => Command.includes('sleep 8; cat /first'));
    const first = builder.run(definition);
    await waitFor(async () => (await containersOf()).length > 0, 'the step runs', 60_000);
    const [step] = await containersOf();
    const pauseId = step?.HostConfig.NetworkMode.replace('container:', '') ?? '';
    expect((await client.getContainer(pauseId).inspect()).State.Running).toBe(true);
    await platform.agent.kill();
    const last = (await first).at(-1);
    expect(last).toMatchObject({
      done: true,
      success: false,
      msg: expect.stringContaining('begin it again') as string,
    });
    await platform.agent.start();
    await waitFor(async () => (await containersOf()).length === 0, 'the next agent has removed the step', 30_000);
    const dangling = { dangling: ['true'], label: [`io.longshore.build=${platform.machineId() ?? ''}`] };
    await waitFor(
      async () => (await client.listImages({ filters: dangling })).length === 0,
      'the layers are gone',
      30_000,
    );
    await waitFor(
      async () => !(await client.listContainers({ all: true })).some(({ Id }) => Id === pauseId),
      'the pause container of the build is gone',
      30_000,
    );
    const again = await waitFor(
      async () => {
        const { last: end, text } = await builder.build(definition);
        return end.msg.includes('can build images now') ? undefined : { end, text };
      },
      'the machine builds again',
      60_000,
    );
    expect(again.end).toMatchObject({ success: true, msg: '' });
    expect(again.text).toContain(mark);
  },
);
