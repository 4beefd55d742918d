import { describe, expect, test } from 'vitest';
import { sentenceOf, unreachable } from '#cli/client.ts';
import { callLines, exampleInput } from '#cli/commands/call-lines.ts';
import { noneText } from '#cli/commands/logs.ts';
import { failureText, invokePath, readInput } from '#cli/commands/invoke.ts';
import { splitTarget } from '#cli/deploy/describe.ts';
import { CliError } from '#cli/errors.ts';
import { formatTable, withoutControls } from '#cli/print.ts';
import { rolloutTexts } from '#scheduler/api/explain/rollout.ts';
import type { DeploymentId } from '#shared/domain/ids.ts';
import { shellWord } from '#shared/shell-word.ts';
import { clientUrl, daemonEnv, linkSocket, ownNetworks, schedulerEnv, upSettings } from '#cli/up/settings.ts';

const answer = (status: number, body: string) => ({ status, headers: {}, body: Buffer.from(body) });

describe('what a person is told', () => {
  test.for([
    ['hello/v3', 'hello/v3'],
    ['UX my app!', "'UX my app!'"],
    ["it's", String.raw`'it'\''s'`],
    ['a;reboot', "'a;reboot'"],
    ['$(id)', "'$(id)'"],
    ['~root', "'~root'"],
    ['über', "'über'"],
    ['', "''"],
  ] as const)('can be pasted into a shell: %j', ([name, word]) => {
    expect(shellWord(name)).toBe(word);
    const url = 'http://a:1/x';
    const called = { kind: 'endpoint', name, requiredInputs: [], url, hostUrl: null, isPublic: true, ports: [] };
    expect(callLines(called, 'longshore')[1]).toBe(`longshore invoke ${word}`);
    expect(noneText('deployment', name, {})).toContain(`  - \`longshore explain ${word}\` says how it stands`);
    const row = { name, rolloutSinceMs: null, rolloutWhy: 'x' };
    const told = rolloutTexts({
      row: { ...row, id: '2' as DeploymentId, version: 2, rollout: 'failed' },
      serving: { ...row, id: '1' as DeploymentId, version: 1, rollout: null },
      highest: undefined,
      limitMs: 1,
    });
    expect(told.steps[0]).toContain(`\`longshore logs ${shellWord(`${name}/v2`)}\``);
  });

  test('after a deploy: how to call it, without a token where anybody may', () => {
    const url = 'https://a:1/asgi/site/v1';
    const hostUrl = 'https://site-1-v1.a:1';
    const site = { kind: 'asgi', name: 'site', requiredInputs: null, url, hostUrl, isPublic: false, ports: [] };
    const token = `-H "Authorization: Bearer $(longshore context token)"`;
    const ofSite = [`curl ${url} ${token}`, 'WebSockets: wss://a:1/asgi/site/v1, with the same header'];
    expect(callLines(site, 'longshore')).toEqual([
      `a browser: ${hostUrl}/?auth_token=TOKEN, where TOKEN is what \`longshore token create --scope invoke\` prints`,
      ...ofSite,
    ]);
    expect(callLines({ ...site, hostUrl: url }, 'longshore')).toEqual(ofSite);
    expect(callLines({ ...site, isPublic: true, url: 'http://a:1/asgi/public/1-2' }, 'longshore')).toEqual([
      `a browser: ${hostUrl}/`,
      'curl http://a:1/asgi/public/1-2',
      'WebSockets: ws://a:1/asgi/public/1-2',
    ]);
    const chat = { ...site, isRealtime: true };
    expect(callLines(chat, 'longshore')).toEqual([
      'WebSockets: wss://a:1/asgi/site/v1?auth_token=TOKEN, or with the header "Authorization: Bearer TOKEN"; `longshore token create --scope invoke` prints TOKEN',
    ]);
    expect(callLines({ ...chat, isPublic: true }, 'longshore')).toEqual(['WebSockets: wss://a:1/asgi/site/v1']);
    const sum = { ...site, kind: 'taskqueue', name: 'sum', requiredInputs: ['a'], url: 'http://a:1/x', hostUrl: null };
    expect(callLines(sum, 'longshore')[0]).toContain(token);
    expect(callLines({ ...sum, isPublic: true }, 'longshore')).toEqual([
      `curl -X POST http://a:1/x -d '{"a": …}'`,
      `longshore invoke sum --kind taskqueue --data '{"a": …}'`,
    ]);
  });

  test('after a deploy of a pod: each of its ports', () => {
    const url = 'https://a:1/pod/shop/v1/<PORT>';
    const pod = { kind: 'pod', name: 'shop', requiredInputs: null, url, hostUrl: 'https://shop-1-v1-<PORT>.a:1' };
    const token = `-H "Authorization: Bearer $(longshore context token)"`;
    const browser = `a browser: https://shop-1-v1-80.a:1/?auth_token=TOKEN, where TOKEN is what \`longshore token create --scope invoke\` prints`;
    expect(callLines({ ...pod, isPublic: false, ports: [80] }, 'longshore')).toEqual([
      browser,
      `curl https://a:1/pod/shop/v1/80/ ${token}`,
    ]);
    expect(callLines({ ...pod, isPublic: true, ports: [80, 9000] }, 'longshore')).toEqual([
      'a browser: https://shop-1-v1-80.a:1/',
      'curl https://a:1/pod/shop/v1/80/',
      'a browser: https://shop-1-v1-9000.a:1/',
      'curl https://a:1/pod/shop/v1/9000/',
    ]);
    expect(callLines({ ...pod, isPublic: true, ports: [] }, 'longshore')).toEqual([
      'it has no ports; `ports=[…]` of the Pod names them',
    ]);
  });

  test('when nothing listens: the address, and what fits it', () => {
    const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
    const host = { hasUnit: false, addresses: ['10.0.0.5', 'fd00::5'] };
    const told = (origin: string, hasUnit = false): string =>
      unreachable(`${origin}/api/v1/health`, refused, 1000, undefined, { ...host, hasUnit }).message;
    const up = 'is the scheduler running? start it with `longshore up` (in a checkout: `npm start`)';
    for (const origin of [
      'http://127.0.0.1:1994',
      'http://localhost:1994',
      'http://[::1]:1994',
      'http://10.0.0.5:1994',
    ])
      expect(told(origin)).toBe(`cannot reach ${origin} (ECONNREFUSED): ${up}`);
    expect(told('http://[fd00::5]:1994')).toContain(up);
    const service = told('http://127.0.0.1:1994', true);
    expect(service).toContain('on this host it is a service: see `systemctl status longshore-scheduler`');
    for (const hasUnit of [false, true]) {
      const elsewhere = told('https://longshore.example.com', hasUnit);
      expect(elsewhere).toMatch(/^cannot reach https:\/\/longshore\.example\.com \(ECONNREFUSED\): check the address/);
      expect(`${service} ${elsewhere}`).not.toContain('longshore up');
    }
    expect(told('http://10.0.0.50:1994')).toContain('check the address');
    expect(told('http://127.example.com')).toContain('check the address');
  });

  test('when nothing listens where a stored context says: which context that is', () => {
    const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
    expect(unreachable('http://127.0.0.1:9/api/v1/health', refused, 1000, 'local-2').message).toContain(
      'cannot reach http://127.0.0.1:9 (ECONNREFUSED, context local-2; `longshore context list` shows them)',
    );
  });

  test('when the scheduler speaks HTTPS and the URL does not, or the other way round', () => {
    const cut = Object.assign(new Error('other side closed'), { code: 'UND_ERR_SOCKET' });
    expect(unreachable('http://a:1/x', cut, 1000).message).toMatch(/was lost .*where it serves HTTPS now, its URL/);
    expect(unreachable('https://a:1/x', cut, 1000).message).not.toContain('where it serves HTTPS now');
    const clear = Object.assign(new Error('wrong version number'), { code: 'ERR_SSL_WRONG_VERSION_NUMBER' });
    expect(unreachable('https://a:1/x', clear, 1000).message).toContain('https://a:1 does not speak HTTPS');
  });

  test('when a certificate has expired: no file of ours would help', () => {
    const expired = Object.assign(new Error('certificate has expired'), { code: 'CERT_HAS_EXPIRED' });
    expect(unreachable('https://a/x', expired, 1000).message).toBe(
      'https://a has a certificate that has expired: its operator renews it',
    );
  });

  test('when there is no answer in time', () => {
    const late = new DOMException('late', 'TimeoutError');
    expect(unreachable('http://a:1/x', late, 30_000).message).toBe(
      'http://a:1 did not answer within 30 s: try again; `longshore status` says whether it is ready',
    );
  });

  test.for([
    [401, { message: 'Unauthorized' }, /does not accept the token \(Unauthorized\).*LONGSHORE_TOKEN/],
    [401, { code: 16, message: 'invalid or missing token', details: [] }, /invalid or missing token/],
    [404, { code: 5, message: 'Not Found', details: [] }, /has no such thing$/],
    [400, { code: 3, message: 'parsing field "limit": no number', details: [] }, /^parsing field "limit"/],
    [500, { message: 'Internal Server Error' }, /^the scheduler failed \(500\): Internal Server Error/],
    [502, {}, /it said nothing more/],
    [409, { ok: false, errMsg: 'taken' }, /^taken$/],
  ] as const)('for an answer %i %j', ([status, body, sentence]) => {
    expect(sentenceOf(status, body, 'http://a:1')).toMatch(sentence);
  });

  test.for([
    ['{"error":"KeyError: \'x\'"}', "KeyError: 'x'"],
    ['{"message":"Invalid deployment"}', 'Invalid deployment'],
    ['plain text', 'plain text'],
    ['[1]', '[1]'],
  ])('of an invocation that failed with %s', ([body, text]) => {
    expect(failureText(answer(500, body ?? ''))).toBe(text);
  });

  test('as the input of a first call: what the handler must be given', () => {
    expect([exampleInput([]), exampleInput(['a'])]).toEqual(['{}', '{"a": …}']);
    expect(exampleInput(['text', 'top_k'])).toBe('{"text": …, "top_k": …}');
  });

  test('as a table with columns as wide as they must be', () => {
    expect(
      formatTable(
        ['A', 'LONG'],
        [
          ['value', 'x'],
          ['v', ''],
        ],
      ),
    ).toBe('A      LONG\nvalue  x\nv');
    expect(formatTable(['A'], [])).toBe('(none)');
    expect(formatTable(['A'], [], 10)).toBe('(none)');
  });

  test('that is wider than the terminal leaves out ids behind names', () => {
    expect(formatTable(['ID', 'TOOK', 'CONTAINER'], [['0ac', '2s', 'd0ac40f1']], 12)).toBe('ID   TOOK\n0ac  2s');
    expect(formatTable(['NAME', 'KIND', 'ID'], [['hello', 'endpoint', 'd0ac40f1']], 20)).toBe(
      ['NAME   KIND', 'hello  endpoint'].join('\n'),
    );
  });

  test('that is wider than the terminal has a block for each row, in which nothing is lost', () => {
    const rows = [
      ['endpoint-1', 'RUNNING', '-'],
      ['endpoint-2', 'PENDING', ''],
    ];
    expect(formatTable(['ID', 'STATUS', 'USE'], rows, 24)).toBe(
      ['ID          STATUS   USE', 'endpoint-1  RUNNING  -', 'endpoint-2  PENDING'].join('\n'),
    );
    expect(formatTable(['ID', 'STATUS', 'USE'], rows, 23)).toBe(
      ['ID      endpoint-1', 'STATUS  RUNNING', 'USE     -', '', 'ID      endpoint-2', 'STATUS  PENDING', 'USE'].join(
        '\n',
      ),
    );
  });
});

