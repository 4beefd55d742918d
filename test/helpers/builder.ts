// Builds of images through an installation's gateway.
import { expect } from 'vitest';
import type { Platform } from './platform.ts';

export interface Result {
  readonly imageId: string;
  readonly msg: string;
  readonly done: boolean;
  readonly success: boolean;
  readonly warning: boolean;
}

export type Definition = Readonly<Record<string, unknown>>;

/** Builds of one installation; their images go with it. */
export class Builder {
  readonly platform: Platform;

  constructor(platform: Platform) {
    this.platform = platform;
  }

  async verify(definition: Definition): Promise<{ imageId: string; exists: boolean }> {
    return this.platform.gateway<{ imageId: string; exists: boolean }>('/images/verify-build', definition);
  }

  /** All messages of a build. */
  async run(
    definition: Definition,
    onLine: (text: string) => void = () => undefined,
    token = this.platform.token,
  ): Promise<readonly Result[]> {
    const answer = await fetch(`${this.platform.url}/api/v1/gateway/images/build`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify(definition),
      signal: AbortSignal.timeout(150_000),
    });
    expect(answer.status).toBe(200);
    const results: Result[] = [];
    let rest = '';
    const decoder = new TextDecoder();
    for await (const part of answer.body ?? []) {
      const lines = (rest + decoder.decode(part as Uint8Array, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const { result } = JSON.parse(line) as { result: Result };
        results.push(result);
        if (result.msg !== '') onLine(result.msg);
      }
    }
    expect(rest).toBe('');
    return results;
  }

  async build(definition: Definition, token?: string): Promise<{ readonly last: Result; readonly text: string }> {
    const results = await this.run(definition, undefined, token);
    const last = results.at(-1);
    if (last === undefined) throw new Error('the build said nothing');
    expect(results.filter(({ done }) => done)).toHaveLength(1);
    return { last, text: results.map(({ msg }) => msg).join('') };
  }
}
