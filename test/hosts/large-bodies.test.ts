// A gibibyte in each direction through the FastAPI example, whose container has 512 MiB. Scheduler and agent hold none
// of it: the most memory that either has does not depend on the size of a body.
//
// The daemons run with the options of their units, since those of tests collect garbage later. The database is a
// server: the embedded one takes and gives back 350 MiB of the scheduler's process while V8 compiles it.
import { expect } from 'vitest';
import { deployFile } from '../helpers/frameworks.ts';
import { jsonOf, platformAsUnits } from '../helpers/platform.ts';
import type { Platform } from '../helpers/platform.ts';
import { peakDuring, residentMib } from '../helpers/resident.ts';
import { docker, test as base, waitFor } from '../helpers/services.ts';
import { download, upload } from '../helpers/transfers.ts';

const MIB = 1024 * 1024;
const [FIRST_MIB, PART_MIB, LARGE_MIB] = [32, 256, 1024];
/** Most that a daemon may grow over its memory after the first, small bodies, for a body of any size. */
const MOST_GROWN_MIB = 128;
/** Noise between the peaks of as many bytes in four bodies and in one: they depend on when garbage is collected. */
const NOISE_MIB = 96;
const CALLS_BESIDE = 50;
const READINGS_AT_REST = 5;
const DAEMONS = ['scheduler', 'agent'] as const;

const test = base.extend('platform', { scope: 'file' }, async ({ postgres }, { onCleanup }): Promise<Platform> => {
  const platform = platformAsUnits(await docker(), postgres.url);
  onCleanup(() => platform.stop());
  await platform.start();
  return platform;
});

test('FastAPI takes and sends 1 GiB within fixed memory on scheduler and agent', async ({ platform }) => {
  const { token } = platform;
  const { url } = await deployFile(platform, 'examples/fastapi/app.py');
  const pids = { scheduler: platform.scheduler.pid ?? 0, agent: platform.agent.pid ?? 0 };

  /** Nothing passes any more, because nobody reads. */
  const atRest = async (): Promise<void> => {
    let [last, times] = ['', 0];
    const isAtRest = async (): Promise<boolean> => {
      const { text } = await platform.call('/metrics');
      const now = /^longshore_scheduler_stream_bytes_total\{direction="out"\} .*$/m.exec(text)?.[0] ?? '';
      times = now === last ? times + 1 : 0;
      last = now;
      return now !== '' && times === READINGS_AT_REST;
    };
    await waitFor(isAtRest, 'nothing passes', 60_000);
  };
  const send = async (size: number): Promise<string> => {
    const { answer, sha256 } = await upload({ url: `${url}/files/large.bin`, token }, size);
    expect(answer).toEqual({ name: 'large.bin', size, sha256 });
    return sha256;
  };
  const receive = async (size: number, sha256: string): Promise<void> => {
    // The application is no faster than this reader, so only a pause shows who keeps bytes that are not read.
    const pause = { atBytes: size / 4, until: atRest };
    expect(await download({ url: `${url}/download?size=${size}`, token }, pause)).toEqual({ size, sha256 });
  };
  /** Other calls are served meanwhile, by the same process of the same container. */
  const others = async (): Promise<void> => {
    for (let number = 0; number < CALLS_BESIDE; number += 1)
      expect(jsonOf(await platform.call(`${url}/items/${number}`))).toEqual({ number });
  };
  /** Sends and receives bodies of a size. @returns the most memory of each daemon in either direction */
  const passes = async (mebibytes: number, times = 1) => {
    const size = mebibytes * MIB;
    let sha256 = '';
    const up = await peakDuring(pids, async () => {
      for (let time = 0; time < times; time += 1) [sha256] = await Promise.all([send(size), others()]);
    });
    const down = await peakDuring(pids, async () => {
      for (let time = 0; time < times; time += 1) await Promise.all([receive(size, sha256), others()]);
    });
    return { up, down };
  };

  await others();
  const idle = residentMib(pids);
  await passes(FIRST_MIB);
  const before = residentMib(pids);
  const parts = await passes(PART_MIB, LARGE_MIB / PART_MIB);
  const whole = await passes(LARGE_MIB);
  const grown = (['up', 'down'] as const).flatMap((direction) =>
    DAEMONS.map((daemon) => {
      const [ofParts = NaN, ofWhole = NaN] = [parts, whole].map((peaks) => peaks[direction][daemon] - before[daemon]);
      return { direction, daemon, ofParts: Math.round(ofParts), ofWhole: Math.round(ofWhole) };
    }),
  );
  for (const daemon of DAEMONS)
    process.stderr.write(`${daemon}: ${idle[daemon].toFixed(0)} MiB idle, ${before[daemon].toFixed(0)} MiB warm\n`);
  const said = grown.map((one) => `${one.daemon}, ${one.direction}: ${one.ofParts} and ${one.ofWhole} MiB more`);
  process.stderr.write(`${said.join('; ')}\n`);
  for (const [at, { ofParts, ofWhole }] of grown.entries()) {
    expect(Math.max(ofParts, ofWhole), said[at]).toBeLessThan(MOST_GROWN_MIB);
    expect(ofWhole - ofParts, said[at]).toBeLessThan(NOISE_MIB);
  }
}, 300_000);
