// `npm run generate`: the types of shared/protocol/agent.proto (plain types;
// messages are read at run time), docs/openapi.json, docs/settings.md, docs/commands.md, the kept help of commands,
// docs/python-reference.md, and the table of calls in docs/clients.md.
import { execFileSync } from 'node:child_process';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';

rmSync('shared/protocol/generated', { recursive: true, force: true });
execFileSync(
  'node_modules/.bin/proto-loader-gen-types',
  [
    '--longs=Number',
    '--defaults',
    '--oneofs',
    '--arrays',
    '--grpcLib=@grpc/grpc-js',
    '--importFileExtension=.ts',
    '--inputTemplate=%s',
    '--outputTemplate=%s__Output',
    '--outDir=shared/protocol/generated',
    'shared/protocol/agent.proto',
  ],
  { stdio: 'inherit' },
);

// messages.ts re-exports every message type from a single file.
const folder = 'longshore/agent/v1';
const names = readdirSync(`shared/protocol/generated/${folder}`).sort();
const lines = names.map((name) => `export type * from './${folder}/${name}';`);
writeFileSync('shared/protocol/generated/messages.ts', `${lines.join('\n')}\n`);

await import('./generate-openapi.mjs');
await import('./generate-settings.mjs');
await import('./generate-commands.mjs');
await import('./generate-python-reference.mjs');
await import('./generate-clients.mjs');
