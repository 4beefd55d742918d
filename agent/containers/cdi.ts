/**
 * How the engine is asked for GPUs: by the Container Device Interface where it knows the devices under that name, else
 * by NVIDIA's hook. Used by starts. The runtime knows devices that came by CDI, so a container keeps them through a
 * `systemctl daemon-reload`; devices that came by the hook are lost.
 * Source: decision 0096.
 */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Log } from '#shared/log.ts';
import type { ContainerRuntime, EngineInfo, GpuDriver } from './runtime.ts';

const KIND = 'nvidia.com/gpu';
/** Starts see a new MIG slice, or a rewritten specification, within this time. */
const FRESH_MS = 30_000;
const MOST_FILES = 64;
const MOST_FILE_BYTES = 4 * 1024 * 1024;

/** The name of a GPU in CDI. */
export const cdiNameOf = (uuid: string): string => `${KIND}=${uuid}`;

/** @returns undefined when the name is not a GPU's */
export const uuidOfCdi = (name: string): string | undefined =>
  name.startsWith(`${KIND}=`) ? name.slice(KIND.length + 1) : undefined;

/**
 * Names that a CDI specification gives to NVIDIA's GPUs. Reads by its keys the output of `nvidia-ctk`, JSON or YAML.
 * There is no YAML parser here: a name in another form is left out. Pure.
 */
export const gpusOfSpecification = (text: string): string[] =>
  /(?<!\w)kind["']?\s*:\s*["']?nvidia\.com\/gpu(?![\w./-])/.test(text)
    ? [...text.matchAll(/(?<!\w)name["']?\s*:\s*["']?([\w:.-]+)/g)].map((match) => match[1] ?? '')
    : [];

/**
 * The engine's devices by CDI: its own list (Docker 28.2), else the names in the specifications that it reads (25 to
 * 28.1).
 */
export async function cdiGpus(info: Pick<EngineInfo, 'cdi'>): Promise<ReadonlySet<string>> {
  const { devices, dirs } = info.cdi;
  if (devices !== undefined) return new Set(devices.flatMap((name) => uuidOfCdi(name) ?? []));
  const found = new Set<string>();
  for (const dir of dirs) {
    const names = (await readdir(dir).catch(() => [])).filter((name) => /\.(json|yaml)$/.test(name));
    for (const name of names.slice(0, MOST_FILES)) {
      const text = await readFile(join(dir, name), 'utf8').catch(() => '');
      if (text.length <= MOST_FILE_BYTES) for (const gpu of gpusOfSpecification(text)) found.add(gpu);
    }
  }
  return found;
}

export class GpuDrivers {
  readonly #runtime: Pick<ContainerRuntime, 'info'>;
  readonly #log: Log;
  readonly #monotonicMs: () => number;
  #gpus: ReadonlySet<string> = new Set();
  #hasHook = false;
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  #looking: Promise<void> | undefined;

  constructor(runtime: Pick<ContainerRuntime, 'info'>, log: Log, monotonicMs: () => number = () => performance.now()) {
    this.#runtime = runtime;
    this.#log = log;
    this.#monotonicMs = monotonicMs;
  }

  /** Asks the engine unless the last question is recent. An engine that does not answer changes nothing. */
  check(): Promise<void> {
    if (this.#monotonicMs() - this.#lookedAtMs < FRESH_MS) return Promise.resolve();
    this.#looking ??= this.#lookNow().finally(() => (this.#looking = undefined));
    return this.#looking;
  }

  async #lookNow(): Promise<void> {
    try {
      const info = await this.#runtime.info();
      this.#gpus = await cdiGpus(info);
      this.#hasHook = info.nvidia;
      this.#lookedAtMs = this.#monotonicMs();
    } catch (error) {
      this.#log.info({ err: error }, 'the engine could not be asked for its way to pass GPUs');
    }
  }

  driverFor(uuids: readonly string[]): GpuDriver {
    return uuids.length > 0 && uuids.every((uuid) => this.#gpus.has(uuid)) ? 'cdi' : 'nvidia';
  }

  /**
   * Devices of this list that CDI lacks although it names others by UUID: its specification is older than these
   * devices.
   */
  lacks(uuids: readonly string[]): readonly string[] {
    const namesUuids = [...this.#gpus].some((name) => /^(?:GPU|MIG)-/.test(name));
    return namesUuids ? uuids.filter((uuid) => !this.#gpus.has(uuid)) : [];
  }

  /** The engine refused GPUs: the next start queries it again. @returns the driver to try instead */
  refused(driver: GpuDriver): GpuDriver | undefined {
    this.#lookedAtMs = Number.NEGATIVE_INFINITY;
    return driver === 'cdi' && this.#hasHook ? 'nvidia' : undefined;
  }
}
