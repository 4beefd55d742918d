// Looks at a provider's program without running it: whether it is there, may be executed, and has its interpreter.
import { constants } from 'node:fs';
import { access, open, stat } from 'node:fs/promises';

/** Longest first line that is read. */
const MOST_LINE = 256;

export interface ProgramProblem {
  readonly problem: string;
  readonly cure: string;
}

/** @param path - absolute @returns undefined: nothing is wrong with the file */
export async function programProblem(path: string): Promise<ProgramProblem | undefined> {
  const file = await stat(path).catch(() => undefined);
  if (file === undefined)
    return {
      problem: `${path} is not there, or this user may not look at it`,
      cure: 'correct command in the providers file, or put the program there',
    };
  if (!file.isFile())
    return { problem: `${path} is no file`, cure: 'command must begin with the path of a program: correct it' };
  if (!(await isPermitted(path, constants.X_OK)))
    return {
      problem: `the user of the scheduler may not execute ${path}`,
      cure: `chmod +x ${path}, and let that user enter its folders`,
    };
  return await interpreterProblem(path);
}

const isPermitted = (path: string, mode: number): Promise<boolean> =>
  access(path, mode).then(
    () => true,
    () => false,
  );

/** A script needs the program that its first line names, and the right to read it. */
async function interpreterProblem(path: string): Promise<ProgramProblem | undefined> {
  const file = await open(path).catch(() => undefined);
  // A program that may be executed and not read is no script.
  if (file === undefined) return undefined;
  let line: string;
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(MOST_LINE), 0, MOST_LINE, 0);
    [line = ''] = buffer.toString('latin1', 0, bytesRead).split('\n');
  } finally {
    await file.close();
  }
  if (!line.startsWith('#!')) return undefined;
  // The kernel takes a carriage return for a part of the name.
  if (line.endsWith('\r'))
    return { problem: `the lines of ${path} end with carriage returns`, cure: `sed -i 's/\\r$//' ${path}` };
  const [interpreter = ''] = line.slice(2).trim().split(/\s/);
  if (await isPermitted(interpreter, constants.X_OK)) return undefined;
  return {
    problem: `the first line of ${path} names ${interpreter}, which is not there or may not be executed`,
    cure: 'install that program, or correct the line',
  };
}
