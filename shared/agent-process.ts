/** How an agent's process is started, so that it takes little memory at rest: by its unit, by `longshore up`, by benchmarks. None of it bounds what a busy agent may use. */

/**
 * The young generation has small halves, since an agent makes few objects at a time and V8 would let them fill 16 MiB; V8 collects its heap before it asks for more; and what runs now and then is
 * interpreted, not compiled without optimisation: what runs often is optimised all the same. What two collections have not seen running (the start itself, most of all) is
 * compiled again should it run again.
 */
export const AGENT_NODE_OPTIONS: readonly string[] = [
  '--max-semi-space-size=1',
  '--optimize-for-size',
  '--no-sparkplug',
  '--bytecode-old-age=2',
];

export const AGENT_PROCESS_ENV: Readonly<Record<string, string>> = {
  // The C library would keep a heap for every thread, each with what its busiest moment left.
  MALLOC_ARENA_MAX: '1',
  // It would also keep up to 6 MiB that are free at the top of that heap: twice the largest block it ever gave back, which is the program's own text.
  MALLOC_TRIM_THRESHOLD_: '131072',
  // Files on slow disks must not hold up the others.
  UV_THREADPOOL_SIZE: '16',
};
