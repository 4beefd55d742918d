/**
 * An engine that knows GPUs by the Container Device Interface, as Docker 28.2 and later do, on top of one that knows
 * NVIDIA's hook alone. Requests for CDI devices become requests for the hook, and the engine's answers about them are
 * changed back. A device that no specification names is refused in moby's words. Before an engine that knows no GPUs at
 * all, the stand-in for the driver's library takes the place of devices.
 */
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { createServer, request as ask } from 'node:http';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { fakeCuda } from './fake-cuda.ts';
import { tempDirectory } from './programs.ts';

const PREFIX = 'nvidia.com/gpu=';

interface DeviceRequest {
  readonly Driver?: string;
  readonly DeviceIDs?: readonly string[];
}

export interface CdiEngine {
  /** Address in the form of DOCKER_HOST. */
  readonly host: string;
  /** UUIDs that `/info` lists. */
  listed: readonly string[];
  /** UUIDs that the engine can pass: fewer than listed while a specification is stale. */
  known: readonly string[];
  /** Calls that it answers with an error, by path. */
  refuses: RegExp | undefined;
  /** Additional fields of `/info`. */
  info: object;
  /** Whether the engine has NVIDIA's runtime, too. */
  hasHook: boolean;
  /** Drivers of the requests for GPUs, in their order. */
  readonly drivers: string[];
  close(): Promise<void>;
}

/** @param socket - of the engine behind it @param behind - whether that one passes GPUs by its hook */
export async function cdiEngine(
  socket = (process.env['DOCKER_HOST'] ?? 'unix:///var/run/docker.sock').replace('unix://', ''),
  behind: 'hook' | 'no_gpus' = 'hook',
): Promise<CdiEngine> {
  const directory = tempDirectory('cdie');
  /** CDI devices that each container asked for, by the container's id. */
  const asked = new Map<string, readonly DeviceRequest[]>();
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    const forward = (body: Buffer | undefined, change?: (answer: object) => object): void => {
      const headers = { ...request.headers };
      if (body !== undefined) headers['content-length'] = String(body.length);
      const onward = ask({ socketPath: socket, method: request.method, path, headers }, (answer) => {
        if (change === undefined || answer.statusCode === undefined || answer.statusCode >= 300) {
          response.writeHead(answer.statusCode ?? 502, answer.headers);
          response.flushHeaders();
          answer.pipe(response);
          return;
        }
        void changed(answer, change).then((text) => {
          response.writeHead(answer.statusCode ?? 502, { 'content-type': 'application/json' });
          response.end(text);
        });
      });
      onward.on('error', () => response.destroy());
      response.on('close', () => onward.destroy());
      if (body === undefined) request.pipe(onward);
      else onward.end(body);
    };
    const id = /^\/containers\/([0-9a-f]{64})\//.exec(path)?.[1] ?? '';
    if (engine.refuses?.test(path) === true) {
      response.writeHead(500, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ message: 'the engine is not well' }));
    } else if (path === '/info') {
      forward(undefined, (info) => ({
        ...info,
        CDISpecDirs: ['/etc/cdi'],
        DiscoveredDevices: engine.listed.map((uuid) => ({ Source: 'cdi', ID: `${PREFIX}${uuid}` })),
        Runtimes: engine.hasHook ? { nvidia: {} } : {},
        ...engine.info,
      }));
    } else if (path.startsWith('/containers/create')) {
      void buffer(request).then((body) => {
        const spec = JSON.parse(body.toString()) as {
          HostConfig: { DeviceRequests?: readonly DeviceRequest[]; Mounts?: readonly object[] };
        };
        const requests = spec.HostConfig.DeviceRequests ?? [];
        engine.drivers.push(...requests.map(({ Driver }) => Driver ?? ''));
        const translated = requests.map((one) =>
          one.Driver === 'cdi'
            ? {
                Driver: 'nvidia',
                DeviceIDs: one.DeviceIDs?.map((name) => name.slice(PREFIX.length)),
                Capabilities: [['gpu', 'compute', 'utility', 'video']],
              }
            : one,
        );
        const { Mounts = [] } = spec.HostConfig;
        const library = { Type: 'bind', Source: fakeCuda(), Target: '/usr/lib64/libcuda.so.1', ReadOnly: true };
        const passed =
          behind === 'hook' || requests.length === 0
            ? { DeviceRequests: translated }
            : { DeviceRequests: [], Mounts: [...Mounts, library] };
        const told = { ...spec, HostConfig: { ...spec.HostConfig, ...passed } };
        forward(Buffer.from(JSON.stringify(told)), (made) => {
          if (requests.some(({ Driver }) => Driver === 'cdi')) asked.set((made as { Id: string }).Id, requests);
          return made;
        });
      });
    } else if (path.endsWith('/start') && asked.has(id)) {
      const names = (asked.get(id) ?? []).flatMap(({ DeviceIDs }) => DeviceIDs ?? []);
      const unknown = names.filter((name) => !engine.known.includes(name.slice(PREFIX.length)));
      if (unknown.length === 0) forward(undefined);
      else {
        response.writeHead(500, { 'content-type': 'application/json' });
        const message = `CDI device injection failed: unresolvable CDI devices ${unknown.join(', ')}`;
        response.end(JSON.stringify({ message }));
      }
    } else if (/\/json(\?|$)/.test(path) && asked.has(id)) {
      forward(undefined, (facts) => {
        const { HostConfig, ...rest } = facts as { HostConfig: object };
        return { ...rest, HostConfig: { ...HostConfig, DeviceRequests: asked.get(id) } };
      });
    } else forward(undefined);
  });
  const path = join(directory.path, 'engine.sock');
  server.listen(path);
  await once(server, 'listening');
  const engine: CdiEngine = {
    host: `unix://${path}`,
    listed: [],
    known: [],
    refuses: undefined,
    info: {},
    hasHook: false,
    drivers: [],
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
      directory.remove();
    },
  };
  return engine;
}

async function changed(answer: IncomingMessage, change: (answer: object) => object): Promise<string> {
  return JSON.stringify(change(JSON.parse((await buffer(answer)).toString()) as object));
}
