// Why a stream ends before its operation has ended: the reason of its signal.

/** The caller ended the call; its connection is there. */
export const LEFT = 'the caller left';
/** The connection broke: the caller may come back. */
export const LOST = 'the connection was lost';
/** This scheduler stops: the caller shall come back. */
export const STOPS = 'the scheduler stops';
/** The token of the call counts no more. */
export const REVOKED = 'the token counts no more';
