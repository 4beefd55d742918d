// A database whose next commit is not answered, whether or not it is made.
import type { Db } from '#scheduler/stores/store/db.ts';
import { databaseOutcomeUnknown } from '#scheduler/stores/store/limits.ts';

/**
 * The first transaction fails for its caller while the server still holds it.
 * @param isMade - whether the server keeps it, once that is known
 * @param onNext - called before each later transaction
 */
export function unansweredCommit(db: Db, isMade: Promise<boolean>, onNext: () => void = () => undefined): Db {
  let transactions = 0;
  return {
    kind: db.kind,
    reads: db.reads,
    query: (sql, params, options) => db.query(sql, params, options),
    close: () => db.close(),
    transaction: async (work) => {
      transactions += 1;
      if (transactions > 1) {
        onNext();
        return db.transaction(work);
      }
      const isSent = Promise.withResolvers<undefined>();
      const open = db.transaction(async (tx) => {
        await work(tx);
        isSent.resolve(undefined);
        if (!(await isMade)) throw new Error('the commit was lost');
      });
      open.catch((error: unknown) => isSent.reject(error));
      await isSent.promise;
      throw databaseOutcomeUnknown();
    },
  };
}
