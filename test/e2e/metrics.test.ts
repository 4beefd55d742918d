// docs/metrics.md against what the daemons serve.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { ROOT, test } from '../helpers/platform.ts';

const namesIn = (page: string): string[] => [...page.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1] ?? '').sort();

test('every metric of both daemons is in docs/metrics.md, and nothing else is', async ({ platform }) => {
  const docs = readFileSync(join(ROOT, 'docs', 'metrics.md'), 'utf8');
  const documented = [...docs.matchAll(/^\| `(longshore_\S+)` \|/gm)].map((match) => match[1] ?? '').sort();
  const address = /"metricsAddress":"([^"]+)"/.exec(platform.agent.log())?.[1];
  const pages = await Promise.all(
    [`${platform.url}/metrics`, `http://${address}/metrics`].map(async (url) => {
      const answer = await fetch(url, { signal: AbortSignal.timeout(5000) });
      expect(answer.status).toBe(200);
      return await answer.text();
    }),
  );
  expect(pages.flatMap(namesIn).sort()).toEqual(documented);
});
