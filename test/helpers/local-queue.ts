/**
 * Whether schedulers of this run of the tests use the local
 * queue: `npm run test:queue` switches it off for all of them.
 */
export const localQueue = process.env['LS_TEST_LOCAL_QUEUE'] === 'off' ? 'off' : 'on';
