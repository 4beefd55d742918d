// Stand-ins for a package index and for a conda channel with its program, and how often each file was asked for.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { buffer } from 'node:stream/consumers';
import { ZipFile } from 'yazl';

/** The program's verbs as steps of builds call them. Its packages are files of the channel, kept in CONDA_PKGS_DIRS. */
const MICROMAMBA = `#!/bin/sh
set -e
verb=$1; shift; prefix=; channel=; packages=
while [ $# -gt 0 ]; do
  case $1 in -y) ;; -p) prefix=$2; shift ;; -c) channel=\${channel:-$2}; shift ;; *) packages="$packages $1" ;; esac; shift
done
mkdir -p "$prefix/bin" "$CONDA_PKGS_DIRS"
[ -e "$prefix/bin/python3" ] || ln -s "$(command -v python3)" "$prefix/bin/python3"
for one in $packages; do
  if [ ! -e "$CONDA_PKGS_DIRS/$one" ]; then
    echo "downloading $one"
    python3 -c 'import shutil, sys, urllib.request
shutil.copyfileobj(urllib.request.urlopen(sys.argv[1]), open(sys.argv[2], "wb"))' "$channel/$one" "$CONDA_PKGS_DIRS/$one"
  fi
  cp "$CONDA_PKGS_DIRS/$one" "$prefix/$one"
  case $one in big*) sleep 60 ;; slow*) sleep 2 ;; esac
done
`;

export class PackageIndex {
  readonly asked = new Map<string, number>();
  /** An address of this machine that containers may be let reach. */
  readonly address: string;
  readonly #server: Server;
  readonly #wheel: Buffer;

  private constructor(wheel: Buffer, address: string) {
    this.#wheel = wheel;
    this.address = address;
    this.#server = createServer((request, response) => {
      const path = decodeURIComponent(request.url ?? '');
      this.asked.set(path, (this.asked.get(path) ?? 0) + 1);
      response.setHeader('cache-control', 'max-age=3600');
      if (path === '/simple/tinypkg/') {
        response.setHeader('content-type', 'text/html');
        response.end('<a href="/files/tinypkg-1.0-py3-none-any.whl">tinypkg-1.0-py3-none-any.whl</a>');
      } else if (path === '/files/tinypkg-1.0-py3-none-any.whl') response.end(this.#wheel);
      else if (path === '/micromamba-64') response.end(MICROMAMBA);
      else if (path.startsWith('/channel/big')) response.end(Buffer.alloc(200 * 1024 * 1024));
      else if (path.startsWith('/channel/')) response.end(path);
      else response.writeHead(404).end();
    });
  }

  static async start(): Promise<PackageIndex> {
    const index = new PackageIndex(await wheelOf('tinypkg', '1.0'), reachableAddress());
    index.#server.listen(0, index.address);
    await once(index.#server, 'listening');
    return index;
  }

  get url(): string {
    return `http://${this.address}:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Settings of an agent whose builds use it. */
  get settings(): Readonly<Record<string, string>> {
    return {
      LONGSHORE_AGENT_OPEN_ADDRESSES: this.address,
      LONGSHORE_PIP_INDEX_URL: `${this.url}/simple`,
      LONGSHORE_PIP_TRUSTED_HOST: new URL(this.url).host,
      LONGSHORE_MICROMAMBA_URL: `${this.url}/micromamba-$machine`,
      LONGSHORE_CONDA_CHANNELS: `${this.url}/channel`,
    };
  }

  countOf(path: string): number {
    return this.asked.get(path) ?? 0;
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** An address of this machine that containers may be let reach. */
export function reachableAddress(): string {
  const own = Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .find(({ internal, family }) => !internal && family === 'IPv4');
  if (own === undefined) throw new Error('this machine has no address that containers could reach');
  return own.address;
}

/** A package with a module of its name. */
export async function wheelOf(name: string, version: string): Promise<Buffer> {
  const info = `${name}-${version}.dist-info`;
  const files: Record<string, string> = {
    [`${name}/__init__.py`]: 'VALUE = 42\n',
    [`${info}/METADATA`]: `Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}\n`,
    [`${info}/WHEEL`]: 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
  };
  const digest = (text: string): string => createHash('sha256').update(text).digest('base64url');
  const record = Object.entries(files).map(([path, text]) => `${path},sha256=${digest(text)},${text.length}`);
  files[`${info}/RECORD`] = [...record, `${info}/RECORD,,`, ''].join('\n');
  const zip = new ZipFile();
  for (const [path, text] of Object.entries(files)) zip.addBuffer(Buffer.from(text), path);
  zip.end();
  return buffer(zip.outputStream);
}
