// Entries of a volume, and requests at signed addresses, as copies need them.
import { readWhole } from '../byte-request.ts';
import type { ByteAnswer, ByteRequest, ByteSource } from '../byte-request.ts';
import type { Client } from '../client.ts';
import { sentenceOf } from '../client.ts';
import { CliError } from '../errors.ts';
import { listField, numberField, objectField, textField } from '../json.ts';
import type { JsonObject } from '../json.ts';
import { pagesOf } from '../pages.ts';

const PAGE = 10_000;
const VOLUMES_PAGE = 1_000;
/** Answers to packs that were sent, and refusals, are short lists. */
const MOST_ANSWER_BYTES = 16 * 1024 * 1024;
/** A page of a large folder takes seconds, and may wait for the volume's file server. */
const PAGE_TIMEOUT_MS = 60_000;

export interface VolumeFile {
  readonly path: string;
  readonly kind: string;
  readonly size: number;
  readonly mtimeNs: bigint;
  readonly isExecutable: boolean;
  readonly isAddressable: boolean;
}

export interface Listing {
  readonly kind: string;
  readonly entries: readonly VolumeFile[];
}

export const volumesPath = async (client: Client): Promise<string> => `/volume/${await client.workspaceId()}`;

export const volumePath = async (client: Client, volume: string): Promise<string> =>
  `${await volumesPath(client)}/${encodeURIComponent(volume)}`;

/** The workspace's volumes. */
export async function allVolumes(client: Client): Promise<readonly JsonObject[]> {
  const path = await volumesPath(client);
  const found: JsonObject[] = [];
  const read = (cursor: string): Promise<JsonObject> =>
    client.rest(`${path}?${new URLSearchParams({ limit: String(VOLUMES_PAGE), cursor }).toString()}`);
  for await (const page of pagesOf('the volumes', read)) found.push(...listField(page, 'data'));
  return found;
}

/** All entries of a folder. @returns undefined: there is no such path */
export async function listFiles(
  client: Client,
  volume: string,
  path: string,
  recursive: boolean,
): Promise<Listing | undefined> {
  const base = `${await volumePath(client, volume)}/files`;
  const entries: VolumeFile[] = [];
  let kind = '';
  const read = (cursor: string): Promise<JsonObject> => {
    const query = new URLSearchParams({ path, recursive: String(recursive), limit: String(PAGE), cursor });
    return client.rest(`${base}?${query.toString()}`, PAGE_TIMEOUT_MS);
  };
  try {
    for await (const page of pagesOf(`the files of volume ${volume}`, read)) {
      for (const entry of listField(page, 'data')) entries.push(entryOf(entry));
      kind = textField(page, 'kind');
    }
  } catch (error) {
    if (isNoFile(error)) return undefined;
    throw error;
  }
  return { kind, entries };
}

const isNoFile = (error: unknown): boolean => error instanceof CliError && error.answerCode === 'volume_file_not_found';

const entryOf = (entry: JsonObject): VolumeFile => ({
  path: textField(entry, 'path'),
  kind: textField(entry, 'kind'),
  size: numberField(entry, 'size'),
  mtimeNs: nanosecondsOf(textField(entry, 'modified_at')),
  isExecutable: entry['executable'] === true,
  isAddressable: entry['addressable'] === true,
});

/** Nanoseconds since 1970 of an RFC 3339 time in UTC, with all of its digits. */
export function nanosecondsOf(time: string): bigint {
  const [, whole = '', fraction = ''] = /^(.*?)(?:\.(\d{1,9}))?Z$/.exec(time) ?? [];
  const ms = Date.parse(`${whole}Z`);
  return Number.isNaN(ms) ? 0n : BigInt(ms) * 1_000_000n + BigInt(fraction.padEnd(9, '0'));
}

/** Signed addresses of packs below one folder; an expired one is asked for again. */
export class PackAddress {
  readonly #client: Client;
  readonly #query: string;
  readonly #volume: string;
  #url: Promise<string> | undefined;

  constructor(client: Client, volume: string, path: string, method: 'POST' | 'PUT') {
    this.#client = client;
    this.#volume = volume;
    this.#query = new URLSearchParams({ path, method }).toString();
  }

  /** Sends a pack, or asks for one. @throws CliError with the status of a refusal */
  async send(request: ByteRequest, signal: AbortSignal): Promise<ByteAnswer> {
    const asked = (this.#url ??= this.#ask());
    const answer = await this.#client.transfer(await asked, request, signal);
    if (answer.status === 200) return answer;
    if (answer.status === 403 && this.#url === asked) this.#url = undefined;
    const value = objectField({ value: await jsonOf(answer.body).catch(() => ({})) }, 'value');
    throw new CliError(sentenceOf(answer.status, value, this.#client.context.url), { status: answer.status });
  }

  async #ask(): Promise<string> {
    const answer = await this.#client.rest(`${await volumePath(this.#client, this.#volume)}/pack-url?${this.#query}`);
    return textField(answer, 'url');
  }
}

/** The body of an answer as JSON. */
export async function jsonOf(body: ByteSource): Promise<unknown> {
  return JSON.parse((await readWhole(body, MOST_ANSWER_BYTES)).toString('utf8'));
}
