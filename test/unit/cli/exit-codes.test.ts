import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { unreachable } from '#cli/client.ts';
import { CliError, TokenKindError, notFound, usageError } from '#cli/errors.ts';
import { EXIT, EXIT_MEANINGS } from '#cli/exit-codes.ts';
import { ROOT } from '../../helpers/repository.ts';

describe('exit codes', () => {
  test('are listed in docs/cli.md', () => {
    const page = readFileSync(join(ROOT, 'docs/cli.md'), 'utf8');
    const [, section = ''] = /## Exit codes\n([\s\S]*?)\n## /.exec(page) ?? [];
    const rows = [...section.matchAll(/^\| (\d+) \| (.*) \|$/gm)].map(([, code, text]) => [code, text]);
    const expected = (Object.keys(EXIT) as (keyof typeof EXIT)[]).map((name) => [
      String(EXIT[name]),
      EXIT_MEANINGS[name].replaceAll('|', String.raw`\|`),
    ]);
    expect(rows).toEqual(expected);
  });

  const refused = new CliError('x', { status: 401 });
  test.for([
    ['a failure', new CliError('x'), EXIT.failed],
    ['a value that makes no sense', usageError('x'), EXIT.usage],
    ['a token that is not accepted', refused, EXIT.refused],
    ['a call that is not allowed', new CliError('x', { status: 403 }), EXIT.refused],
    ['a token of another kind', new TokenKindError('admin', { cause: new CliError('y') }), EXIT.refused],
    ['an answer without such a thing', new CliError('x', { status: 404 }), EXIT.notFound],
    ['a value that the scheduler refuses', new CliError('x', { status: 400 }), EXIT.usage],
    ['a name that is not there', notFound('x'), EXIT.notFound],
    ['nobody who answers', unreachable('http://x', new Error('refused'), 1000), EXIT.unreachable],
    ['silence', unreachable('http://x', new DOMException('x', 'TimeoutError'), 1000), EXIT.unreachable],
    ['a sentence about another failure', new CliError('the image: x', { cause: refused }), EXIT.refused],
    ['an answer about another failure', new CliError('x', { cause: refused, status: 500 }), EXIT.failed],
  ] as const)('%s has its own', ([, error, code]) => {
    expect(error.exitCode).toBe(code);
  });
});
