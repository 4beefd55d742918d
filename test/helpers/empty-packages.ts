// A package index that has every package, with nothing in it: images of published apps are built without downloads.
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { reachableAddress, wheelOf } from './package-index.ts';

/** Versions of a package that nothing pins. */
const USUAL = ['0.0.1', '99.0'];
const PIN = /([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*(?:===?|~=|>=|<=)\s*([0-9][\w.+]*)/g;

const nameOf = (name: string): string => name.toLowerCase().replaceAll(/[-_.]+/g, '-');
const moduleOf = (name: string): string => nameOf(name).replaceAll('-', '_');

/** Name and version in the name of a wheel. */
function partsOf(file: string): readonly [name: string, version: string] {
  const [name = '', version = ''] = file.split('-');
  return [name, version];
}

export class EmptyPackages {
  readonly #versions = new Map<string, Set<string>>();
  readonly #address: string;
  readonly #server: Server;

  private constructor(address: string) {
    this.#address = address;
    this.#server = createServer((request, response) => {
      const [, folder = '', name = '', file = ''] = decodeURIComponent(request.url ?? '').split('/');
      if (folder === 'simple' && name !== '') {
        response.setHeader('content-type', 'text/html');
        response.end(this.#page(nameOf(name)));
      } else if (folder === 'files' && file !== '')
        void wheelOf(...partsOf(file)).then(
          (wheel) => response.end(wheel),
          () => response.destroy(),
        );
      else response.writeHead(404).end();
    });
  }

  /** Serves containers that may reach this machine's own address. */
  static async start(): Promise<EmptyPackages> {
    const packages = new EmptyPackages(reachableAddress());
    packages.#server.listen(0, packages.#address);
    await once(packages.#server, 'listening');
    return packages;
  }

  /** Settings of an agent whose builds use it. */
  get settings(): Readonly<Record<string, string>> {
    const url = `http://${this.#address}:${(this.#server.address() as AddressInfo).port}`;
    return {
      LONGSHORE_AGENT_OPEN_ADDRESSES: this.#address,
      LONGSHORE_PIP_INDEX_URL: `${url}/simple`,
      LONGSHORE_PIP_TRUSTED_HOST: new URL(url).host,
    };
  }

  /** Has the versions that a text of requirements names. */
  add(text: string): void {
    for (const [, name = '', version = ''] of text.matchAll(PIN)) {
      const versions = this.#versions.get(nameOf(name)) ?? new Set();
      this.#versions.set(nameOf(name), versions.add(version.replace(/\.$/, '')));
    }
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #page(name: string): string {
    const files = [...USUAL, ...(this.#versions.get(name) ?? [])].map(
      (version) => `${moduleOf(name)}-${version}-py3-none-any.whl`,
    );
    return files.map((file) => `<a href="/files/${name}/${encodeURIComponent(file)}">${file}</a>`).join('\n');
  }
}
