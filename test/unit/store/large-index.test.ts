import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { largeIndexIn } from '#scheduler/stores/store/large-index.ts';
import { listMigrations } from '#scheduler/stores/store/schema-files.ts';

test('a migration with the mark is one index, built beside writers', () => {
  expect(largeIndexIn('tasks_by_x', 'create index tasks_by_x on tasks (x);\n')).toBeUndefined();
  expect(
    largeIndexIn(
      'tasks_by_x',
      '-- Lists by x.\n-- concurrently\ncreate index tasks_by_x on tasks (x)\n  where rank < 3;\n',
    ),
  ).toEqual({ name: 'tasks_by_x', build: 'create index concurrently tasks_by_x on tasks (x)\n  where rank < 3;' });
  expect(largeIndexIn('u', '-- concurrently\ncreate unique index u on tasks (x);')?.build).toBe(
    'create unique index concurrently u on tasks (x);',
  );
});

test.each([
  'create index a on t (x);\ncreate index b on t (y);',
  'alter table t add column y int;\ncreate index a on t (y);',
  'create index on t (x);',
  'create index if not exists a on t (x);',
  '',
])('a mark on anything else is refused with its name: %j', (sql) => {
  expect(() => largeIndexIn('tasks_by_x', `-- concurrently\n${sql}`)).toThrow(/migration tasks_by_x is marked/);
});

test('every migration is a script or one marked index', async () => {
  for (const { name, file } of await listMigrations())
    expect(() => largeIndexIn(name, readFileSync(file, 'utf8'))).not.toThrow();
});
