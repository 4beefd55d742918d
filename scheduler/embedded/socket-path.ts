export { socketPathIn } from '#shared/socket-path.ts';
