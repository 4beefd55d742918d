/** Number of random stories: so many in each run of the tests, and what `npm run properties` asks for there. */
export const stories = (usual: number): number => Number(process.env['LS_PROPERTY_SEEDS'] ?? usual);
