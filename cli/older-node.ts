// Functions that commands or their HTTP client use and Node 20 lacks.
import workerThreads from 'node:worker_threads';
import zlib from 'node:zlib';

const promises = Promise as Partial<Pick<PromiseConstructor, 'withResolvers'>>;

promises.withResolvers ??= function withResolvers<T>(): PromiseWithResolvers<T> {
  const made: Partial<PromiseWithResolvers<T>> = {};
  made.promise = new Promise<T>((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made as PromiseWithResolvers<T>;
};

// The HTTP client takes the next two when it is loaded. No command asks for bodies in this encoding, and no command
// passes objects of the client to a thread.
const decoders = zlib as Partial<Pick<typeof zlib, 'createZstdDecompress'>>;
decoders.createZstdDecompress ??= () => {
  throw new Error('this Node cannot decode zstd');
};
const clones = workerThreads as Partial<Pick<typeof workerThreads, 'markAsUncloneable'>>;
clones.markAsUncloneable ??= () => {};
