// The entry of the command line as an npm package (`npm run build`), for Node 20 and newer. Machine commands are
// replaced in that build: machine-commands.ts.
import './older-node.ts';

const [{ runProgram }, { endWithReader }] = await Promise.all([import('./program.ts'), import('./print.ts')]);
process.exitCode = await runProgram(process.argv.slice(2), endWithReader());