describe('what a person gives', () => {
  test('as input is checked before a task is made of it', async () => {
    expect((await readInput('{"a": 1}')).toString()).toBe('{"a": 1}');
    await expect(readInput('{a: 1}')).rejects.toMatchObject({ exitCode: 2 });
    await expect(readInput('[1]')).rejects.toThrow('--data must be a JSON object');
    await expect(readInput('@/no/such/file')).rejects.toThrow('--data: cannot read /no/such/file');
  });

  test('as an app file may name a handler', () => {
    expect(splitTarget('/a/app.py')).toEqual({ file: '/a/app.py' });
    expect(splitTarget('/a/app.py:predict')).toEqual({ file: '/a/app.py', handlerName: 'predict' });
    expect(() => splitTarget('/a/app')).toThrow(CliError);
    expect(() => splitTarget('/a/app.py:not-a-name')).toThrow('is not a Python file');
  });

  test('as a name cannot leave the path of an invoke URL', () => {
    expect(invokePath('endpoint', 'a/../b', 3)).toBe('/endpoint/a%2F..%2Fb/v3');
    expect(invokePath('endpoint', 'hello')).toBe('/endpoint/hello');
  });

  test('as flags of up wins over the environment', () => {
    const env = { HOME: '/home/ada', LONGSHORE_HTTP_ADDRESS: '0.0.0.0:80', LONGSHORE_DATA_DIR: '/data' };
    expect(upSettings({}, env)).toMatchObject({
      dataDir: '/data',
      httpAddress: '0.0.0.0:80',
      agentAddress: '127.0.0.1:1995',
    });
    expect(upSettings({ port: 0, agentPort: 7, dataDir: '/x' }, env)).toMatchObject({
      dataDir: '/x',
      httpAddress: '127.0.0.1:0',
      agentAddress: '127.0.0.1:7',
    });
    expect(upSettings({}, { HOME: '/home/ada' }).dataDir).toBe('/home/ada/.local/share/longshore');
  });
});

