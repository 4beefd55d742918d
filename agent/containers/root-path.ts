// The folder to which a container writes changes of its root, read from the mounts of its first process. An engine with
// containerd's image store does not report it.
import { readFile } from 'node:fs/promises';

/**
 * @param mountinfo - `/proc/<pid>/mountinfo`
 * @returns empty when the root is no overlay
 */
export function upperDirIn(mountinfo: string): string {
  for (const line of mountinfo.split('\n')) {
    // Fields: number, parent, device, root, place; then options and others of any count, a dash, kind, source, options
    // of the file system.
    const match = /^\d+ \d+ \S+ \S+ \/ .* - overlay \S+ (\S+)$/.exec(line);
    const upper = match?.[1]?.split(',').find((option) => option.startsWith('upperdir='));
    if (upper !== undefined)
      return upper
        .slice('upperdir='.length)
        .replace(/\\([0-7]{3})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 8)));
  }
  return '';
}

/** @returns empty when the process has ended, or this user may not read it */
export async function upperDirOf(pid: number): Promise<string> {
  if (pid <= 0) return '';
  return upperDirIn(await readFile(`/proc/${pid}/mountinfo`, 'utf8').catch(() => ''));
}
