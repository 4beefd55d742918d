import { AppError } from '#shared/errors.ts';

/** Refusal of an id that names no workspace, or one that is being deleted. */
export const noSuchWorkspace = (): AppError => new AppError('workspace_not_found', 'there is no such workspace');
