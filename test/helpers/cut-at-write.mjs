// Loaded before an agent (node --import): kills it with SIGKILL at one of its writes of the journal. The kill comes
// before or after the file is in place. A message over IPC selects the write, counted from then on: {kind: 'cut', at:
// 3, when: 'before'}. Answers {kind: 'left?'} with {kind: 'left', left} as long as it lives.
import fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';

let cut;
process.on('message', (message) => {
  if (message?.kind === 'cut') cut = { ...message, left: message.at };
  if (message?.kind === 'left?') process.send({ kind: 'left', left: cut?.left ?? 0 });
});
process.channel?.unref();

const { rename } = fs;
fs.rename = async (from, to) => {
  if (cut === undefined || !String(to).endsWith('/journal.json')) return await rename(from, to);
  cut.left -= 1;
  if (cut.left > 0) return await rename(from, to);
  if (cut.when === 'after') await rename(from, to);
  process.kill(process.pid, 'SIGKILL');
  return await new Promise(() => {});
};
syncBuiltinESMExports();