describe('the environment of a daemon under up', () => {
  test('names the socket where scheduler and agent meet, unless its path is too long for one', () => {
    const alone = { httpAddress: '127.0.0.1:1', agentAddress: 'localhost:2' };
    expect(ownNetworks(alone, {})).toEqual({ LONGSHORE_WEBHOOK_ALLOW: '127.0.0.0/8,::1' });
    expect(ownNetworks(alone, { LONGSHORE_WEBHOOK_ALLOW: '10.0.0.1' })).toEqual({});
    expect(ownNetworks({ ...alone, httpAddress: '0.0.0.0:1' }, {})).toEqual({});
    expect(ownNetworks({ ...alone, agentAddress: '10.0.0.5:2' }, {})).toEqual({});
    expect(linkSocket('/data')).toEqual({ LONGSHORE_LINK_SOCKET: '/data/link/agent.sock' });
    expect(linkSocket(`/${'d'.repeat(100)}`)).toEqual({});
  });

  test('has everything but what belongs to the command line', () => {
    const env = { PATH: '/bin', LONGSHORE_BASE_IMAGE: 'x', LONGSHORE_TOKEN: 'eyJ', LONGSHORE_CONTEXT_FILE: '/c' };
    expect(daemonEnv(env)).toEqual({ PATH: '/bin', LONGSHORE_BASE_IMAGE: 'x' });
    expect(schedulerEnv(env)).toEqual({ ...daemonEnv(env), MALLOC_TRIM_THRESHOLD_: '4194304' });
    expect(schedulerEnv({ MALLOC_TRIM_THRESHOLD_: '1' })).toEqual({ MALLOC_TRIM_THRESHOLD_: '1' });
  });

  test('an address that listens everywhere is dialled on loopback', () => {
    expect(clientUrl('0.0.0.0:1994', {})).toBe('http://127.0.0.1:1994');
    expect(clientUrl('[::]:1994', {})).toBe('http://127.0.0.1:1994');
    expect(clientUrl('10.0.0.7:80', {})).toBe('http://10.0.0.7:80');
    const sealed = { LONGSHORE_HTTP_TLS_CERT: '/cert.pem' };
    expect(clientUrl('0.0.0.0:1994', sealed)).toBe('https://127.0.0.1:1994');
    const named = { ...sealed, LONGSHORE_EXTERNAL_URL: 'https://gpu.example.org/' };
    expect(clientUrl('0.0.0.0:1994', named)).toBe('https://gpu.example.org');
  });
});

test('a text of a container gives a terminal no orders', () => {
  expect(withoutControls('a\u001b[2J\r\u009b0m\n\tß')).toBe('a\ufffd[2J\ufffd\ufffd0m\n\tß');
});
