/**
 * Options and environment of an agent's process that keep its memory at rest small:
 * for its unit, `longshore up` and benchmarks. None of them bounds a busy agent.
 */

/**
 * The semi-spaces of the young generation are small: an agent makes few objects at a time, and V8
 * would fill 16 MiB. V8 collects its heap before it asks for more. Rarely run code is interpreted,
 * not compiled without optimisation; frequently run code is optimised all the same. Two collections
 * discard code that has not run, most of all the start's; a later run compiles it again. One thread
 * collects: several threads take a quarter more processor time for so small a heap.
 */
export const AGENT_NODE_OPTIONS: readonly string[] = [
  '--max-semi-space-size=1',
  '--optimize-for-size',
  '--no-sparkplug',
  '--bytecode-old-age=2',
  '--single-threaded-gc',
  '--v8-pool-size=1',
];

export const AGENT_PROCESS_ENV: Readonly<Record<string, string>> = {
  // The C library would keep a heap per thread, each at the size of its busiest moment.
  MALLOC_ARENA_MAX: '1',
  // The C library would also keep up to 6 MiB free at the top of that heap:
  // twice the largest block ever freed, which is the program's own text.
  MALLOC_TRIM_THRESHOLD_: '131072',
  // Large blocks of the engine's answers and of the compiler leave memory when they are freed, and no holes between
  // others. Pieces of streamed bodies (64 KiB) stay below: pages of their own would take nearly half of the time again.
  MALLOC_MMAP_THRESHOLD_: '131072',
  // Files on slow disks must not hold up the others.
  UV_THREADPOOL_SIZE: '16',
};
