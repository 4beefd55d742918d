/**
 * Flags of Node for processes that live as long as a test. The embedded database is a large WebAssembly module: V8
 * compiles what is used often a second time, better, on threads of its own, which pays only after minutes. Together
 * with the threads of the garbage collector this was a fifth of all processor time of the tests.
 */
export const TEST_NODE_FLAGS = ['--liftoff-only', '--single-threaded-gc'] as const;
